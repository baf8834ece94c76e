"""The look at a file before anything else opens it."""

from __future__ import annotations

import hashlib
from os import PathLike, fspath
from pathlib import Path

from onceward_apps.intake.reading import clamd as antivirus
from onceward_apps.intake.reading import confined, kinds
from onceward_apps.intake.reading.errors import Refused
from onceward_apps.intake.reading.model import Finding, Limits, Scanned


def check(
    path: str | PathLike[str],
    *,
    declared_type: str | None,
    limits: Limits | None = None,
    clamd: str | None = None,
) -> Scanned:
    """What the file is, when nothing speaks against opening it.

    `declared_type` is a content type, an extension or a file name; None when nothing was declared.  `clamd` is the
    address of a virus scanner, `unix:/path` or `host:port`.  Blocks while it waits for the child: use a thread.

    Raises Refused when the file is not taken, and Unavailable when the virus scanner gives no answer: a file that was
    to be scanned and was not is never let through.
    """
    limits = limits or Limits()
    place = Path(fspath(path)).resolve()
    size = place.stat().st_size
    if size == 0:
        raise Refused("empty", "the file is empty")
    if size > limits.bytes:
        raise Refused("too_large", f"the file has {size} bytes, more than {limits.bytes}")
    with place.open("rb") as file:
        kind = kinds.sniff(file.read(kinds.HEAD))
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if kind is None:
        raise Refused("unknown_type", "the file is no PDF, JPEG, PNG, TIFF or HEIC")
    if declared_type is not None and kinds.declared(declared_type) != kind:
        raise Refused("type_mismatch", f"the file is {kind.upper()}, which is not what its name or type says")
    if clamd:
        antivirus.scan(place, clamd)
    try:
        (frame,) = confined.run("look", limits, path=str(place), kind=kind)
        pages = int(frame.header["pages"])
        findings = tuple(Finding(str(code), str(detail)) for code, detail in frame.header["findings"])
    except (ValueError, TypeError, KeyError):
        # Of a child that opened a stranger's file, nothing is taken for granted.
        raise Refused("malformed", "the file breaks the programs that look into it") from None
    return Scanned(kind=kind, pages=pages, sha256=digest, findings=findings)
