"""One page of the docs: find its blocks and execute them. See tools.docs for the rules."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

EXECUTED = {"python", "console", "sql"}
# Names under which a block would go unexecuted by mistake.
MISNAMED = {
    "": "text",
    "bash": "console",
    "sh": "console",
    "shell": "console",
    "shell-session": "console",
    "py": "python",
    "python3": "python",
    "pycon": "python",
    "postgres": "sql",
    "postgresql": "sql",
    "psql": "sql",
}
COMMAND_SECONDS = 180

FENCE = re.compile(r"^(?P<indent>\s*)(?P<fence>`{3,}|~{3,})\s*(?P<language>[\w-]*)(?P<rest>[^`]*)$")
EXCLUSION = re.compile(r"^<!--\s*not run:\s*(?P<reason>.*?)\s*-->$")
TITLE = re.compile(r'\btitle="(?P<title>[\w./-]+)"')


class PageError(Exception):
    """Something on a page is wrong; the message begins with file and line."""


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    """Line of the first line of the text, counted from 1."""
    language: str
    text: str
    title: str | None
    excluded: str | None
    """The reason why it is not executed."""

    @property
    def runs(self) -> bool:
        return self.language in EXECUTED and self.excluded is None

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def parse(page: Path, text: str) -> list[Block]:
    blocks = []
    before = ""
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        opening = FENCE.match(line)
        if opening is None:
            before = line.strip() or before
            continue
        language = opening["language"].lower()
        body = _body(page, number, opening, lines)
        exclusion = EXCLUSION.match(before)
        if exclusion is not None and not exclusion["reason"]:
            raise PageError(f"{page}:{number}: a block is excluded without a reason")
        if language in MISNAMED:
            shown = f'language "{language}"' if language else "no language"
            raise PageError(f'{page}:{number}: a block has {shown}; name it "{MISNAMED[language]}"')
        title = TITLE.search(opening["rest"])
        reason = exclusion["reason"] if exclusion else None
        blocks.append(Block(page, number + 1, language, body, title and title["title"], reason))
        before = ""
    return blocks


def _body(page: Path, start: int, opening: re.Match[str], lines: Iterator[tuple[int, str]]) -> str:
    indent = len(opening["indent"])
    body: list[str] = []
    for _, line in lines:
        stripped = line.strip()
        if stripped.startswith(opening["fence"]) and not stripped.strip(opening["fence"][0]):
            return "".join(line + "\n" for line in body)
        body.append(line[min(indent, len(line) - len(line.lstrip())) :])
    raise PageError(f"{page}:{start}: a block is not closed")


@dataclass(frozen=True, slots=True)
class Command:
    line: int
    text: str
    output: list[str]


def commands(block: Block) -> list[Command]:
    found: list[Command] = []
    for number, line in enumerate(block.text.splitlines(), start=block.line):
        if line.startswith("$ "):
            found.append(Command(number, line[2:], []))
        elif not found:
            raise PageError(f'{block.page}:{number}: a console block begins with "$ " and a command')
        elif line.startswith("> ") and found[-1].text.endswith("\\") and not found[-1].output:
            last = found.pop()
            found.append(Command(last.line, f"{last.text}\n{line[2:]}", []))
        else:
            found[-1].output.append(line)
    return found


def matches(expected: list[str], actual: str) -> bool:
    """Whether output is as expected. Blank lines at the end and spaces at the ends of lines do not count."""
    pattern = ""
    for line in "\n".join(expected).rstrip().splitlines():
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += r"[^\n]*".join(re.escape(part) for part in line.rstrip().split("...")) + r"\n"
    lines = [line.rstrip() for line in actual.rstrip().splitlines()]
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


class Page:
    """What the blocks of one page share."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.sql: psycopg.Connection | None = None
        self.groups: list[int] = []

    def run(self, block: Block) -> None:
        match block.language:
            case "python":
                self.python(block)
            case "console":
                self.console(block)
            case _:
                self.statements(block)

    def python(self, block: Block) -> None:
        # Empty lines in front give every line the number it has on the page, in tracebacks too.
        source = "\n" * (block.line - 1) + block.text
        try:
            if block.title is None:
                exec(compile(source, str(block.page), "exec"), self.namespace)  # noqa: S102 - what this tool is for
            else:
                path = self.directory / block.title
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
                if path.suffix == ".py":
                    importlib.invalidate_caches()
                    module = importlib.import_module(".".join(Path(block.title).with_suffix("").parts))
                    self.namespace |= {key: value for key, value in vars(module).items() if key[:2] != "__"}
        except (Exception, SystemExit) as error:
            raise PageError(f"{block.where}: python block failed\n{traceback.format_exc()}") from error

    def statements(self, block: Block) -> None:
        try:
            if self.sql is None:
                self.sql = psycopg.connect(os.environ["ONCEWARD_DSN"], autocommit=True)
            self.sql.execute(block.text)
        except psycopg.Error as error:
            position = error.diag.statement_position
            offset = block.text[: int(position)].count("\n") if position else 0
            raise PageError(f"{block.page}:{block.line + offset}: sql block failed\n{error}") from error

    def console(self, block: Block) -> None:
        status = 0
        found = commands(block)
        for command, following in zip(found, [*found[1:], None], strict=True):
            where = f"{block.page}:{command.line}"
            status, output = self.shell(command.text, status, where)
            if any(command.output) and not matches(command.output, output):
                expected = "\n".join(command.output)
                shown = f"--- expected\n{expected}\n--- actual\n{output}"
                raise PageError(f"{where}: output differs: {command.text}\n{shown}")
            if status != 0 and (following is None or following.text != "echo $?"):
                raise PageError(f"{where}: command failed with status {status}: {command.text}\n{output}")

    def shell(self, command: str, status: int, where: str) -> tuple[int, str]:
        """Run one command where the last one left off. Its `$?` is the status of the last one."""
        state = self.directory / ".shell-state"
        # A file, not a pipe: a command left in the background would hold the pipe open.
        log = self.directory / f".shell-output-{len(self.groups)}"
        script = f"""
            [ ! -e '{state}' ] || . '{state}'
            trap '{{ export -p; printf "cd %q\\n" "$PWD"; }} > "{state}"' EXIT
            (exit {status})
            """
        with log.open("w", encoding="utf-8") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"{script}\n{command}"],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.groups.append(process.pid)
            try:
                status = process.wait(COMMAND_SECONDS)
            except subprocess.TimeoutExpired:
                shown = log.read_text(encoding="utf-8", errors="replace")
                raise PageError(
                    f"{where}: still running after {COMMAND_SECONDS} s: {command}\n{shown}"
                ) from None
        return status, log.read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        if self.sql is not None:
            self.sql.close()
        for group in self.groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)


def main(page: Path, directory: Path) -> int:
    blocks = parse(page, page.read_text(encoding="utf-8"))
    os.chdir(directory)
    sys.path[0] = str(directory)
    running = Page(directory)
    try:
        for block in blocks:
            if block.runs:
                running.run(block)
    except PageError as error:
        print(f"error: {error}")
        return 1
    finally:
        running.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
