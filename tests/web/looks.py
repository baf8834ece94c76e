"""What axe says about a page that is shown."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

# The rules that look at colours, of those that axe runs by itself.  A dark theme changes nothing else (see the test of the
# style sheets), so a page that has passed all rules in the light one needs only these, in half the time.
COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}


def violations(page: Page, *, only_colours: bool = False) -> list[str]:
    """One line for each rule that is broken, with the first elements that break it."""
    options = {"resultTypes": ["violations"], **(COLOURS if only_colours else {})}
    return [
        f"{problem['id']}: {[node['html'][:160] for node in problem['nodes'][:3]]}"
        for problem in Axe().run(page, options=options).response["violations"]
    ]


CUT = """[...document.querySelectorAll(".table-wrap")].flatMap((box) => {
  const edge = box.getBoundingClientRect().right + 1;
  return [...box.querySelectorAll(".button")].filter((each) => each.getBoundingClientRect().right > edge);
}).map((each) => each.textContent.trim())"""


def cut_buttons(page: Page) -> list[str]:
    """Buttons of tables that only a finger's push to the left brings into sight."""
    found: list[str] = page.evaluate(CUT)
    return found
