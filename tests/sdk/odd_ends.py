"""An application whose handlers end as nobody expects."""

from __future__ import annotations

from datetime import timedelta

from onceward import Cancel, Onceward, Snooze

MESSAGES = [5, b"bytes", {"code": 1}, ["a"], ""]


class WithMessage(Exception):
    """As many libraries have it: `message` is whatever the server sent."""

    def __init__(self, message):
        super().__init__("the text")
        self.message = message


class Textless(Exception):
    def __init__(self, where):
        super().__init__(where)
        self._where = where

    @property
    def message(self):
        if self._where == "property":
            raise RuntimeError("none")

    def __str__(self):
        raise RuntimeError("none")


class Empty(Exception):
    """Raised without a text."""


app = Onceward()


def end(kind, number):
    match kind:
        case "message":
            raise WithMessage(MESSAGES[number])
        case "property" | "str":
            raise Textless(kind)
        case "empty":
            raise Empty
        case "snooze":
            return Snooze("soon")
        case "reason":
            return Snooze(timedelta(0), 5)
        case "cancel":
            return Cancel(5)


@app.task(max_attempts=1)
async def ends(kind: str, number: int = 0) -> None:
    return end(kind, number)


@app.task(max_attempts=1)
def ends_in_a_thread(kind: str, number: int = 0) -> None:
    return end(kind, number)


@app.task(max_attempts=1, executor="process")
def ends_in_a_process(kind: str, number: int = 0) -> None:
    return end(kind, number)


@app.task
async def good() -> str:
    return "good"
