from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from onceward.embedded import EmbeddedServer
from tools.docs import environment
from tools.pages import PageError, commands, matches, parse

PAGE = Path("guide.md")


def run(tmp_path, text, dsn=""):
    """Execute a page as `tools.docs` does; its exit status and what it printed."""
    page = tmp_path / "guide.md"
    page.write_text(text)
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "tools.pages", str(page), str(work)],
        check=False,
        capture_output=True,
        text=True,
        env=environment(dsn),
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_blocks_are_found_with_their_lines_and_languages():
    blocks = parse(
        PAGE,
        'a\n```python title="app.py"\nx = 1\n```\n\n1. b\n   ~~~console\n   $ ls\n   ~~~\n```json\n{}\n```\n',
    )

    assert [(block.line, block.language, block.text, block.title, block.runs) for block in blocks] == [
        (3, "python", "x = 1\n", "app.py", True),
        (8, "console", "$ ls\n", None, True),
        (11, "json", "{}\n", None, False),
    ]


def test_a_block_is_excluded_only_by_the_comment_right_before_it():
    text = "<!-- not run: needs a bank -->\n\n```python\npay()\n```\n```python\nx = 1\n```\n"

    assert [block.excluded for block in parse(PAGE, text)] == ["needs a bank", None]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("<!-- not run: -->\n```sql\n```\n", "guide.md:2: a block is excluded without a reason"),
        ("```bash\nls\n```\n", 'guide.md:1: a block has language "bash"; name it "console"'),
        ("```\nls\n```\n", 'guide.md:1: a block has no language; name it "text"'),
        ("x\n```python\n1\n", "guide.md:2: a block is not closed"),
    ],
)
def test_a_page_that_would_hide_a_block_is_refused(text, complaint):
    with pytest.raises(PageError, match=complaint):
        parse(PAGE, text)


def test_a_command_may_continue_on_the_next_line():
    [block] = parse(PAGE, "```console\n$ echo a \\\n> b\na b\n$ true\n```\n")

    assert [(command.line, command.text, command.output) for command in commands(block)] == [
        (2, "echo a \\\nb", ["a b"]),
        (5, "true", []),
    ]


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        (["a"], "a  \n\n", True),
        (["a"], "a\nb\n", False),
        (["a ... c"], "a (b) c\n", True),
        (["a ... c"], "a\nc\n", False),
        (["a", "..."], "a\n", True),
        (["a", "...", "z"], "a\nb\nc\nz\n", True),
        (["...", "z"], "a\nb\n", False),
        (["took ... s."], "took 3.1 s!\n", False),
    ],
)
def test_dots_stand_for_anything_in_a_line_and_for_any_lines(expected, actual, same):
    assert matches(expected, actual) is same


def test_blocks_of_a_page_share_names_files_and_shell(tmp_path):
    text = """
```python title="shop.py"
price = 3
```
```python
total = price * 2
open("total.txt", "w").write(str(total))
```
```console
$ cat total.txt
6
$ export NAME=it\\'s; mkdir sub; cd sub
$ echo "$NAME in ${PWD##*/}"
it's in sub
$ python -c 'import sys; sys.path.insert(0, ".."); import shop; print(shop.price)'
3
$ sleep 600 &
$ false
$ echo $?
1
```
"""
    assert run(tmp_path, text) == (0, "")


@pytest.mark.slow
def test_sql_runs_in_the_database_of_the_page(tmp_path):
    with tempfile.TemporaryDirectory(prefix="onceward-test-") as name:
        server = EmbeddedServer.start(Path(name) / "pg")
        try:
            good = "```sql\ncreate table t (n int);\ninsert into t values (1);\n```\n```sql\ntable t;\n```\n"
            assert run(tmp_path, good, server.dsn()) == (0, "")

            status, output = run(tmp_path, "\n```sql\nselect 1;\nselect nope;\n```\n", server.dsn())
            assert status == 1
            assert "guide.md:4: sql block failed" in output
        finally:
            server.stop("immediate")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("\n```python\nx = 1\nassert x == 2\n```\n", 'guide.md", line 4, in <module>'),
        ("\n```python\nraise SystemExit(3)\n```\n", "guide.md:3: python block failed"),
        ("\n```console\n$ true\n$ echo a\nb\n```\n", "guide.md:4: output differs: echo a"),
        ("\n```console\n$ false\n$ echo later\n```\n", "guide.md:3: command failed with status 1: false"),
        ("\n```console\n$ exit 4\n```\n", "guide.md:3: command failed with status 4: exit 4"),
    ],
)
def test_a_failure_names_the_line(tmp_path, text, complaint):
    status, output = run(tmp_path, text)

    assert status == 1
    assert complaint in output
