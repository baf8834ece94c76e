"""Values that break queues: a corpus, and random values built from it.  The same seed and number make the same case."""

from __future__ import annotations

import asyncio
import json
import math
import random
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from onceward import Cancel, Snooze

# What jsonsafe promises, told a second time: a check that asked jsonsafe itself would believe anything.
DEEPEST = 200
MOST_DIGITS = 4300
WHERE = ["argument", "sql", "result", "error"]

TEXTS = [
    "", "plain", "é", "e\u0301", "💥", "\U0010ffff", "\uffff", "\ufeff", "\u2028", "\x01\x1f\x7f\x80\x9f", "\x1b[31m",
    "\x00", "a\x00b", "\ud800", "\udfff", "\ud83d\ude00", "\\u0000", "\\ud800", "\\", '"', "'; drop schema onceward; --",
    "%s %(x)s {} $1", "</script>", "NaN", "null", "1e400", "\r\n\t", "x" * 5000, "\x00" * 5000, "💥" * 2500,
]  # fmt: skip
NUMBERS = [
    0, 1, -1, True, False, None, -0.0, 0.1, 1.5, 1e16, 1e22, 1e23, 1.7976931348623157e308, 5e-324, 2**53 + 1, 2**63,
    -(2**64), 10**40, 10 ** (MOST_DIGITS - 1), 10**MOST_DIGITS, -(10**6000), math.nan, math.inf, -math.inf,
]  # fmt: skip
# For results only: what JSON has no word for.
OBJECTS = [{1, 2}, b"bytes", object(), Decimal("1.5"), datetime(2026, 1, 1, tzinfo=UTC), 1j, len, ...]
# And ways to end a job that make no sense.
ENDS: list[object] = [
    Cancel("\x00\ud800"), Cancel(5), Snooze("soon"), Snooze(timedelta.max), Snooze(timedelta(days=-1)),  # type: ignore[arg-type]
]  # fmt: skip
DEPTHS = [DEEPEST - 2, DEEPEST, DEEPEST + 1, DEEPEST + 2, 900, 20_000]


def draw(seed: int, number: int) -> random.Random:
    return random.Random(f"{seed}/poison/{number}")


def where(number: int) -> str:
    """Into which part of a job the poison goes."""
    return WHERE[number % len(WHERE)]


def value(rng: random.Random, *, objects: bool = False) -> Any:
    """One in four from the edges of the corpus, the others put together at random."""
    kind = rng.randrange(16)
    if kind == 0:
        return nested(rng.choice(DEPTHS), rng)
    if kind == 1:
        return {_text(rng): _leaf(rng)}
    if kind == 2 and objects:
        return rng.choice([*OBJECTS, *ENDS, _circle(), {1: 2}, {None: 1}, {"inside": [rng.choice(OBJECTS)]}])
    if kind == 3:
        return rng.choice([*TEXTS, *NUMBERS])
    return _tree(rng, 4)


def nested(depth: int, rng: random.Random) -> Any:
    inner: Any = []
    for _ in range(depth - 1):
        inner = [inner] if rng.random() < 0.5 else {"k": inner}
    return inner


