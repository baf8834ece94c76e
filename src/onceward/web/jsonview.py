"""JSON to look at: folded where it is large, escaped everywhere, and two versions side by side as a diff."""

from __future__ import annotations

import difflib
import json

from markupsafe import Markup

from onceward.model import Json
from onceward.web.references import page_of

# Values beyond these are folded; beyond the last, the rest is plain text.
OPEN_DEPTH, OPEN_ITEMS, LONG_TEXT, MOST_NODES = 3, 12, 400, 1500
# Differences of texts of more lines than this are not looked for: that takes the square of them.
MOST_LINES = 2000


def view(value: Json, *, references: bool = False) -> Markup:
    """With `references`, ids of jobs and deliveries lead to their pages; the name of the member says what they are."""
    text = pretty(value)
    if text.count("\n") > MOST_NODES:
        return Markup('<pre class="json json-plain" tabindex="0">{}</pre>').format(text[:200_000])
    return Markup('<div class="json">{}</div>').format(_node(value, 0, "" if references else None))


def pretty(value: Json) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


# `name`: of the member that the value belongs to; None when nothing is to be a link.
def _node(value: Json, depth: int, name: str | None) -> Markup:
    match value:
        case dict() if value:
            rows = [
                Markup('<div class="json-row"><span class="json-key">{}</span>{}</div>').format(
                    key, _node(item, depth + 1, None if name is None else key)
                )
                for key, item in value.items()
            ]
            return _fold(rows, "{", "}", depth)
        case list() if value:
            rows = [
                Markup('<div class="json-row">{}</div>').format(_node(item, depth + 1, name))
                for item in value
            ]
            return _fold(rows, "[", "]", depth)
        case str() if len(value) > LONG_TEXT:
            return Markup(
                '<details class="json-fold"><summary><span class="json-text">{}…</span> <span class="json-note">{} characters'
                '</span></summary><span class="json-text">{}</span></details>'
            ).format(value[:80], f"{len(value):,}", value)
        case str() if name and (page := page_of(name, value)):
            return Markup('<a href="{}">{}</a>').format(page, value)
        case str():
            return Markup('<span class="json-text">{}</span>').format(json.dumps(value, ensure_ascii=False))
        case bool() | None:
            return Markup('<span class="json-word">{}</span>').format(json.dumps(value))
        case int() | float():
            return Markup('<span class="json-number">{}</span>').format(json.dumps(value))
        case _:
            return Markup('<span class="json-word">{}</span>').format(pretty(value))


def _fold(rows: list[Markup], opening: str, closing: str, depth: int) -> Markup:
    inside = Markup("").join(rows)
    if depth == 0:
        return Markup('<div class="json-body json-top">{}</div>').format(inside)
    is_open = depth < OPEN_DEPTH and len(rows) <= OPEN_ITEMS
    return Markup(
        '<details class="json-fold"{}><summary><span class="json-note">{} {} {}</span></summary>'
        '<div class="json-body">{}</div></details>'
    ).format(Markup(" open") if is_open else "", opening, len(rows), closing, inside)


def diff(before: Json, after: Json) -> Markup:
    """Lines that went and lines that came, with some of what stayed around them."""
    old, new = pretty(before).splitlines(), pretty(after).splitlines()
    if len(old) + len(new) > MOST_LINES:
        return Markup('<p class="muted">Too large to compare line by line: {} and {} lines.</p>').format(
            len(old), len(new)
        )
    rows: list[Markup] = []
    for line in list(difflib.unified_diff(old, new, lineterm="", n=3))[2:]:
        kind, word = {"+": ("came", "added"), "-": ("went", "removed"), "@": ("skip", "")}.get(
            line[:1], ("same", "")
        )
        if line.startswith(("@@ -1,", "@@ -1 ")):
            continue  # nothing was left out above the first line
        text = "⋯" if kind == "skip" else line[1:]
        rows.append(
            Markup('<div class="diff-{}"><span class="diff-sign" aria-label="{}">{}</span>{}</div>').format(
                kind, word, {"came": "+", "went": "−"}.get(kind, " "), text
            )
            if word
            else Markup('<div class="diff-{}"><span class="diff-sign"> </span>{}</div>').format(kind, text)
        )
    if not rows:
        return Markup('<p class="muted">The same.</p>')
    return Markup('<div class="diff" tabindex="0" role="group" aria-label="Differences">{}</div>').format(
        Markup("").join(rows)
    )
