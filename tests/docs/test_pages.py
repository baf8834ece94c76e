"""What can be checked about the pages without running them; their blocks are run by tools.docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"),
                 ROOT / "src/onceward/sql/README.md"]
)  # fmt: skip
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
EMPTY_WORDS = re.compile(r"\b(simply|just|easy|easily|blazing|obviously)\b", re.IGNORECASE)
ADR_PARTS = ["Context", "Decision", "Consequences", "Rejected"]


def prose(path: Path) -> str:
    return FENCED.sub("", path.read_text(encoding="utf-8"))


def anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", NAMES)
def test_every_link_leads_somewhere(name):
    page = ROOT / name
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{name} links to {target}; there are {anchors(file)}"


@pytest.mark.parametrize("name", NAMES)
def test_no_page_says_that_something_is_easy(name):
    found = EMPTY_WORDS.findall(prose(ROOT / name))

    assert found == []


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("docs/decisions/0")])
def test_a_decision_has_its_four_parts(name):
    titles = re.findall(r"^## (.+)$", prose(ROOT / name), re.MULTILINE)

    assert titles == ADR_PARTS


def test_every_page_is_linked_from_the_index():
    index = ROOT / "docs/README.md"
    linked = {(index.parent / target.partition("#")[0]).resolve() for target in LINK.findall(prose(index))}
    pages = {
        path.resolve()
        for path in (ROOT / "docs").rglob("*.md")
        if path != index and "reference" not in path.parts
    }

    assert pages - linked == set()