def _tree(rng: random.Random, depth: int) -> Any:
    if depth == 0 or rng.random() < 0.4:
        return _leaf(rng)
    if rng.random() < 0.5:
        return [_tree(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {_text(rng): _tree(rng, depth - 1) for _ in range(rng.randrange(4))}


def _leaf(rng: random.Random) -> Any:
    kind = rng.randrange(20)
    if kind == 0:
        return rng.choice(NUMBERS)
    if kind == 1:
        return rng.choice(TEXTS)
    if kind < 8:
        return rng.choice(
            [
                rng.randrange(-(2**70), 2**70),
                rng.uniform(-1e6, 1e6),
                rng.uniform(-1, 1) * 10 ** rng.randrange(-300, 300),
            ]
        )
    return _text(rng)


def _text(rng: random.Random) -> str:
    """Any characters; one text in thirty has one that PostgreSQL cannot store."""
    poisonous = rng.random() < 1 / 30
    characters = [_character(rng) for _ in range(rng.randrange(12))]
    if poisonous:
        characters.insert(rng.randrange(len(characters) + 1), rng.choice("\x00\ud800\udbff\udc00\udfff"))
    return "".join(characters)


def _character(rng: random.Random) -> str:
    plane = rng.choice([(1, 0x7F), (1, 0x7F), (0x80, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)])
    return chr(rng.randint(*plane))


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


# ---------------------------------------------------------------- errors


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class WithMessage(Exception):
    """Libraries put all kinds of things there."""

    def __init__(self, message: object) -> None:
        super().__init__("text")
        self.message = message


class Poisoned(Exception):
    """The error of most cases; its text is the poison."""


def error(rng: random.Random) -> BaseException:
    """What a handler raises."""
    if rng.random() < 0.6:
        return Poisoned(error_text(rng))
    loop = Poisoned("a")
    loop.__cause__ = Poisoned("b")
    loop.__cause__.__cause__ = loop
    noted = Poisoned("noted")
    noted.add_note("\x00\ud800")
    odd: list[BaseException] = [
        Unprintable(), WithMessage(5), WithMessage({"a": "\x00"}), WithMessage(b"\xff"), WithMessage("\x00"), WithMessage(Unprintable()),
        type("Bad 💥 \x01", (Exception,), {})("text"), ExceptionGroup("many\x00", [Poisoned("\ud800")] * 3), loop, noted,
        SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), StopIteration(5), RecursionError(),
        MemoryError(), Poisoned(), Poisoned(None), Poisoned(math.nan, {"a": object()}), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "\x00"),
    ]  # fmt: skip
    return rng.choice(odd)


def error_text(rng: random.Random) -> str:
    return rng.choice(TEXTS) if rng.random() < 0.3 else "".join(_text(rng) for _ in range(rng.randrange(8)))


# ---------------------------------------------------------------- the second opinion


def is_json(item: object, *, depth: int = 0) -> bool:
    """Whether PostgreSQL and Python can both hold it, by the rules of the documentation."""
    stack = [(item, depth)]
    while stack:
        found, level = stack.pop()
        if level > DEEPEST:
            return False
        if isinstance(found, dict):
            stack.extend((key, level) for key in found)
            if not all(isinstance(key, str) for key in found):
                return False
            stack.extend((child, level + 1) for child in found.values())
        elif isinstance(found, list):
            stack.extend((child, level + 1) for child in found)
        elif isinstance(found, str):
            if not is_storable(found):
                return False
        elif isinstance(found, float):
            if not math.isfinite(found):
                return False
        elif isinstance(found, int):
            if abs(found) >= 10**MOST_DIGITS:
                return False
        elif found is not None:
            return False
    return True


def is_storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in text


def same(sent: Any, found: Any) -> bool:
    """Equal as JSON: 1e22 and ten to the 22nd are one number, true and 1 are two values."""
    if isinstance(sent, bool) or isinstance(found, bool) or sent is None or found is None:
        return sent is found
    if isinstance(sent, float) or isinstance(found, float):
        return (
            isinstance(found, (int, float)) and isinstance(sent, (int, float)) and float(sent) == float(found)
        )
    if isinstance(sent, list) and isinstance(found, list):
        return len(sent) == len(found) and all(map(same, sent, found))
    if isinstance(sent, dict) and isinstance(found, dict):
        return sent.keys() == found.keys() and all(same(sent[key], found[key]) for key in sent)
    return type(sent) is type(found) and bool(sent == found)


def written_out(text: str, limit: int) -> str:
    """How the text of an error is kept: what cannot be stored as an escape, and cut."""
    return "".join(c if is_storable(c) else f"\\x{ord(c):02x}" for c in text)[:limit]


def as_sql(item: Any) -> str:
    """As a careless program in another language might send it."""
    digits = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(item)
    except RecursionError:
        return _flat(item)
    finally:
        sys.set_int_max_str_digits(digits)


def _flat(item: Any) -> str:
    """json.dumps of lists and objects with one child each, without recursion."""
    opened, closed = [], []
    while item:
        if isinstance(item, list):
            opened.append("[")
            closed.append("]")
            item = item[0]
        else:
            opened.append('{"k":')
            closed.append("}")
            item = item["k"]
    return "".join([*opened, "[]", *reversed(closed)])
