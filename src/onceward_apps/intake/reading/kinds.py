"""The types of file that are read, by name and by their first bytes."""

from __future__ import annotations

from typing import Final

from onceward_apps.intake.reading.model import Kind

CONTENT_TYPES: Final[dict[Kind, str]] = {
    "pdf": "application/pdf",
    "jpeg": "image/jpeg",
    "png": "image/png",
    "tiff": "image/tiff",
    "heic": "image/heic",
}
EXTENSIONS: Final[dict[Kind, tuple[str, ...]]] = {
    "pdf": ("pdf",),
    "jpeg": ("jpg", "jpeg", "jpe", "jfif"),
    "png": ("png",),
    "tiff": ("tif", "tiff"),
    "heic": ("heic", "heif"),
}
_OTHER_NAMES: Final[dict[str, Kind]] = {
    "image/jpg": "jpeg",
    "image/pjpeg": "jpeg",
    "image/heif": "heic",
    "application/x-pdf": "pdf",
}
# Of the ISO container: HEVC pictures, single and in sequences, and the general brand beside them.
_HEIF_BRANDS: Final = frozenset((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"))
HEAD: Final = 32


def declared(name: str) -> Kind | None:
    """The kind that a content type (`image/png; q=1`), an extension (`.PNG`) or a file name (`scan.png`) declares."""
    wanted = name.split(";", maxsplit=1)[0].strip().lower()
    for kind, content_type in CONTENT_TYPES.items():
        if wanted == content_type:
            return kind
    if wanted in _OTHER_NAMES:
        return _OTHER_NAMES[wanted]
    if "/" in wanted:
        return None
    extension = wanted.rpartition(".")[2]
    return next((kind for kind, known in EXTENSIONS.items() if extension in known), None)


def sniff(head: bytes) -> Kind | None:
    """The kind that the first `HEAD` bytes of a file say it is."""
    if head.startswith(b"%PDF-"):
        return "pdf"
    if head.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if head.startswith((b"II*\0", b"MM\0*")):
        return "tiff"
    if head[4:8] == b"ftyp" and (head[8:12] in _HEIF_BRANDS or _HEIF_BRANDS & {head[16:20], head[20:24]}):
        return "heic"
    return None
