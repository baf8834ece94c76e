"""Ids in texts and in JSON: those of jobs and deliveries lead to their pages."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PAGES = {"job": "/jobs/", "jobs": "/jobs/", "delivery": "/deliveries/", "deliveries": "/deliveries/"}
_ID = re.compile(_UUID)
# An id alone may be anybody's: the word before it says whose it is.
_NAMED = re.compile(rf"\b(job|delivery) ({_UUID})\b", re.IGNORECASE)


def page_of(name: str, value: str) -> str | None:
    """The page of what a member of an object names, as `{"job": "0190f7c1-…"}`; None when it is nothing of ours."""
    known = _PAGES.get(name.removesuffix("_id").removesuffix("_ids"))
    return known + value if known and _ID.fullmatch(value) else None


def linked(text: str) -> Markup:
    """A text in which `job <id>` and `delivery <id>` are links; everything else is escaped."""
    parts, end = [], 0
    for found in _NAMED.finditer(text):
        parts += [
            escape(text[end : found.start(2)]),
            Markup('<a href="{}">{}</a>').format(_PAGES[found[1].lower()] + found[2], found[2]),
        ]
        end = found.end()
    return Markup("").join([*parts, escape(text[end:])])
