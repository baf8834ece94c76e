"""Fifty at once on each kind of token, and a hundred scanners: one success each, and everybody is told the truth."""

from __future__ import annotations

import random
import threading
from collections import Counter

import pytest

from onceward_apps.kit import tokens
from onceward_apps.meals.domain import QrToken
from tests.apps.meals.conftest import MONDAY
from tests.apps.meals.load import redeem_all
from tests.apps.meals.place import KIOSK, Place, at_once
from tests.support import dice

pytestmark = [pytest.mark.slow, pytest.mark.race]


@pytest.fixture
def wide(onceward_kit, mail_sink, chat_sink):
    """As many connections as callers."""
    onceward_kit.clock.pin(MONDAY)
    with Place(onceward_kit, mail_sink, chat_sink, pool_size=50) as place:
        yield place


def codes(place) -> list[str]:
    rows = place.rows("select jti, customer_id, service_date, issued_at, expires_at from meals.qr_tokens")
    return [place.meals.keys.sign(QrToken(*row)) for row in rows]


def test_of_fifty_chats_one_gets_the_deep_link(wide):
    customer, token = wide.customer(), tokens.new()
    wide.rows("select meals.add_deep_link_token(%s, %s)", customer, token.digest)

    at_once([lambda n=n: wide.telegram(f"/start {token.text}", update=n, chat=1000 + n) for n in range(50)])
    wide.work()

    ((chat,),) = wide.rows("select chat_id from meals.telegram_links")
    said = Counter(text.split(".")[0].split("!")[0] for text in wide.chats())
    assert said == {"Welcome, Jane": 1, "This link has already been used": 49}
    (welcomed,) = [hit.json["chat_id"] for hit in wide.chat_sink.kept if "Welcome" in hit.json["text"]]
    assert welcomed == chat


def test_of_fifty_scans_one_redeems_and_the_others_are_told_when_and_where(wide):
    wide.customer()
    wide.cron("issue-qr")
    (code,) = codes(wide)

    answers = at_once([lambda: wide.redeem(code)] * 25 + [lambda: wide.redeem(code, kiosk=KIOSK + "-2")] * 25)

    (won,) = [answer.body for answer in answers if answer.status == 200]
    refused = {(answer.body["code"], answer.body["error"]) for answer in answers if answer.status == 400}
    assert refused == {("ALREADY_USED", f"This code was used at 9:00 AM at {won['kiosk']}")}
    assert wide.value("select count(*) from meals.redemptions") == 1


def test_a_hundred_scanners_and_a_hundred_tokens(wide):
    """The full form, with a thousand tokens, is `python -m tests.apps.meals.load`."""
    verdict = redeem_all(wide, tokens=100, scanners=100, seed=dice.seed())

    assert verdict["redeemed"] == verdict["tokens"] == 100
    assert (verdict["twice"], verdict["lies"]) == (0, 0)


def test_a_kiosk_that_lost_the_answer_asks_again_and_another_kiosk_does_not_get_it(wide):
    wide.customer()
    wide.cron("issue-qr")
    (code,) = codes(wide)
    mine = "018f0000-0000-7000-8000-000000000001"

    first, again = wide.redeem(code, scan=mine), wide.redeem(code, scan=mine)

    assert (first.status, again.status) == (200, 200)
    assert first.body == again.body
    assert wide.redeem(code, scan=mine, kiosk=KIOSK + "-2").body["code"] == "ALREADY_USED"
    assert wide.redeem(code, scan="018f0000-0000-7000-8000-000000000002").body["code"] == "ALREADY_USED"
    assert wide.redeem(code).body["code"] == "ALREADY_USED"
    assert wide.value("select count(*) from meals.redemptions") == 1


def test_fifty_copies_of_an_event_make_one_customer_and_one_welcome(wide):
    answers = at_once([wide.check_out] * 50)
    wide.work()

    assert Counter(answer.body["outcome"] for answer in answers) == {"applied": 1, "duplicate": 49}
    assert wide.value("select count(*) from meals.customers") == 1
    assert wide.value("select count(*) from meals.handle_update_tokens") == 1
    assert len(wide.mails()) == 1


def test_fifty_copies_of_an_update_get_one_answer(wide):
    customer, token = wide.customer(), tokens.new()
    wide.rows("select meals.add_deep_link_token(%s, %s)", customer, token.digest)

    answers = at_once([lambda: wide.telegram(f"/start {token.text}", update=5)] * 50)
    wide.work()

    assert {answer.status for answer in answers} == {200}
    assert [text.partition("!")[0] for text in wide.chats()] == ["Welcome, Jane"]


def test_two_customers_cannot_share_a_chat_and_the_token_stays_good(wide):
    jane, joe = wide.customer("Jane"), wide.customer("Joe")
    first, second = tokens.new(), tokens.new()
    wide.rows("select meals.add_deep_link_token(%s, %s)", jane, first.digest)
    wide.rows("select meals.add_deep_link_token(%s, %s)", joe, second.digest)
    link = "select outcome from meals.link_telegram(%s, %s)"

    assert wide.rows(link, first.digest, 1) == [("LINKED",)]
    assert wide.rows(link, first.digest, 1) == [("ALREADY_LINKED",)]
    assert wide.rows(link, second.digest, 1) == [("CHAT_TAKEN",)]
    assert wide.rows(link, second.digest, 2) == [("LINKED",)]
    # A new link moves the customer to a new chat.
    third = tokens.new()
    wide.rows("select meals.add_deep_link_token(%s, %s)", jane, third.digest)
    assert wide.rows(link, third.digest, 3) == [("LINKED",)]
    assert wide.rows("select chat_id from meals.telegram_links order by 1") == [(2,), (3,)]


def test_handles_are_updated_without_deadlocks(wide):
    """10.1: zero deadlocks, while links, corrections and checkouts of the same customers cross."""
    links = []
    for n in range(10):
        customer = wide.customer(f"N{n}")
        for _ in range(5):
            correction, deep = tokens.new(), tokens.new()
            wide.rows("select meals.add_handle_update_token(%s, %s)", customer, correction.digest)
            wide.rows("select meals.add_deep_link_token(%s, %s)", customer, deep.digest)
            links.append((n, correction.text, deep.text))
    random.shuffle(links)
    numbers = iter(range(10_000))
    guard = threading.Lock()

    def use(n: int, correction: str, deep: str) -> set[int]:
        with guard:
            update, event = next(numbers), next(numbers)
        return {
            wide.consume(correction, f"@x{update}").status,
            wide.telegram(f"/start {deep}", update=update, chat=1000 + update).status,
            wide.check_out(f"N{n}", event=f"evt_{event}").status,
        }

    answers = at_once([lambda link=link: use(*link) for link in links])

    assert set().union(*answers) == {200}
    wide.rows("select pg_stat_force_next_flush()")
    assert wide.value("select deadlocks from pg_stat_database where datname = current_database()") == 0
