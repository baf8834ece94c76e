"""ClamAV's daemon, asked over its socket: INSTREAM sends the content, so it needs no access to the file."""

from __future__ import annotations

import contextlib
import socket
import struct
from pathlib import Path
from typing import Final

from onceward_apps.intake.reading.errors import Refused, Rejected, Unavailable

_CHUNK: Final = 64 * 1024
_LENGTH: Final = struct.Struct(">I")
_ANSWER: Final = 4096
_TIMEOUT: Final = 60.0


def scan(path: Path, address: str) -> None:
    """Raises Refused when something was found, Unavailable when there is no clear answer."""
    try:
        answer = _ask(path, address)
    except TimeoutError:
        raise Unavailable("clamd", "did not answer in time") from None
    except OSError as error:
        raise Unavailable("clamd", f"could not be asked ({type(error).__name__})") from None
    if answer.endswith("FOUND"):
        # The name of the signature, without anything that could break a message.
        name = answer.removeprefix("stream:").removesuffix("FOUND").strip()
        name = "".join(letter for letter in name if letter.isalnum() or letter in "._-")[:80]
        raise Refused("malware", f"the virus scanner found {name or 'something'}")
    if answer != "stream: OK":
        raise Unavailable("clamd", "gave no clear answer")


def _ask(path: Path, address: str) -> str:
    with _connected(address) as link, path.open("rb") as file:
        # One who has enough of a large file answers and closes: the answer is still there to be read.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            link.sendall(b"zINSTREAM\0")
            while chunk := file.read(_CHUNK):
                link.sendall(_LENGTH.pack(len(chunk)) + chunk)
            link.sendall(_LENGTH.pack(0))
        answer = b""
        while len(answer) < _ANSWER and not answer.endswith(b"\0"):
            part = link.recv(_ANSWER)
            if not part:
                break
            answer += part
    return answer.rstrip(b"\0\n").decode("utf-8", "replace").strip()


def _connected(address: str) -> socket.socket:
    if address.startswith("unix:"):
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(_TIMEOUT)
        try:
            link.connect(address.removeprefix("unix:"))
        except OSError:
            link.close()
            raise
        return link
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise Rejected("clamd", "its address must be unix:/path or host:port")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT)
