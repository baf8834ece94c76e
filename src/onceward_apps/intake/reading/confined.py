"""A child process that may use little memory, little time and no network, for everything that opens a stranger's file.

The child limits itself before it touches the file (see `inside`), and dies by its own alarm even if nobody waits for
it.  Its parent counts the time as well, and kills.  What comes back are frames: a length, a JSON header, and as many
bytes as the header announces.
"""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final, cast, get_args

from onceward_apps.intake.reading.errors import RefusalCode, Refused
from onceward_apps.intake.reading.model import Limits

HEADER: Final = struct.Struct(">I")
# A header is small; a page image is bounded by its pixels.
MAX_HEADER: Final = 256 * 1024
MAX_BLOB: Final = 256 * 1024 * 1024
# What the parent allows beyond the child's own alarm.
_GRACE: Final = 5.0
_SOURCE: Final = Path(__file__).resolve().parents[3]
_KILLED_BY_TIME: Final = frozenset((signal.SIGALRM, signal.SIGXCPU, signal.SIGKILL))


@dataclass(frozen=True, slots=True)
class Frame:
    """One message of the child."""

    header: Mapping[str, Any]
    blob: bytes = b""


def run(task: str, limits: Limits, **arguments: Any) -> Iterator[Frame]:
    """The frames that a task of the child makes, as it makes them.

    The child is gone when the iterator is exhausted or closed.  Raises Refused when the child refuses the file, breaks
    on it, or uses more than it may.
    """
    order = {"task": task, "limits": _plain(limits), **arguments}
    child = subprocess.Popen(
        # -P: nothing is imported from where the parent happens to stand.
        [sys.executable, "-P", "-m", f"{__package__}.inside"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # What a broken file makes a library say may hold text of the document.
        stderr=subprocess.DEVNULL,
        cwd="/",
        # No secret of the parent's environment reaches a process that opens foreign files.
        env={"PYTHONPATH": str(_SOURCE), "LC_ALL": "C.UTF-8", "MALLOC_ARENA_MAX": "1"},
        start_new_session=True,
    )
    clock = threading.Timer(limits.wall.total_seconds() + _GRACE, child.kill)
    clock.daemon = True
    clock.start()
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        with child.stdin as stdin:
            stdin.write(json.dumps(order).encode())
        ended = False
        while (frame := _frame(child.stdout)) is not None:
            if "refused" in frame.header:
                raise Refused(_code(frame.header["refused"]), str(frame.header["message"])[:300])
            ended = "end" in frame.header
            if ended:
                break
            yield frame
        if not ended:
            raise _died(child)
    except BrokenPipeError:
        raise _died(child) from None
    finally:
        clock.cancel()
        child.kill()
        child.stdout.close()
        child.wait()


def _frame(stream: IO[bytes]) -> Frame | None:
    """The next frame; None when the stream ends, also in the middle of one, or holds something else."""
    head = stream.read(HEADER.size)
    if len(head) < HEADER.size:
        return None
    (length,) = HEADER.unpack(head)
    if length > MAX_HEADER:
        return None
    try:
        header = json.loads(stream.read(length))
        size = int(header["size"])
    except (ValueError, TypeError, KeyError):
        return None
    if not 0 <= size <= MAX_BLOB:
        return None
    blob = stream.read(size)
    return Frame(header, blob) if len(blob) == size else None


def _died(child: subprocess.Popen[bytes]) -> Refused:
    code = child.wait()
    if code < 0 and -code in _KILLED_BY_TIME:
        return Refused("time_limit", "the file takes too long to look into")
    # Libraries in C that get no memory end the process rather than report it.
    return Refused("malformed", "the file breaks the programs that look into it")


def _code(name: object) -> RefusalCode:
    # The child opened a stranger's file: what it says is checked as well.
    return cast("RefusalCode", name) if name in get_args(RefusalCode) else "malformed"


def _plain(limits: Limits) -> dict[str, Any]:
    """Durations as seconds."""
    return {
        name: value.total_seconds() if hasattr(value, "total_seconds") else value
        for name, value in asdict(limits).items()
    }
