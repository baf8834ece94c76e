"""Whether a name that a document bears is that of the person whose documents it is put to."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

_TITLES: Final = frozenset(
    ("mr", "mrs", "ms", "miss", "herr", "frau", "dr", "prof", "med", "von", "van", "de", "der", "zu")
)
# What OCR takes for each other, and what is written in two ways: Müller and Mueller, rn and m, 0 and O.
_ALIKE: Final = (
    ("ae", "a"), ("oe", "o"), ("ue", "u"), ("rn", "m"), ("vv", "w"), ("0", "o"), ("1", "l"), ("i", "l"), ("j", "l"), ("5", "s"), ("8", "b"),
)  # fmt: skip


def differ(printed: Iterable[str], known: str) -> bool:
    """True when names are printed and none of them is the known one.

    Order, case, accents, titles, initials and further names make no difference; neither do letters that OCR takes for each other.
    A document without a name is nobody else's.
    """
    wanted = _parts(known)
    found = [parts for name in printed if (parts := _parts(name))]
    return bool(wanted and found) and not any(_same(parts, wanted) for parts in found)


def _same(one: list[str], other: list[str]) -> bool:
    """Each part of the shorter name is one of the longer."""
    short, rest = sorted((one, other), key=len)
    rest = list(rest)
    for part in short:
        match = next((place for place, candidate in enumerate(rest) if _fits(part, candidate)), None)
        if match is None:
            return False
        del rest[match]
    # Initials alone are anybody's.
    return any(len(part) > 1 for part in short)


def _fits(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return short == long or (len(short) == 1 and long.startswith(short))


def _parts(name: str) -> list[str]:
    plain = "".join(
        letter
        for letter in unicodedata.normalize("NFKD", name.casefold())
        if not unicodedata.combining(letter)
    )
    words = [word for word in re.split(r"[^\w]+|_", plain) if word and word not in _TITLES]
    for seen, meant in _ALIKE:
        words = [word.replace(seen, meant) if len(word) > 1 else word for word in words]
    # An initial is compared with the first letter of what stands for it.
    return ["l" if word in {"i", "j"} else word for word in words]
