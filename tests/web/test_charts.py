"""What charts say to who points at a bar, or cannot see it."""

from __future__ import annotations

from onceward.web.charts import Point, bars

POINTS = [Point("Mon", 1200, 3), Point("Tue", 2)]


def test_bars_say_what_was_done_and_what_failed():
    drawn = bars(POINTS, "Jobs")

    assert "<title>Mon: 1,200 done, 3 failed</title>" in drawn
    assert "<title>Tue: 2 done</title>" in drawn
    assert "<th scope=col>Done</th><th scope=col>Failed</th>" in drawn


def test_bars_of_other_things_have_names_of_their_own():
    drawn = bars(POINTS, "Meals", ("redeemed", "not <i>redeemed"))

    assert "<title>Mon: 1,200 redeemed, 3 not &lt;i&gt;redeemed</title>" in drawn
    assert "<th scope=col>Redeemed</th><th scope=col>Not &lt;i&gt;redeemed</th>" in drawn
    assert "done" not in drawn.replace("bar-done", "")
