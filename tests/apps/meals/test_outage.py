"""Workers killed with SIGKILL, and a mail provider that is down for five hours: every customer gets exactly one email."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from onceward_apps.meals.system import DELIVERIES, LANE
from tests.apps.meals.conftest import MONDAY
from tests.apps.meals.mortal import resend
from tests.apps.meals.place import Place
from tests.deliveries.sinks import HttpSink

pytestmark = [pytest.mark.crash, pytest.mark.slow]
TARGET = "tests.apps.meals.mortal:app"


@pytest.fixture
def provider():
    with HttpSink() as sink:
        yield sink


@pytest.fixture
def place(onceward_kit, mail_sink, chat_sink, provider, monkeypatch):
    onceward_kit.clock.pin(MONDAY)
    monkeypatch.setenv("MEALS_TEST_RESEND", provider.url)
    with Place(onceward_kit, mail_sink, chat_sink, email=resend(provider.url)) as place:
        yield place


def arrived(provider) -> Counter[str]:
    return Counter(hit.json["to"][0] for hit in provider.kept)


def pass_time(place) -> bool:
    """Until every email that waits may be tried again; False when none waits."""
    waiting = place.value(
        "select max(next_try_at) - onceward.now() from meals.email_ledger where state <> 'sent'"
    )
    if waiting is None:
        return False
    place.clock.advance(waiting)
    return True


def test_five_hours_without_the_provider_and_workers_killed_in_between(place, provider):
    # Until it is healed, the provider refuses most, and lets some hang, with and without effect.
    for n in range(30):
        command = ("s503", "s503", "hang", "hang_after", "s429")[n % 5]
        place.customer(f"N{n} #{command}", email=f"n{n}@example.com")
    assert place.cron("issue-qr").body["issued"] == 30
    place.rows("update meals.subscriptions set status = 'paused' returning 1")
    over = place.clock.now() + timedelta(hours=5)
    kills = 0

    # A kill uses up a try: two of them and an outage of five hours leave one that is after it.
    for round_ in range(12):
        provider.healed = place.clock.now() >= over
        if round_ in {0, 1}:
            kills += len(place.kit.crash_worker(TARGET, lanes=[DELIVERIES], running=2).job_ids) > 0
        place.kit.drain(place.app, [DELIVERIES])
        if not pass_time(place):
            break

    assert kills == 2
    assert provider.healed
    assert dict(place.rows("select state, count(*) from meals.email_ledger group by state")) == {"sent": 30}
    counts = arrived(provider)
    assert (len(counts), set(counts.values())) == (30, {1})


def test_the_issuing_worker_killed_again_and_again_leaves_one_token_and_one_email_each(place, provider):
    place.customers(40)
    client = place.kit.client(place.app)
    both = "select (select count(*) from meals.qr_tokens), (select count(*) from meals.emails)"
    for _ in range(4):
        client.enqueue("meals.issue_qr", {}, tenant="meals")
        place.kit.crash_worker(TARGET, lanes=[LANE])
        ((tokens, emails),) = place.rows(both)
        assert tokens == emails

    client.enqueue("meals.issue_qr", {}, tenant="meals")
    place.work()
    # On a crowded machine, to connect may take too long, and the email goes with the next try.
    while pass_time(place):
        place.work()

    assert place.rows(both) == [(40, 40)]
    counts = arrived(provider)
    assert (len(counts), set(counts.values())) == (40, {1})
