"""What the engine promises, in plain Python: the oracle of the state machine test.  Times are seconds since its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

RETRY_WAIT = 60
LEASE = 60
NEVER = 10**9
LIVE = ("scheduled", "ready", "running", "blocked", "dead_letter")


class Refused(Exception):
    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


@dataclass
class Job:
    number: int
    payload: int
    priority: int = 0
    max_attempts: int = 2
    max_snoozes: int = 2
    key: str | None = None
    key_is_live: bool = False
    group: str | None = None
    limit: int = 1
    expires_at: int | None = None
    run_at: int = 0
    state: str = "ready"
    seq: int = 0
    attempt: int = 0
    epoch: int = 0
    snoozes: int = 0
    worker: int | None = None
    cancelling: bool = False
    # What it waits for beside its time and its key: jobs, or event:<name>.
    awaits: str | None = None
    policy: str = "fail"
    # What became of each job that it waits for: done, failed or not ended.
    edges: dict[int, str | None] = field(default_factory=dict)
    # How each attempt ended: epoch -> (by which call, its answer).
    ends: dict[int, tuple[str, Any]] = field(default_factory=dict)

    @property
    def facts(self) -> tuple[str, int, int, int, int, str | None]:
        return (self.state, self.attempt, self.epoch, self.snoozes, self.payload, self.awaits)


@dataclass
class Worker:
    beat_at: int
    expires_at: int
    retired: bool = False


class Model:
    def __init__(self) -> None:
        self.now = 0
        self.jobs: list[Job] = []
        self.workers: list[Worker] = []
        self.keys: dict[str, tuple[int, int]] = {}  # key -> (number of the job, payload)
        self.paused = False
        self.events: set[str] = set()
        # What the next promote looks at: jobs that have ended, and jobs that have begun to wait for others.
        self._ended: list[int] = []
        self._new: set[int] = set()
        self._seq = 0

    # ------------------------------------------------------------ producing

    def enqueue(
        self,
        payload: int,
        *,
        key: str | None,
        forever: bool,
        delay: int,
        lifetime: int | None,
        after: tuple[int, ...] = (),
        **options: Any,
    ) -> tuple[int, bool]:
        if key is not None and key in self.keys:
            number, held = self.keys[key]
            if held != payload:
                raise Refused("OW005")
            return number, False
        job = Job(len(self.jobs), payload, key=key, key_is_live=key is not None and not forever, **options)
        job.run_at = self.now + delay
        job.expires_at = None if lifetime is None else self.now + delay + lifetime
        self.jobs.append(job)
        if key is not None:
            self.keys[key] = (job.number, payload)
        if after:
            job.state, job.awaits, job.edges = "blocked", "jobs", dict.fromkeys(after)
            self._new.add(job.number)
        else:
            self._wait(job)
        return job.number, True

    def _wait(self, job: Job) -> None:
        """Scheduled, blocked or ready."""
        if job.run_at > self.now:
            job.state = "scheduled"
        elif job.group is not None:
            job.state = "blocked"
        else:
            self._make_ready(job)

    def _make_ready(self, job: Job) -> None:
        self._seq += 1
        job.state, job.seq = "ready", self._seq

    # ------------------------------------------------------------ working

    def register(self) -> int:
        self.workers.append(Worker(self.now, self.now + LEASE))
        return len(self.workers) - 1

    def is_alive(self, worker: int) -> bool:
        return not self.workers[worker].retired and self.workers[worker].expires_at > self.now

    def heartbeat(self, number: int) -> list[int]:
        worker = self.workers[number]
        if not self.is_alive(number):
            raise Refused("OW009")
        if worker.beat_at <= self.now - LEASE / 6:
            worker.beat_at, worker.expires_at = self.now, self.now + LEASE
        return [
            job.number
            for job in self.jobs
            if job.state == "running" and job.worker == number and job.cancelling
        ]

    def ready(self) -> list[Job]:
        return sorted(
            (job for job in self.jobs if job.state == "ready"), key=lambda job: (-job.priority, job.seq)
        )

    def take(self, worker: int, most: int) -> list[tuple[int, int]]:
        """One look at the ready jobs, as exchange does it."""
        taken = []
        for job in [] if self.paused else self.ready():
            if len(taken) < most and (job.expires_at is None or job.expires_at > self.now):
                job.state, job.worker = "running", worker
                job.epoch += 1
                job.attempt += 1
                taken.append((job.number, job.epoch))
        return taken

    def claim(self, worker: int, most: int) -> list[tuple[int, int]]:
        if not self.is_alive(worker):
            raise Refused("OW009")
        taken = self.take(worker, most)
        if len(taken) < most and self.promote():
            taken += self.take(worker, most - len(taken))
        return taken

    def _holds(self, number: int, epoch: int) -> Job | None:
        job = self.jobs[number]
        return job if job.state == "running" and job.epoch == epoch else None

    def end(self, call: str, number: int, epoch: int) -> Any:
        """complete, fail, fail for good, snooze or cancel by the worker; the answer."""
        job = self._holds(number, epoch)
        if job is None:
            return self._repeated(call, number, epoch)
        if call == "complete":
            self._archive(job, "done")
            self._tell([number], "done")
            answer: Any = None
        elif call == "cancel" or (job.cancelling and call != "complete"):
            self._archive(job, "cancelled")
            answer = "cancelled"
        elif call == "snooze" and job.snoozes < job.max_snoozes:
            job.snoozes += 1
            job.attempt -= 1
            self._leave(job, RETRY_WAIT)
            answer = "scheduled"
        elif call == "fail" and job.attempt < job.max_attempts:
            self._leave(job, RETRY_WAIT)
            answer = "scheduled"
        else:
            self._die(job)
            answer = "dead_letter"
        job.ends[epoch] = (call, answer)
        self._admit(job.group)
        return answer

    def _repeated(self, call: str, number: int, epoch: int) -> Any:
        job = self.jobs[number]
        by, answer = job.ends.get(epoch, (None, None))
        if call == by == "suspend":
            return None
        same = {"fail for good": "fail"}
        if by is not None and same.get(by, by) == same.get(call, call):
            return answer
        if call == "cancel" and answer == "cancelled" and job.state == "cancelled" and job.epoch == epoch:
            return "cancelled"
        raise Refused("OW001")

    def suspend(self, number: int, epoch: int, wait: int, event: str | None) -> None:
        job = self._holds(number, epoch)
        if job is None:
            self._repeated("suspend", number, epoch)
            return
        job.ends[epoch] = ("suspend", "cancelled" if job.cancelling else None)
        if job.cancelling:
            self._archive(job, "cancelled")
        else:
            job.attempt -= 1
            self._leave(job, wait)
            job.awaits = None if event is None else f"event:{event}"
        self._admit(job.group)

    def emit(self, event: str) -> bool:
        is_first = event not in self.events
        self.events.add(event)
        return is_first

    def progress(self, number: int, epoch: int) -> None:
        if self._holds(number, epoch) is None:
            raise Refused("OW001")

    def release(self, worker: int) -> int:
        held = [job for job in self.jobs if job.state == "running" and job.worker == worker]
        for job in held:
            if job.cancelling:
                job.ends[job.epoch] = ("release", "cancelled")
                self._archive(job, "cancelled")
            else:
                job.ends[job.epoch] = ("release", None)
                job.attempt -= 1
                # It keeps its place in the line.
                job.state = "ready"
        self._admit(*(job.group for job in held))
        return len(held)

    # ------------------------------------------------------------ maintenance

    def promote(self) -> int:
        before = len(self.ready())
        self._recheck()
        expired = [
            j
            for j in self.jobs
            if j.state in ("scheduled", "ready", "blocked")
            and j.expires_at is not None
            and j.expires_at <= self.now
        ]
        before -= sum(job.state == "ready" for job in expired)
        for job in expired:
            self._archive(job, "cancelled")
        due = sorted(
            (j for j in self.jobs if j.state == "scheduled" and j.run_at <= self.now),
            key=lambda j: (j.run_at, j.number),
        )
        for job in due:
            job.awaits = None
            self._wait(job)
        self._admit(*(job.group for job in self.jobs))
        return len(self.ready()) - before

    def _admit(self, *groups: str | None) -> None:
        for group in sorted({group for group in groups if group is not None}):
            mine = [job for job in self.jobs if job.group == group]
            waiting = sorted(
                (job for job in mine if job.state == "blocked" and job.awaits is None),
                key=lambda job: (-job.priority, job.number),
            )
            if waiting:
                room = waiting[0].limit - sum(job.state in ("ready", "running") for job in mine)
                for job in waiting[: max(room, 0)]:
                    self._make_ready(job)

    def _recheck(self) -> None:
        while self._ended or self._new:
            ended, self._ended = self._ended, []
            new, self._new = sorted(self._new), set()
            self._tell([n for n in ended if self.jobs[n].state in ("done", "resolved")], "done")
            self._tell([n for n in ended if self.jobs[n].state in ("cancelled", "dead_letter")], "failed")
            for number in new:
                for other in self.jobs[number].edges:
                    if self.jobs[other].state in ("done", "resolved"):
                        self.jobs[number].edges[other] = "done"
                    elif self.jobs[other].state in ("cancelled", "dead_letter"):
                        self.jobs[number].edges[other] = "failed"
            self._decide(new)
        for job in self.jobs:
            if job.awaits is not None and job.awaits.removeprefix("event:") in self.events:
                job.awaits, job.run_at = None, min(job.run_at, self.now)

    def _tell(self, ended: list[int], outcome: str) -> None:
        told = [job for job in self.jobs if any(job.edges.get(n, "") is None for n in ended)]
        for job in told:
            job.edges.update({n: outcome for n in ended if job.edges.get(n, "") is None})
        self._decide([job.number for job in told])

    def _decide(self, numbers: list[int]) -> None:
        for number in numbers:
            job = self.jobs[number]
            outcomes = set(job.edges.values())
            if job.awaits != "jobs":
                continue
            if job.policy == "fail" and "failed" in outcomes:
                self._archive(job, "cancelled")
            elif None in outcomes:
                continue
            elif job.policy == "compensate" and "failed" not in outcomes:
                self._archive(job, "cancelled")
            else:
                job.awaits = None
                self._wait(job)

    def rescue(self) -> int:
        for number, worker in enumerate(self.workers):
            worker.retired |= not self.is_alive(number)
        lost = [job for job in self.jobs if job.state == "running" and self.workers[job.worker or 0].retired]
        freed = []
        for job in lost:
            job.ends[job.epoch] = ("rescue", "cancelled" if job.cancelling else None)
            if job.cancelling:
                self._archive(job, "cancelled")
                freed.append(job.group)
            elif job.attempt >= job.max_attempts:
                self._die(job)
                freed.append(job.group)
            else:
                self._make_ready(job)
        self._admit(*freed)
        return len(lost)

    # ------------------------------------------------------------ operating

    def cancel(self, number: int) -> str:
        job = self.jobs[number]
        if job.state in ("done", "resolved", "dead_letter"):
            raise Refused("OW007")
        if job.state == "running":
            job.cancelling = True
            return "cancelling"
        if job.state != "cancelled":
            self._archive(job, "cancelled")
        return "cancelled"

    def requeue(self, number: int, payload: int | None, delay: int) -> str:
        job = self.jobs[number]
        if job.state not in ("dead_letter", "cancelled", "resolved"):
            raise Refused("OW007")
        if job.state != "dead_letter" and job.key is not None:
            holder, _ = self.keys.get(job.key, (None, None))
            if holder is not None and holder != number:
                raise Refused("OW007")
            job.key_is_live = holder is None
            if holder is None:
                self.keys[job.key] = (number, job.payload)
        job.payload = job.payload if payload is None else payload
        job.attempt = job.snoozes = 0
        job.cancelling = False
        job.awaits, job.edges = None, {}
        job.run_at = self.now + delay
        if job.expires_at is not None and job.expires_at <= job.run_at:
            job.expires_at = None
        self._wait(job)
        return job.state

    def resolve(self, number: int) -> None:
        if self.jobs[number].state != "dead_letter":
            raise Refused("OW007")
        self._archive(self.jobs[number], "resolved")

    def run_now(self, number: int) -> str:
        job = self.jobs[number]
        if job.state != "scheduled":
            raise Refused("OW007" if job.state in LIVE else "OW006")
        job.run_at = self.now
        job.awaits = None
        self._wait(job)
        return job.state

    # ------------------------------------------------------------ ends

    def _leave(self, job: Job, wait: int) -> None:
        job.state, job.worker, job.run_at = "scheduled", None, self.now + wait

    def _die(self, job: Job) -> None:
        job.state, job.worker = "dead_letter", None
        self._ask(job)

    def _archive(self, job: Job, state: str) -> None:
        job.state, job.worker, job.cancelling, job.awaits = state, None, False, None
        if state != "done":
            self._ask(job)
        if job.key_is_live and job.key is not None and self.keys.get(job.key, (None,))[0] == job.number:
            del self.keys[job.key]

    def _ask(self, ended: Job) -> None:
        if any(job.edges.get(ended.number, "") is None for job in self.jobs):
            self._ended.append(ended.number)
