"""The child: limits itself, does one task, answers in frames on its standard output."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import resource
import signal
import sys
from typing import Any, Final

from onceward_apps.intake.reading.confined import HEADER
from onceward_apps.intake.reading.errors import Refused

_NEW_USER, _NEW_NET = 0x10000000, 0x40000000
_NO_NEW_PRIVILEGES: Final = 38


def main() -> None:
    order = json.load(sys.stdin.buffer)
    limits = order["limits"]
    confine(limits)
    try:
        # The libraries are loaded under the limits as well.
        from onceward_apps.intake.reading.inside import draw, look

        match order["task"]:
            case "look":
                send(look.into(order["path"], order["kind"], limits))
            case "draw":
                for width, height, png in draw.pages(order["path"], order["kind"], order["dpi"], limits):
                    send({"width": width, "height": height}, png)
            case task:
                raise ValueError(f"no task {task!r}")
    except Refused as refusal:
        send({"refused": refusal.code, "message": refusal.message})
    except MemoryError:
        send({"refused": "memory_limit", "message": "the file needs too much memory to be opened"})
    except RecursionError:
        send({"refused": "malformed", "message": "the file is nested too deeply"})
    else:
        send({"end": True})


def confine(limits: dict[str, Any]) -> None:
    """Give up what the work does not need, for good."""
    memory = int(limits["memory"])
    cpu = math.ceil(limits["cpu"])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Nothing is written anywhere but into the pipe, which does not count.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
    signal.setitimer(signal.ITIMER_REAL, limits["wall"])
    # Nobody reads any more: end.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        # An empty network of its own, where the kernel grants one without rights; elsewhere nothing here opens a socket.
        libc.unshare(_NEW_USER | _NEW_NET)


def send(header: dict[str, Any], blob: bytes = b"") -> None:
    text = json.dumps({**header, "size": len(blob)}).encode()
    out = sys.stdout.buffer
    out.write(HEADER.pack(len(text)))
    out.write(text)
    out.write(blob)
    out.flush()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # The destructors of a library that met a broken file are no longer of interest.
    os._exit(0)
