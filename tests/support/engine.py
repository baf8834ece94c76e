"""The SQL contract, one method per function, for tests that speak nothing but SQL."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from datetime import datetime
from typing import Any, LiteralString, Self
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

from onceward.testing import Database
from onceward.testing.clock import Clock

TABLES = (
    "job_private",
    "archive_private",
    "attempt_private",
    "key_private",
    "lane_private",
    "task_private",
    "worker_private",
    "payload_edit_private",
    "concurrency_private",
    "step_private",
    "event_private",
    "dependency_private",
    "recheck_private",
    "schedule_private",
    "tick_private",
    "run_private",
    "delivery_private",
    "delivery_content_private",
    "share_private",
    "limit_private",
    "bucket_private",
    "hold_private",
    "bound_private",
    "pressure_private",
    "audit_private",
    "seal_private",
    "seal_leaf_private",
    "monitor_private",
    "threshold_private",
    "monitor_run_private",
    "alert_private",
    "silence_private",
    "channel_private",
    "channel_target_private",
    "retention_private",
    "removal_private",
    "legal_hold_private",
    "operator_private",
    "link_private",
    "session_private",
    "token_private",
)

# What contents() makes of a table without rows.
EMPTY = "0" + hashlib.md5(b"").hexdigest()


class EngineClock(Clock):
    """The clock of an engine, on a connection that is kept: every test pins it, and many move it."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.dsn)
        self._engine = engine
        self._conn: Any = None
        self._alone = threading.Lock()

    def _instant(self, statement: LiteralString, **parameters: object) -> datetime:
        with self._alone:
            if self._conn is None:
                self._conn = self._engine.connect()
            row = self._conn.execute(statement, parameters).fetchone()
        if row is None:
            raise LookupError(statement)
        return row[0]


