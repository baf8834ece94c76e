"""What axe says about a page that is shown, pictures of it for those who ask for them, and keys pressed on it."""

from __future__ import annotations

import os
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

# Where pictures are kept; without a folder none are taken, which would be a fifth of what these tests take.
SHOTS = os.environ.get("ONCEWARD_TEST_SHOTS")
# A frame is drawn, and what moves to another colour or place has arrived.  What turns for ever is not waited for.
DRAWN = """async () => {
  await new Promise(requestAnimationFrame);
  const ending = document.getAnimations().filter((each) => each.effect.getComputedTiming().endTime !== Infinity);
  await Promise.allSettled(ending.map((each) => each.finished));
}"""
AXE = Axe().axe_script
# The rules that look at colours, of those that axe runs by itself.  A dark theme changes nothing else (see the test of the
# style sheets), so a page that has passed all rules in the light one needs only these, in half the time.
COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}


def shoot(page: Page, name: str, *, full_page: bool = True) -> None:
    """Wait until the page is drawn, and keep a picture of it if a folder is named."""
    page.evaluate(DRAWN)
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=full_page)


def press(page: Page, key: str) -> None:
    """Press a key on the page that is there; a key that is pressed before the scripts have come does nothing."""
    page.wait_for_load_state("load")
    page.keyboard.press(key)


def violations(page: Page, *, only_colours: bool = False) -> list[str]:
    """One line for each rule that is broken, with the first elements that break it."""
    options = {"resultTypes": ["violations"], **(COLOURS if only_colours else {})}
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    found = page.evaluate("(options) => axe.run(options).then((results) => results.violations)", options)
    return [f"{problem['id']}: {[node['html'][:160] for node in problem['nodes'][:3]]}" for problem in found]


CUT = """[...document.querySelectorAll(".table-wrap")].flatMap((box) => {
  const edge = box.getBoundingClientRect().right + 1;
  return [...box.querySelectorAll(".button")].filter((each) => each.getBoundingClientRect().right > edge);
}).map((each) => each.textContent.trim())"""


def cut_buttons(page: Page) -> list[str]:
    """Buttons of tables that only a finger's push to the left brings into sight."""
    found: list[str] = page.evaluate(CUT)
    return found
