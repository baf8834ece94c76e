"""Two or many real connections against each other, waiting for PostgreSQL to say who waits for whom."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tests.support.engine import Engine

PATIENCE_SECONDS = 60


class Rival:
    """A call on a connection of its own, in a thread of its own."""

    def __init__(self, db: Engine, call: Callable[[Engine], Any]) -> None:
        self._db = db
        self._conn = db.connect()
        self._done: Future[Any] = Future()
        threading.Thread(target=self._run, args=(call,), daemon=True).start()

    def _run(self, call: Callable[[Engine], Any]) -> None:
        try:
            self._done.set_result(call(self._db.on(self._conn)))
        except BaseException as error:
            self._done.set_exception(error)

    def blocked(self) -> Rival:
        """Wait until PostgreSQL says that the call waits for a lock."""
        waiting = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
        while not self._db.value(waiting, self._conn.info.backend_pid):
            assert not self._done.done(), f"did not wait: {self._done.exception() or self._done.result()}"
        return self

    def answer(self) -> Any:
        return self._done.result(PATIENCE_SECONDS)

    @property
    def sqlstate(self) -> str | None:
        """How the call was refused, None when it was not."""
        return getattr(self._done.exception(PATIENCE_SECONDS), "sqlstate", None)


@contextlib.contextmanager
def transaction(db: Engine) -> Iterator[Engine]:
    """Calls in one open transaction on a connection of its own; commit or roll back with `.conn`."""
    conn = db.connect(autocommit=False)
    yield db.on(conn)
    conn.rollback()


def together(db: Engine, calls: list[Callable[[Engine], Any]]) -> list[Any]:
    """Run each call on a connection and thread of its own, all released at one moment; answers or exceptions."""
    engines = [db.on(db.connect()) for _ in calls]
    start = threading.Barrier(len(calls))

    def run(call: Callable[[Engine], Any], engine: Engine) -> Any:
        start.wait(PATIENCE_SECONDS)
        try:
            return call(engine)
        except Exception as error:  # handed to the test, which looks at it
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls, engines))


def deadlocks(db: Engine) -> int:
    db.run("select pg_stat_force_next_flush()")
    return db.value("select deadlocks from pg_stat_database where datname = current_database()")
