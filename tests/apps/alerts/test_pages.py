"""The pages with the sample companies: looked at in a real browser, on a desk and on a phone, light and dark."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from psycopg.types.json import Jsonb

from onceward.web import secrets
from onceward_apps.alerts import sample
from tests.apps.alerts.place import Place
from tests.web.looks import shoot, violations

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PAGES = (
    "/alerting/", "/alerting/?status=active&severity=critical", "/alerting/rules", "/alerting/rules?state=off", "/alerting/rules/new",
    "/alerting/decisions", "/alerting/outcomes", "/alerting/runs",
    "/alerting/health", "/alerting/errors", "/alerting/errors?settled=1", "/alerting/scheduling",
)  # fmt: skip


@pytest.fixture
def companies(onceward_kit, tmp_path):
    """The sample companies, after a worker has been there."""
    onceward_kit.clock.unpin()
    with Place(onceward_kit, tmp_path) as place:
        place.conn.execute("delete from alerts.tenants")
        sample.fill(onceward_kit.dsn, place.functions)
        place.work()
        with place.served(workers=False) as calls:
            place.address = str(calls.http.base_url)
            yield place


@pytest.fixture
def window(chromium, companies):
    """Open a window, signed in; what a page complains about fails the test."""
    contexts, complaints = [], []

    def open_(name: str = "ana", role: str = "admin", tenant: str | None = None, **options):
        secret = secrets.new(secrets.LINK)
        companies.conn.execute("select onceward.add_operator(%s, %s, %s)", [name, role, tenant])
        companies.conn.execute("select onceward.create_link(%s, %s)", [name, secrets.digest(secret)])
        context = chromium.new_context(
            **{"viewport": {"width": 1280, "height": 800}, "base_url": companies.address, **options}
        )
        context.set_default_timeout(30_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda message: complaints.append(message.text) if "Content Security" in message.text else None,
        )
        page.goto(f"/sign-in?link={secret}")
        page.get_by_role("button", name=f"Sign in as {name}").click()
        page.wait_for_url(f"{companies.address}/")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []


def details(place) -> list[str]:
    """A page of an alert, of a card that waits and of one that was measured."""
    alerts = place.rows(
        "select id from alerts.alert_instances where status = 'active' order by triggered_at desc limit 1"
    )
    cards = place.rows(
        "select distinct on (status) id from alerts.decision_cards where status in ('OPEN', 'MEASURED') order by status"
    )
    rules = place.rows(
        "select distinct on (kind) id from alerts.alert_configs where kind in ('change', 'missing') order by kind, title"
    )
    (slug,) = place.rows("select t.slug from alerts.tenants as t join alerts.metric_definitions as d on d.tenant_id = t.id "
                         "where d.metric_code = 'stock'")[0]  # fmt: skip
    return [
        f"/alerting/rules/new?tenant={slug}&metric=stock",
        *(f"/alerting/rules/{one}" for (one,) in rules),
        *(f"/alerting/alerts/{one}" for (one,) in alerts),
        *(f"/alerting/decisions/{one}" for (one,) in cards),
    ]


def test_the_samples_show_every_state(companies):
    statuses = {status for (status,) in companies.rows("select distinct status from alerts.decision_cards")}
    assert statuses == {"OPEN", "IN_PROGRESS", "DECIDED", "MEASURED"}
    assert {status for (status,) in companies.rows("select distinct status from alerts.alert_instances")} == {
        "active", "acknowledged", "resolved",
    }  # fmt: skip
    assert {kind for (kind,) in companies.rows("select distinct kind from alerts.alert_configs join alerts.alert_instances "
                                               "on alert_config_id = alert_configs.id")} >= {"change", "threshold", "missing"}  # fmt: skip
    assert {verdict for (verdict,) in companies.rows("select distinct verdict from alerts.outcomes")} >= {
        "improved",
        "worsened",
    }
    assert companies.value("select count(*) from alerts.sync_errors where not is_resolved") == 2
    # A second start changes nothing.
    before = companies.value("select count(*) from alerts.metric_values")
    assert sample.fill(companies.kit.dsn, companies.functions) == 0
    assert companies.value("select count(*) from alerts.metric_values") == before


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_every_page_is_accessible_and_fits_its_window(window, companies, size):
    page = window(viewport={"width": size[0], "height": size[1]})
    trouble = []
    for path in (*PAGES, *details(companies)):
        page.emulate_media(color_scheme="light")
        answer = page.goto(path)
        if answer.status != 200:
            trouble.append(f"{path}: {answer.status}")
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            name = re.sub(r"\W+", "-", path).strip("-")[:32]
            shoot(page, f"{name}.{theme}.{size[0]}")
            trouble += [f"{path} {theme}: {text}" for text in violations(page, only_colours=theme == "dark")]
        if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            trouble.append(f"{path}: wider than its window")
        if size[0] > 760 and page.evaluate(
            "[...document.querySelectorAll('.table-wrap')].some(box => box.scrollWidth > box.clientWidth)"
        ):
            trouble.append(f"{path}: a table is wider than its card")
    assert trouble == []


def test_an_alert_is_taken_up_and_its_card_decided(window, companies):
    page = window("maria")
    page.goto("/alerting/?status=active")
    page.locator("main tbody a").first.click()
    expect(page.get_by_role("img", name="around the alert")).to_be_visible()
    page.get_by_role("button", name="Acknowledge").click()
    expect(page.get_by_text("The alert is acknowledged")).to_be_visible()
    page.locator("section", has=page.get_by_role("heading", name="Decision")).get_by_role("link").click()
    page.get_by_role("button", name="Take it").click()
    expect(page.get_by_text("The card is yours")).to_be_visible()
    page.locator("label.option").first.click()
    page.get_by_label("Note").fill("The supplier was late")
    page.get_by_role("button", name="Decide").click()
    expect(page.get_by_text("Decided; in a week the outcome is measured")).to_be_visible()
    expect(page.get_by_text("taken", exact=True)).to_be_visible()

    assert companies.rows(
        "select status, decided_by, note from alerts.decision_cards where decided_by = 'maria'"
    ) == [("DECIDED", "maria", "The supplier was late")]
    assert (
        companies.value("select acknowledged_by from alerts.alert_instances where acknowledged_by = 'maria'")
        == "maria"
    )


def test_a_run_that_gave_up_is_tried_again_and_settled_by_hand(window, companies):
    page = window()
    page.goto("/alerting/errors")
    expect(page.get_by_text("does not exist").first).to_be_visible()
    page.get_by_role("button", name="Run it again").first.click()
    expect(page.get_by_text("It runs again")).to_be_visible()
    companies.work()
    assert companies.value("select count(*) from alerts.sync_errors where not is_resolved") == 2
    page.goto("/alerting/errors")
    again = page.get_by_role("button", name="Run it again").first
    expect(again).to_be_visible()
    # In one go: the page renews its parts, and a button that was found may be replaced before it is measured.
    place = """() => {
        const again = [...document.querySelectorAll("button")].find((each) => each.textContent.trim() === "Run it again");
        return JSON.stringify(again.getBoundingClientRect());
    }"""
    before = page.evaluate(place)
    page.get_by_text("Settle it by hand").first.click()
    expect(page.get_by_label("How it was settled").first).to_be_visible()
    assert page.evaluate(place) == before, "the button went away from under the pointer"
    width = page.evaluate("""() => [...document.querySelectorAll("label")]
        .find((each) => each.textContent.includes("How it was settled")).control.getBoundingClientRect().width""")
    assert width > 400
    shoot(page, "alerting-settling")
    page.get_by_label("How it was settled").first.fill("It was a test")
    page.get_by_role("button", name="Settle it").first.click()
    expect(page.get_by_text("Settled", exact=True).last).to_be_visible()
    assert companies.rows("select status from alerts.sync_errors where is_resolved") == [("cancelled",)]
    page.goto("/alerting/errors?settled=1")
    expect(page.get_by_text("It was a test (by ana)")).to_be_visible()


def test_functions_are_called_paused_and_resumed(window, companies):
    page = window()
    page.goto("/alerting/scheduling")
    # The sample has taken the window; the next caller hears who.
    row = page.locator("section", has=page.get_by_role("heading", name="Kiwi Outfitters")).locator(
        "tr", has_text="auto-measure-outcomes"
    )
    row.get_by_role("button", name="Call").click()
    expect(page.get_by_text("has this window already: completed")).to_be_visible()

    # The worker has planned nothing here, so do it by hand: what the sample's web does at its start.
    companies.conn.execute(
        "select alerts.plan_schedules(%s)", [Jsonb([{"name": "detect-alerts", "spec": "*/5 * * * *"}])]
    )
    state = "select tenant, state from onceward.schedules where task = 'alerts.call' order by tenant"
    page.goto("/alerting/scheduling")
    row = page.locator("section", has=page.get_by_role("heading", name="Kiwi Outfitters")).locator(
        "tr", has_text="detect-alerts"
    )
    row.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("detect-alerts is paused")).to_be_visible()
    expect(row.get_by_text("paused")).to_be_visible()
    assert companies.rows(state) == [("kiwi", "paused"), ("northwind", "active")]
    # What a person has paused stays so when the schedules are planned again.
    companies.conn.execute(
        "select alerts.plan_schedules(%s)", [Jsonb([{"name": "detect-alerts", "spec": "*/5 * * * *"}])]
    )
    assert companies.rows(state) == [("kiwi", "paused"), ("northwind", "active")]
    row.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("detect-alerts goes on")).to_be_visible()
    expect(row.get_by_role("button", name="Pause")).to_be_visible()
    assert companies.rows(state) == [("kiwi", "active"), ("northwind", "active")]
    assert companies.rows("select kind, actor, tenant from onceward.audit_log where kind in ('schedule.paused', 'schedule.resumed') order by seq") == [
        ("schedule.paused", "ana", "kiwi"), ("schedule.resumed", "ana", "kiwi"),
    ]  # fmt: skip


def test_a_rule_is_tried_made_changed_and_switched_off(window, companies):
    page = window("maria")
    page.goto("/alerting/rules")
    page.get_by_role("link", name="New rule").click()
    page.locator("tr", has_text="Kiwi Outfitters").get_by_role("link", name="Stock cover").click()
    # A kind that compares nothing asks for no limit.
    page.get_by_text("Missing data").click()
    expect(page.get_by_label("Limit", exact=True)).to_be_hidden()
    page.get_by_text("Trend", exact=True).click()
    expect(page.get_by_label("Over how many periods")).to_be_visible()
    page.get_by_text("Threshold", exact=True).click()
    expect(page.get_by_label("Over how many periods")).to_be_hidden()
    page.get_by_label("Fires when it is").select_option("below")
    page.get_by_label("Limit", exact=True).fill("12")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("Give it a name")).to_be_visible()
    expect(page.get_by_text(re.compile("It would have raised .* for 1 of 2 objects"))).to_be_visible()
    expect(page.get_by_role("img", name="Stock cover of tents")).to_be_visible()
    shoot(page, "alerting-rule-preview")
    page.get_by_label("Name", exact=True).fill("Tents run out")
    page.get_by_role("button", name="Make the rule").click()
    expect(page.get_by_text("The rule is made")).to_be_visible()
    assert companies.rows("select kind, comparison, threshold, enabled, updated_by from alerts.alert_configs where title = 'Tents run out'") == [
        ("threshold", "below", 12.0, True, "maria")
    ]  # fmt: skip

    page.get_by_role("link", name="Tents run out").click()
    page.get_by_label("Limit", exact=True).fill("9.5")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("The rule is changed")).to_be_visible()
    page.locator("tr", has_text="Tents run out").get_by_role("button", name="Switch off").click()
    expect(page.get_by_text("The rule is off")).to_be_visible()
    expect(page.locator("tr", has_text="Tents run out").get_by_text("off", exact=True)).to_be_visible()
    assert companies.rows(
        "select threshold, enabled from alerts.alert_configs where title = 'Tents run out'"
    ) == [(9.5, False)]


def test_somebody_of_one_tenant_sees_only_that_one(window, companies):
    page = window("kea", "operator", "kiwi")
    for path in PAGES:
        page.goto(path)
        assert "Northwind" not in page.content(), path
    (alert,) = companies.rows("select a.id from alerts.alert_instances as a join alerts.tenants as t on t.id = a.tenant_id "
                              "where t.slug = 'northwind' limit 1")[0]  # fmt: skip
    assert page.goto(f"/alerting/alerts/{alert}").status == 404


def test_what_a_rule_would_find_is_read_whole_and_a_phone_shows_when_rules_fire(window, companies):
    page = window()
    rule = companies.value("select id from alerts.alert_configs where kind = 'change' order by title limit 1")
    page.goto(f"/alerting/rules/{rule}")
    said = page.locator(".rule-said")
    expect(said.first).to_be_visible()
    assert said.evaluate_all("cells => cells.every(cell => cell.scrollWidth <= cell.clientWidth)")
    # The form stays as it was typed when another object is drawn.
    page.get_by_label("Name").fill("Another name")
    chosen = page.locator("#f-drawn option").last.inner_text()
    page.get_by_label("Draw").select_option(chosen)
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("img", name=f"of {chosen}, last 30 days")).to_be_visible()
    expect(page.get_by_label("Name")).to_have_value("Another name")

    page.goto("/alerting/rules")
    expect(page.locator(".rule-narrow").first).to_be_hidden()
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.locator(".rule-narrow").first).to_be_visible()