class Engine:
    """One database of a test.  Every call is a transaction of its own, unless made on another connection."""

    def __init__(self, database: Database, first: psycopg.Connection[Any] | None = None) -> None:
        """`first`: the connection of an engine that is no longer used."""
        self.dsn = database.dsn
        self._first = contextlib.ExitStack()
        self._stack = self._first.enter_context(contextlib.ExitStack())
        self._workers: dict[str, UUID] = {}
        opened = self._opened(autocommit=True) if first is None else contextlib.closing(first)
        self.first = self.conn = self._first.enter_context(opened)
        self.clock = EngineClock(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self._first.close()

    def close_others(self) -> None:
        """Every connection but the first one."""
        self._stack.close()

    def leave_first(self) -> psycopg.Connection[Any]:
        """The first connection, which stays open."""
        self._first.pop_all()
        return self.first

    # ------------------------------------------------------------ connections

    def connect(self, *, autocommit: bool = True, role: str | None = None, tenant: str | None = None):
        """Another connection, closed at the end of the test."""
        conn = self._stack.enter_context(self._opened(autocommit=autocommit))
        if tenant is not None:
            conn.execute("select set_config('onceward.tenant', %s, false)", [tenant])
        if role is not None:
            conn.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
        if not autocommit:
            conn.commit()
        return conn

    def _opened(self, *, autocommit: bool):
        return contextlib.closing(
            psycopg.connect(self.dsn, autocommit=autocommit, row_factory=namedtuple_row)
        )

    def on(self, conn) -> Engine:
        """The same calls on another connection."""
        other = object.__new__(Engine)
        other.__dict__.update(self.__dict__, conn=conn)
        return other

    def run(self, statement: str, *params: Any) -> list[Any]:
        cursor = self.conn.execute(statement, params or None)
        return cursor.fetchall() if cursor.description else []

    def one(self, statement: str, *params: Any) -> Any:
        (row,) = self.run(statement, *params)
        return row

    def value(self, statement: str, *params: Any) -> Any:
        return self.one(statement, *params)[0]

    def call(self, function: str, **arguments: Any) -> list[Any]:
        """`select * from onceward.function(p_name => value, ...)`."""
        named = sql.SQL(", ").join(
            sql.SQL("{} => {}").format(sql.Identifier(f"p_{name}"), sql.Placeholder(name))
            for name in arguments
        )
        query = sql.SQL("select * from onceward.{}({})").format(sql.Identifier(function), named)
        return self.conn.execute(query, {name: _adapt(value) for name, value in arguments.items()}).fetchall()

    def answer(self, function: str, **arguments: Any) -> Any:
        """The only value of the only row."""
        ((value,),) = self.call(function, **arguments)
        return value

    # ------------------------------------------------------------ producing

    def enqueue(self, task: str = "ocr", payload: Any = None, **options: Any) -> UUID:
        return self.enqueued(task, payload, **options).job_id

    def enqueued(self, task: str = "ocr", payload: Any = None, **options: Any) -> Any:
        (row,) = self.call("enqueue", task=task, payload={} if payload is None else payload, **options)
        return row

    def enqueue_many(self, task: str = "ocr", payloads: Any = (), **options: Any) -> list[Any]:
        return self.call("enqueue_many", task=task, payloads=[Jsonb(p) for p in payloads], **options)

    # ------------------------------------------------------------ working

    def worker(self, name: str = "a", **options: Any) -> UUID:
        """The identity of a worker of this name, registered when it is first asked for."""
        if name not in self._workers:
            # Long enough for tests that move the clock without meaning the lease.
            self._workers[name] = self.answer("register_worker", name=name, **{"lease": "1 day", **options})
        return self._workers[name]

    def claims(self, most: int, *, worker: str = "a", lanes: Any = ("default",)) -> list[Any]:
        return self.call("claim", worker_id=self.worker(worker), lanes=list(lanes), max=most)

    def claim(self, *, worker: str = "a", lanes: Any = ("default",)) -> Any:
        """The one job that is there to be claimed."""
        (claim,) = self.claims(1, worker=worker, lanes=lanes)
        return claim

    def complete(self, claim: Any, result: Any = None) -> None:
        self.call(
            "complete",
            job_id=claim.job_id,
            epoch=claim.epoch,
            result=None if result is None else Jsonb(result),
        )

    def fail(self, claim: Any, message: str = "it broke", **options: Any) -> Any:
        options = {"error_type": "ValueError", **options}
        (row,) = self.call("fail", job_id=claim.job_id, epoch=claim.epoch, message=message, **options)
        return row

    def snooze(self, claim: Any, delay: Any = "10 min", **options: Any) -> Any:
        (row,) = self.call("snooze", job_id=claim.job_id, epoch=claim.epoch, delay=delay, **options)
        return row

    def progress(self, claim: Any, progress: Any) -> None:
        self.call("progress", job_id=claim.job_id, epoch=claim.epoch, progress=Jsonb(progress))

    def exchange(
        self, done: Any = (), *, worker: str = "a", results: Any = None, **options: Any
    ) -> list[Any]:
        return self.call(
            "exchange",
            worker_id=self.worker(worker),
            job_ids=[claim.job_id for claim in done],
            epochs=[claim.epoch for claim in done],
            results=None if results is None else [None if r is None else Jsonb(r) for r in results],
            **options,
        )

    def heartbeat(self, worker: str = "a") -> Any:
        (row,) = self.call("heartbeat", worker_id=self.worker(worker))
        return row

    def rescue(self, **options: Any) -> int:
        return self.answer("rescue", **options)

    def promote(self, **options: Any) -> Any:
        (row,) = self.call("promote", **options)
        return row

    # ------------------------------------------------------------ steps, events, workflows

    def of_job(self, function: str, claim: Any, **arguments: Any) -> list[Any]:
        """A function that names the job and the epoch."""
        return self.call(function, job_id=claim.job_id, epoch=claim.epoch, **arguments)

    def finish_step(self, claim: Any, name: str = "pay", result: Any = None, **options: Any) -> None:
        self.of_job(
            "finish_step", claim, name=name, result=None if result is None else Jsonb(result), **options
        )

    def fail_step(self, claim: Any, name: str = "pay", message: str = "it broke", **options: Any) -> None:
        self.of_job("fail_step", claim, name=name, error_type="ValueError", message=message, **options)

    def steps(self, job: UUID) -> dict[str, Any]:
        return {
            row.name: row
            for row in self.run("select * from onceward.steps where job_id = %s order by seq, name", job)
        }

    def sleep(self, claim: Any, delay: Any = "10 min", *, step: str = "nap", **options: Any) -> Any:
        ((until,),) = self.of_job("sleep", claim, step=step, delay=delay, **options)
        return until

    def wait_event(
        self, claim: Any, event: str = "paid", *, timeout: Any = None, step: str = "wait", **options: Any
    ) -> Any:
        ((until,),) = self.of_job("wait_event", claim, step=step, event=event, timeout=timeout, **options)
        return until

    def receive_event(self, claim: Any, event: str = "paid", *, step: str = "wait", **options: Any) -> Any:
        ((state, payload),) = self.of_job("receive_event", claim, step=step, event=event, **options)
        return state, payload

    def emit(self, name: str = "paid", payload: Any = None, **options: Any) -> bool:
        return self.answer(
            "emit_event", name=name, payload=None if payload is None else Jsonb(payload), **options
        )

    def spawn(
        self, claim: Any, payloads: Any = ({},), *, step: str = "fan out", task: str = "child", **options: Any
    ) -> list[UUID]:
        ((ids,),) = self.of_job(
            "spawn", claim, step=step, task=task, payloads=[Jsonb(p) for p in payloads], **options
        )
        return ids

    def join(self, claim: Any, jobs: Any, *, step: str = "fan in", **options: Any) -> None:
        self.of_job("join_jobs", claim, step=step, job_ids=list(jobs), **options)

    def workflow(self, *nodes: dict[str, Any], **options: Any) -> dict[str, UUID]:
        """Nodes by name; each has the task "ocr" unless it says otherwise."""
        rows = self.call(
            "enqueue_workflow", nodes=Jsonb([{"task": "ocr", **node} for node in nodes]), **options
        )
        return {row.node: row.job_id for row in rows}

    def settle(self, *, most: int = 1000) -> None:
        """Promote and complete until nothing is ready."""
        self.promote()
        while claims := self.claims(most):
            self.exchange(claims)
            while self.promote().more:
                pass

    # ------------------------------------------------------------ operating

    def cancel(self, job: UUID, reason: str | None = None, *, epoch: int | None = None) -> str:
        return self.answer("cancel", job_id=job, reason=reason, epoch=epoch)

    def requeue(self, job: UUID, **options: Any) -> str:
        return self.answer("requeue", job_id=job, **options)

    def resolve(self, job: UUID, note: str | None = "paid by hand", **options: Any) -> None:
        self.call("resolve", job_id=job, note=note, **options)

    # ------------------------------------------------------------ shortcuts to a situation

    def running(self, task: str = "ocr", payload: Any = None, *, worker: str = "a", **options: Any) -> Any:
        """The claim of a new job."""
        job = self.enqueue(task, payload, **options)
        claim = self.claim(worker=worker, lanes=[options.get("lane", "default")])
        assert claim.job_id == job
        return claim

    def done(self, task: str = "ocr", payload: Any = None, result: Any = None, **options: Any) -> UUID:
        claim = self.running(task, payload, **options)
        self.complete(claim, result)
        return claim.job_id

    def dead_letter(
        self, task: str = "ocr", payload: Any = None, message: str = "it broke", **options: Any
    ) -> UUID:
        claim = self.running(task, payload, **options)
        assert self.fail(claim, message, permanent=True).state == "dead_letter"
        return claim.job_id

    def lose(self, worker: str = "a") -> None:
        """Let the lease of a worker run out and rescue what it held."""
        lease = self.value("select lease from onceward.worker_private where id = %s", self.worker(worker))
        self.clock.advance(lease)
        self.rescue()

    # ------------------------------------------------------------ reading

    def job(self, job: UUID) -> Any:
        return self.one("select * from onceward.jobs where id = %s", job)

    def state(self, job: UUID) -> str:
        return self.job(job).state

    def states(self) -> dict[UUID, str]:
        return dict(self.run("select id, state from onceward.jobs"))

    def attempts(self, job: UUID) -> list[Any]:
        return self.run("select * from onceward.attempts where job_id = %s order by epoch", job)

    def outcomes(self, job: UUID) -> list[str]:
        return [attempt.outcome for attempt in self.attempts(job)]

    def now(self) -> Any:
        return self.value("select onceward.now()")

    def contents(self) -> dict[str, str]:
        """A digest of every table and partition that has rows, to show that nothing was written.

        What has no page has no row: leaving those out, most partitions among them, spares a fresh connection most of
        the catalogue.
        """
        there = self.run(
            "select c.relname from pg_class as c left join pg_inherits as i on i.inhrelid = c.oid"
            " where c.relnamespace = 'onceward'::regnamespace and c.relkind = 'r' and pg_relation_size(c.oid) > 0"
            "   and coalesce((select p.relname from pg_class as p where p.oid = i.inhparent), c.relname) = any(%s)",
            list(TABLES),
        )
        digests = (
            f"select '{name}' as name, count(*) || md5(coalesce(string_agg(t::text, ',' order by t::text), '')) as digest from onceward.{name} as t"
            for (name,) in there
        )
        # The template brings some rows along, so there is always something to read.
        return {name: digest for name, digest in self.run(" union all ".join(digests)) if digest != EMPTY}

    @contextlib.contextmanager
    def refused(self, sqlstate: str, *fragments: str):
        """The block raises this SQLSTATE, its texts contain these fragments, and nothing is written."""
        before = self.contents()
        with refused(sqlstate, *fragments):
            yield
        assert self.contents() == before


@contextlib.contextmanager
def refused(sqlstate: str, *fragments: str):
    try:
        yield
    except psycopg.Error as error:
        diag = error.diag
        text = "\n".join(
            part for part in (diag.message_primary, diag.message_detail, diag.message_hint) if part
        )
        assert error.sqlstate == sqlstate, f"expected {sqlstate}, got {error.sqlstate}: {text}"
        for fragment in fragments:
            assert fragment in text, f"{fragment!r} is not in:\n{text}"
    else:
        raise AssertionError(f"expected an error with SQLSTATE {sqlstate}, got none")


def _adapt(value: Any) -> Any:
    return Jsonb(value) if isinstance(value, dict) else value
