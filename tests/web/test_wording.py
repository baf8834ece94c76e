"""What pages say to whom, how they say when, and the durations that people write."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from onceward.errors import InvalidArgument
from onceward.web import reading
from tests.support.watch import Watch


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", "", text))


@pytest.mark.parametrize("name", ["ana", "you"])
def test_who_looks_after_a_dead_letter_is_spoken_to(site, db, name):
    job = db.dead_letter("charge", {}, "no")
    one, other = site.signed_in(name), site.signed_in("ben")
    one.post(f"/jobs/{job}/assign", to=name)

    # What was said, and what stands there.
    text = plain(one.get(f"/jobs/{job}"))
    assert text.count("You look after it") == 2
    assert "looks after it" not in text.replace("Who looks after it", "")
    assert f"{name} looks after it" in plain(other.get(f"/jobs/{job}"))
    other.post(f"/jobs/{job}/assign", to="carl")
    assert plain(other.get(f"/jobs/{job}")).count("carl looks after it") == 2


@pytest.mark.parametrize("name", ["ana", "you"])
def test_who_looks_after_an_alert_is_spoken_to(site, db, name):
    watch = Watch(db)
    watch.probe()
    watch.look({"key": "disk"})
    (alert,) = watch.alerts()
    one, other = site.signed_in(name), site.signed_in("ben")
    one.post(f"/alerts/{alert.id}/acknowledge", note="on it")

    assert "You look after it: on it." in plain(one.get(f"/alerts/{alert.id}"))
    assert f"{name} looks after it: on it." in plain(other.get(f"/alerts/{alert.id}"))


def test_the_lease_of_a_worker_ends_in_a_while_or_has_ended(ana, db):
    db.worker("w", lease="10 s")
    assert "10 s, ends in 10 s" in plain(ana.get("/workers"))

    db.clock.advance("30 s")
    assert "10 s, ended 20 s ago" in plain(ana.get("/workers"))


def test_a_step_goes_on_or_gives_up_in_a_while(ana, db):
    claim = db.running()
    db.sleep(claim, "3 days", step="cool down")
    text = plain(ana.get(f"/jobs/{claim.job_id}"))

    assert "goes on in 3 days" in text
    assert "until in" not in text


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [
        ("1 second", 1), ("30 seconds", 30), ("1 minute", 60), ("10 Minutes", 600), ("1 hour", 3600), ("2hours", 7200),
        ("1 hour 30 minutes", 5400), ("1 day", 86400), ("2 weeks", 1209600), ("1h30m", 5400), ("5 min", 300), ("500ms", 0.5),
    ],
)  # fmt: skip
def test_durations_are_written_with_letters_or_words(typed, seconds):
    assert reading.duration("duration", typed) == timedelta(seconds=seconds)


@pytest.mark.parametrize("typed", ["", "a minute", "1 month", "1 minutely", "minutes", "1 hourss", "5"])
def test_what_is_no_duration_is_refused(typed):
    with pytest.raises(InvalidArgument, match="duration must be a duration"):
        reading.duration("duration", typed)


def test_a_silence_lasts_for_one_hour_in_words(ana, db):
    watch = Watch(db)
    watch.probe()
    watch.look({"key": "disk"})
    (alert,) = watch.alerts()
    ana.post(f"/alerts/{alert.id}/silence", duration="1 hour", reason="works")

    assert watch.alerts()[0].silenced_until == db.now() + timedelta(hours=1)
