"""What the tests of every page rely on: in the dark theme they look at colours only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import onceward

SHEETS = sorted(Path(onceward.__file__).parents[1].glob("onceward*/**/*.css"))
DARK = re.compile(r'prefers-color-scheme:\s*dark\)|\[data-theme="?dark"?\]')


def blocks(text: str) -> list[str]:
    """What stands between the braces after each mention of the dark theme."""
    found = []
    for mention in DARK.finditer(text):
        start = text.index("{", mention.end())
        depth, end = 1, start + 1
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        found.append(text[start + 1 : end - 1])
    return found


def declared(block: str) -> set[str]:
    return {found[1] for found in re.finditer(r"(?:^|[{;])\s*([\w-]+)\s*:(?=[^{}]*(?:;|\}|$))", block)}


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: f"{sheet.parents[1].name}-{sheet.stem}")
def test_a_dark_theme_sets_colours_by_name_and_nothing_else(sheet):
    text = re.sub(r"/\*.*?\*/", "", sheet.read_text(), flags=re.DOTALL)
    names = {name for block in blocks(text) for name in declared(block)}
    assert {name for name in names if not name.startswith("--")} <= {"color-scheme"}


def test_what_is_more_than_a_colour_is_noticed():
    (block,) = blocks(
        "@media (prefers-color-scheme: dark) { :root { --ink: #fff; } .help { display: none } }"
    )
    assert declared(block) == {"--ink", "display"}
