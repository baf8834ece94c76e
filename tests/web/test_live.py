"""The stream that open pages follow."""

from __future__ import annotations

import contextlib

import httpx


class Stream:
    """An open page, as far as the server is concerned."""

    def __init__(self, visitor, stack: contextlib.ExitStack) -> None:
        self._answer = stack.enter_context(visitor.http.stream("GET", "/live"))
        assert self._answer.headers["content-type"].startswith("text/event-stream")
        self._lines = self._answer.iter_lines()

    def next(self) -> str:
        """The next event that is no sign of life."""
        for line in self._lines:
            if line.startswith("event: ") and line != "event: beat":
                return line.removeprefix("event: ")
        return "end"


def watching(db) -> int:
    return db.value(
        "select count(*) from pg_stat_activity where application_name = 'onceward web live' and datname = current_database()"
    )


def test_a_change_is_told_to_every_open_page_over_one_connection(site, db):
    with contextlib.ExitStack() as stack:
        streams = [Stream(site.signed_in(f"op{n}"), stack) for n in range(5)]
        assert [stream.next() for stream in streams] == ["open"] * 5
        assert [stream.next() for stream in streams] == ["changed"] * 5
        db.enqueue()
        assert [stream.next() for stream in streams] == ["changed"] * 5
        assert watching(db) == 1
        assert site.web.live.watchers == 5


def test_nobody_looks_at_the_database_while_no_page_is_open(site, db):
    assert watching(db) == 0
    with contextlib.ExitStack() as stack:
        stream = Stream(site.signed_in(), stack)
        assert stream.next() == "open"
        assert stream.next() == "changed"


def test_what_other_tenants_do_is_not_even_noticed(site, db):
    with contextlib.ExitStack() as stack:
        acme = Stream(site.signed_in("a", tenant="acme"), stack)
        everyone = Stream(site.signed_in("b"), stack)
        for stream in (acme, everyone):
            assert (stream.next(), stream.next()) == ("open", "changed")
        db.enqueue(tenant="globex")
        assert everyone.next() == "changed"
        looks = site.web.live.looks
        db.enqueue(tenant="acme")
        # The first that acme hears of comes after its own job, not after the other's.
        assert acme.next() == "changed"
        assert site.web.live.looks >= looks


def test_a_connection_that_breaks_is_told_and_replaced(site, db):
    with contextlib.ExitStack() as stack:
        stream = Stream(site.signed_in(), stack)
        assert (stream.next(), stream.next()) == ("open", "changed")
        db.run(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'onceward web live'"
        )
        assert stream.next() == "stale"
        assert stream.next() == "changed"


def test_the_server_stops_though_pages_are_open(serve):
    site = serve()
    with contextlib.ExitStack() as stack, contextlib.suppress(httpx.HTTPError):
        stream = Stream(site.signed_in(), stack)
        assert stream.next() == "open"
        site.web.live.end()
        while (event := stream.next()) != "end":
            assert event == "changed"
