"""JSON at the edge: what PostgreSQL's jsonb cannot hold is refused in payloads and results, and made visible in errors.

jsonb has no NUL character, no lone surrogate, no NaN or Infinity, and no unbounded nesting.  Payloads and results that
contain them raise an error that names the place; nothing is changed silently.  Texts of errors must always be
recordable, so there the characters are written out as escapes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from onceward.errors import InvalidPayload, shown

MAX_DEPTH = 200

# Python reads integers of up to 4,300 digits.
MOST_DIGITS = 4300
_HUGE = re.compile(rf"\d{{{MOST_DIGITS + 1}}}")
_BAD = re.compile("[\x00\ud800-\udfff]")
# json.dumps would make one for each value.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def dumps(value: object, *, what: str = "payload") -> str:
    """JSON text that jsonb will take, or InvalidPayload naming the place and the trouble."""
    try:
        text = _encode(value)
    except RecursionError:
        raise _refused(what, f"is nested deeper than {MAX_DEPTH} levels") from None
    except (TypeError, ValueError):
        raise _explain(value, what) from None
    if has_huge_number(text):
        raise _refused(what, f"contains a number of more than {MOST_DIGITS} digits")
    if _may_be_bad(text):
        found = _find(value, what)
        if found is not None:
            raise found
    if text.count("[") + text.count("{") > MAX_DEPTH or not _keys_are_strings(value):
        found = _find(value, what)
        if found is not None:
            raise found
    return text


def dumps_texts(texts: Sequence[str | None], *, what: str) -> str:
    """The same for a list of texts, without a look at each."""
    text = _encode(texts)
    if _may_be_bad(text):
        found = _find(texts, what)
        if found is not None:
            raise found
    return text


def _may_be_bad(text: str) -> bool:
    # NUL is always written as an escape, and only other characters than ASCII's can be surrogates.
    return "\\u0000" in text or (not text.isascii() and _BAD.search(text) is not None)


def _keys_are_strings(value: object) -> bool:
    # json.dumps turns other keys into strings without a word.
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _keys_are_strings(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_keys_are_strings, value))
    return True


def has_huge_number(text: str) -> bool:
    # So many digits in a row stand at one of these places at least; to look at every digit takes longer than to write them.
    return any(
        text[place].isdecimal()
        and _HUGE.search(text, place - MOST_DIGITS, place + MOST_DIGITS + 1) is not None
        for place in range(MOST_DIGITS, len(text), MOST_DIGITS + 1)
    )


def printable(text: str, limit: int | None = None) -> str:
    """The text with NUL and lone surrogates written as escapes, cut to a limit."""
    if limit is not None and len(text) > limit:
        text = text[:limit]
    return _BAD.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


def _explain(value: object, what: str) -> InvalidPayload:
    return _find(value, what) or _refused(what, "is not JSON")


def _find(value: object, path: str) -> InvalidPayload | None:
    """Walk without recursion: the value may be deeper than Python's stack."""
    stack: list[tuple[object, str, int]] = [(value, path, 0)]
    while stack:
        item, place, depth = stack.pop()
        if depth > MAX_DEPTH:
            return _refused(path, f"is nested deeper than {MAX_DEPTH} levels")
        if isinstance(item, str):
            bad = _BAD.search(item)
            if bad:
                kind = "a NUL character" if bad.group() == "\x00" else "a lone surrogate"
                return _refused(place, f"contains {kind}, which PostgreSQL cannot store")
        elif isinstance(item, float):
            if not math.isfinite(item):
                return _refused(place, f"is {item}, which is not JSON")
        elif isinstance(item, Mapping):
            for key, child in item.items():
                if not isinstance(key, str):
                    return _refused(place, f"has the key {shown(repr(key))}; keys must be strings")
                if _BAD.search(key):
                    return _refused(place, f"has the key {shown(repr(key))}, which PostgreSQL cannot store")
                stack.append((child, f"{place}.{key}", depth + 1))
        elif isinstance(item, (list, tuple)):
            stack.extend((child, f"{place}[{i}]", depth + 1) for i, child in enumerate(item))
        elif isinstance(item, int):
            # Writing it out to count its digits is what Python refuses.
            if item.bit_length() > MOST_DIGITS * 3.33:
                return _refused(place, f"contains a number of more than {MOST_DIGITS} digits")
        elif item is not None:
            return _refused(place, f"is a {type(item).__name__}, which is not JSON")
    return None


def cannot_write(what: str, error: BaseException) -> InvalidPayload:
    """The error for a value that a serializer has given up on."""
    if "depth" in str(error) or isinstance(error, RecursionError):
        return _refused(what, f"is nested deeper than {MAX_DEPTH} levels")
    return _refused(what, f"cannot be written as JSON: {shown(str(error), 200)}")


def _refused(place: str, trouble: str) -> InvalidPayload:
    return InvalidPayload(
        f"{printable(place, 300)} {trouble}",
        detail="Nothing was written.",
        hint="Send strings, finite numbers, booleans, null, lists and objects; encode binary data as base64.",
    )


class Unreadable(str):
    """Stands for stored JSON that jsonb holds and Python cannot: numbers of thousands of digits, nesting without end."""

    __slots__ = ()


def loads(text: str | bytes) -> Any:
    """Never raises: one unreadable value must not stop the reading of all the others."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return Unreadable(f"<JSON of {len(text)} bytes that Python cannot read: {error}>")


def loads_to_show(text: str | bytes) -> Any:
    """The same for what is written out again, by the command line and the web: those go down by calling themselves.

    A row may be deeper than SQL accepts today: results are not looked at there, nor was once a payload.
    """
    value = loads(text)
    raw = text.encode() if isinstance(text, str) else text
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _is_deep(value):
        return Unreadable(f"<JSON of {len(raw)} bytes, nested deeper than {MAX_DEPTH} levels>")
    return value


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            item
            for holder in level
            if isinstance(holder, (dict, list))
            for item in (holder.values() if isinstance(holder, dict) else holder)
        ]
        if not level:
            return False
    return True
