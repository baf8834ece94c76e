"""The page of sources, in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.apps.alerts.sync.conftest import FUNCTION
from tests.apps.alerts.test_pages import companies, window
from tests.web.looks import shoot, violations

pytestmark = [pytest.mark.browser, pytest.mark.slow]
__all__ = ["companies", "window"]


def test_sources_are_seen_paused_and_their_columns_accepted(window, companies):
    page = window()
    page.goto("/alerting/sources")
    row = page.get_by_role("table").first.locator("tr", has_text="Northwind Coffee")
    expect(row).to_contain_text(FUNCTION)
    expect(page.get_by_role("table").last).to_contain_text("Kiwi Outfitters")

    row.get_by_role("button", name="Accept columns").click()
    expect(page.get_by_text("The source takes the columns that it has now")).to_be_visible()
    row.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("The source is not read for now")).to_be_visible()
    expect(row).to_contain_text("paused")

    state = "select s.enabled, c.columns = '{}' from alerts.sync_sources as s join alerts.sync_cursors as c on c.source_id = s.id join alerts.tenants as t on t.id = s.tenant_id where t.slug = %s"
    assert companies.rows(state, "northwind") == [(False, True)]
    assert companies.rows(state, "kiwi") == [(True, False)]
    row.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("The source is read again")).to_be_visible()


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_the_page_is_accessible_and_fits_its_window(window, companies, size):
    page = window(viewport={"width": size[0], "height": size[1]})
    page.goto("/alerting/sources")
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        shoot(page, f"alerting-sources.{theme}.{size[0]}")
        assert violations(page) == []
    assert not page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    # Nor does a table have to be moved sideways.
    assert page.evaluate(
        "[...document.querySelectorAll('.table-wrap')].every(one => one.scrollWidth <= one.clientWidth)"
    )


def test_a_tenant_neither_sees_nor_changes_anothers_source(window, companies):
    (theirs,) = companies.rows(
        "select s.id from alerts.sync_sources as s join alerts.tenants as t on t.id = s.tenant_id where t.slug = 'northwind'"
    )[0]
    page = window("kea", "operator", "kiwi")
    page.goto("/alerting/sources")
    expect(page.get_by_role("row", name="shop export")).to_have_count(1)
    assert "Northwind" not in page.content()

    for action in ("pause", "accept"):
        status = page.evaluate(
            """async ([address, action]) => (await fetch(address, {method: "POST", body: new URLSearchParams({
                 action, csrf: document.querySelector("input[name=csrf]").value})})).status""",
            [f"/alerting/sources/{theirs}", action],
        )
        assert status in {403, 404}
    assert companies.rows("select enabled from alerts.sync_sources where id = %s", theirs) == [(True,)]
