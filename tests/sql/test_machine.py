"""Random sequences of calls against PostgreSQL and against a model in Python: after each, both say the same."""

from __future__ import annotations

import contextlib
from datetime import timedelta

import psycopg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.engine import Engine
from tests.support.model import LEASE, NEVER, RETRY_WAIT, Model, Refused

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]

pick = st.integers(0, 10**6)
LIMITS = {"g1": 1, "g2": 2}
# Of the calls that end an attempt, which method and which arguments.
ENDS = {
    "complete": lambda db, claim: db.complete(claim),
    "fail": lambda db, claim: db.fail(claim).state,
    "fail for good": lambda db, claim: db.fail(claim, permanent=True).state,
    "snooze": lambda db, claim: db.snooze(claim, timedelta(seconds=RETRY_WAIT)).state,
    "cancel": lambda db, claim: db.cancel(claim.job_id, epoch=claim.epoch),
}


class Machine(RuleBasedStateMachine):
    server = None

    @initialize()
    def open(self):
        self.stack = contextlib.ExitStack()
        database = self.stack.enter_context(self.server.cloned())
        self.db = self.stack.enter_context(Engine(database))
        self.start = self.db.clock.pin()
        # The model knows nothing of jobs that have waited too long; their share is drawn.
        self.db.call("add_lane", name="default", max_wait="0")
        self.model = Model()
        self.ids, self.claims, self.workers = [], [], []

    def teardown(self):
        if hasattr(self, "stack"):
            self.stack.close()

    def both(self, real, expected):
        """The same answer, or the same refusal."""
        try:
            wanted = expected()
        except Refused as refusal:
            with pytest.raises(psycopg.Error) as caught:
                real()
            assert caught.value.sqlstate == refusal.sqlstate, caught.value
            return None
        got = real()
        assert got == wanted
        return got

    def job(self, number):
        return number % len(self.ids)

    # ------------------------------------------------------------ rules

    @rule(
        payload=st.integers(1, 2),
        key=st.sampled_from([None, None, "k1", "k2"]),
        forever=st.booleans(),
        group=st.sampled_from([None, None, "g1", "g2"]),
        priority=st.integers(-1, 1),
        delay=st.sampled_from([0, 0, 0, 30, 90]),
        lifetime=st.sampled_from([None, None, None, 60]),
        max_attempts=st.integers(1, 3),
        others=st.one_of(st.just([]), st.lists(pick, min_size=1, max_size=3)),
        policy=st.sampled_from(["fail", "ignore", "compensate"]),
    )
    def enqueue(self, payload, key, forever, group, priority, delay, lifetime, max_attempts, others, policy):
        after = [self.job(other) for other in others] if self.ids else []
        limit = LIMITS.get(group, 1)
        at = self.start + timedelta(seconds=self.model.now + delay)

        def real():
            row = self.db.enqueued(
                "ocr",
                {"n": payload},
                key=key,
                key_window="forever" if forever else "live",
                concurrency_key=group,
                concurrency_limit=limit,
                priority=priority,
                run_at=at if delay else None,
                expires_at=None if lifetime is None else at + timedelta(seconds=lifetime),
                max_attempts=max_attempts,
                retry={"waits": [RETRY_WAIT], "max_snoozes": 2},
                after=[self.ids[other] for other in after] or None,
                after_policy=policy,
            )
            if row.created:
                self.ids.append(row.job_id)
            return self.ids.index(row.job_id), row.created

        options = {"group": group, "limit": limit, "priority": priority, "max_attempts": max_attempts}
        options |= {"after": tuple(after), "policy": policy}
        self.both(
            real,
            lambda: self.model.enqueue(
                payload, key=key, forever=forever, delay=delay, lifetime=lifetime, **options
            ),
        )

    @rule()
    def register(self):
        number = self.model.register()
        self.workers.append(self.db.worker(str(number), lease=timedelta(seconds=LEASE)))

    @precondition(lambda self: self.workers)
    @rule(worker=pick, most=st.integers(1, 4))
    def claim(self, worker, most):
        worker %= len(self.workers)

        def real():
            rows = self.db.claims(most, worker=str(worker))
            self.claims += rows
            return [(self.ids.index(row.job_id), row.epoch) for row in rows]

        self.both(real, lambda: self.model.claim(worker, most))

    @precondition(lambda self: self.workers)
    @rule(worker=pick, most=st.integers(0, 3), some=st.lists(pick, max_size=3))
    def exchange(self, worker, most, some):
        worker %= len(self.workers)
        done = [self.claims[n % len(self.claims)] for n in some] if self.claims else []

        def real():
            rows = self.db.exchange(done, worker=str(worker), lanes=["default"], max=most)
            self.claims += [row for row in rows if row.outcome == "claimed"]
            return [
                (row.outcome, *((self.ids.index(row.job_id), row.epoch) if row.job_id else ()))
                for row in rows
            ]

        def expected():
            lost, finished = [], []
            for claim in done:
                number = self.ids.index(claim.job_id)
                holding = self.model._holds(number, claim.epoch)
                if holding is not None:
                    holding.ends[claim.epoch] = ("complete", None)
                    self.model._archive(holding, "done")
                    finished.append(holding)
            self.model._tell([job.number for job in finished], "done")
            self.model._admit(*(job.group for job in finished))
            for claim in done:
                number = self.ids.index(claim.job_id)
                if self.model.jobs[number].ends.get(claim.epoch, ("",))[0] != "complete":
                    lost.append(("lost", number, claim.epoch))
            if most and not self.model.is_alive(worker):
                return [*lost, ("expired",)]
            return [*lost, *(("claimed", *taken) for taken in self.model.take(worker, most))]

        self.both(real, expected)

    @precondition(lambda self: self.claims)
    @rule(which=pick, how=st.sampled_from(sorted(ENDS)))
    def end(self, which, how):
        """By whoever was given it, now or long ago."""
        claim = self.claims[which % len(self.claims)]
        number = self.ids.index(claim.job_id)
        self.both(lambda: ENDS[how](self.db, claim), lambda: self.model.end(how, number, claim.epoch))

    @precondition(lambda self: self.claims)
    @rule(which=pick, event=st.sampled_from([None, "e1", "e2"]), forever=st.booleans())
    def suspend(self, which, event, forever):
        claim = self.claims[which % len(self.claims)]
        number = self.ids.index(claim.job_id)
        wait = NEVER if event and forever else RETRY_WAIT

        def real():
            # A name of its own: a step that slept before would remember until when.
            step = f"step {claim.epoch}"
            if event is None:
                self.db.sleep(claim, timedelta(seconds=wait), step=step)
            else:
                timeout = None if wait == NEVER else timedelta(seconds=wait)
                self.db.wait_event(claim, event, timeout=timeout, step=step)

        self.both(real, lambda: self.model.suspend(number, claim.epoch, wait, event))

    @rule(event=st.sampled_from(["e1", "e2"]))
    def emit(self, event):
        self.both(lambda: self.db.emit(event), lambda: self.model.emit(event))

    @precondition(lambda self: self.claims)
    @rule(which=pick)
    def progress(self, which):
        claim = self.claims[which % len(self.claims)]
        number = self.ids.index(claim.job_id)
        self.both(lambda: self.db.progress(claim, {"n": 1}), lambda: self.model.progress(number, claim.epoch))

    @precondition(lambda self: self.workers)
    @rule(worker=pick)
    def heartbeat(self, worker):
        worker %= len(self.workers)
        self.both(
            lambda: sorted(self.ids.index(job) for job in self.db.heartbeat(str(worker)).cancel_job_ids),
            lambda: self.model.heartbeat(worker),
        )

    @precondition(lambda self: self.workers)
    @rule(worker=pick)
    def release(self, worker):
        worker %= len(self.workers)
        self.both(
            lambda: self.db.answer("release", worker_id=self.workers[worker]),
            lambda: self.model.release(worker),
        )

    @rule(seconds=st.sampled_from([1, 15, 30, 59, 61]))
    def advance(self, seconds):
        self.db.clock.advance(timedelta(seconds=seconds))
        self.model.now += seconds

    @rule()
    def promote(self):
        self.both(lambda: self.db.promote().promoted, self.model.promote)

    @rule(thorough=st.booleans())
    def rescue(self, thorough):
        self.both(lambda: self.db.rescue(thorough=thorough), self.model.rescue)

    @rule()
    def tidy(self):
        self.db.answer("tidy")

    @rule()
    def pause_or_resume(self):
        self.db.answer("resume_lane" if self.model.paused else "pause_lane", name="default")
        self.model.paused = not self.model.paused

    @precondition(lambda self: self.ids)
    @rule(job=pick)
    def cancel(self, job):
        job = self.job(job)
        self.both(lambda: self.db.cancel(self.ids[job]), lambda: self.model.cancel(job))

    @precondition(lambda self: self.ids)
    @rule(job=pick, payload=st.sampled_from([None, None, 3]), delay=st.sampled_from([0, 0, 45]))
    def requeue(self, job, payload, delay):
        job = self.job(job)
        options = {"run_at": self.start + timedelta(seconds=self.model.now + delay)} if delay else {}
        edited = {} if payload is None else {"payload": {"n": payload}}
        self.both(
            lambda: self.db.requeue(self.ids[job], **edited, **options),
            lambda: self.model.requeue(job, payload, delay),
        )

    @precondition(lambda self: self.ids)
    @rule(job=pick)
    def resolve(self, job):
        job = self.job(job)
        self.both(lambda: self.db.resolve(self.ids[job]), lambda: self.model.resolve(job))

    @precondition(lambda self: self.ids)
    @rule(job=pick)
    def run_now(self, job):
        job = self.job(job)
        self.both(lambda: self.db.answer("run_now", job_id=self.ids[job]), lambda: self.model.run_now(job))

    # ------------------------------------------------------------ what must hold after each

    @invariant()
    def every_job_is_where_the_model_says(self):
        if not hasattr(self, "db"):
            return
        rows = self.db.run("select id, state, attempt, epoch, snoozes, payload, awaits from onceward.jobs")
        found = {
            self.ids.index(row.id): (
                row.state,
                row.attempt,
                row.epoch,
                row.snoozes,
                row.payload["n"],
                row.awaits,
            )
            for row in rows
        }
        assert found == {job.number: job.facts for job in self.model.jobs}

    @invariant()
    def ready_jobs_stand_in_the_order_of_the_model(self):
        if not hasattr(self, "db"):
            return
        rows = self.db.run(
            "select id from onceward.job_private where state = 'ready' order by priority desc, ready_seq"
        )
        assert [self.ids.index(row.id) for row in rows] == [job.number for job in self.model.ready()]

    @invariant()
    def keys_are_held_by_whom_the_model_says(self):
        if not hasattr(self, "db"):
            return
        rows = self.db.run("select key, job_id from onceward.key_private")
        assert {row.key: self.ids.index(row.job_id) for row in rows} == {
            k: held[0] for k, held in self.model.keys.items()
        }


def test_every_sequence_of_calls_leaves_the_jobs_where_the_model_says(onceward_server):
    machine = type("Bound", (Machine,), {"server": onceward_server})

    run_state_machine_as_test(machine, settings=settings(max_examples=40, stateful_step_count=50))
