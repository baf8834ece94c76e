"""Judges a whole history.  Every figure of a clean run is zero.

lost      acknowledged and not there; or done without having been run
phantom   ran, or is in the database, though nobody's call can have made it
dup_tx    a transactional effect more than once, or by an attempt that did not finish the job
dup_ext   an outside effect twice: one attempt begun twice, two jobs for one token, a success that was not kept though
          its worker was well.  Successes of attempts that were rescued are repeated by design: `uncertain`
early     begun before its time, or before the wait of its retry was over
overlap   two attempts of one job at work at once, by their marks or by the database
over      more jobs of a concurrency key at work at once than its limit
stuck     not ended when everything was quiet
lies      two callers told success for one thing; or an answer that the database contradicts
gaps      claims without a record: epochs missing among the attempts

Killed processes leave no end mark: what they ran ended when they were gone.  A stopped process does nothing until it is
woken; what it does then is not an overlap as long as it is refused (a write that was accepted shows as dup_tx or lies).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import pairwise

from tests.crash.ledger import AttemptRow, History, JobRow, Mark

# What a job of each mode ends as; all others end as done.
ENDS_AS = {"poison": "dead_letter"}
EXAMPLES = 5
FOREVER = 1 << 62


@dataclass(slots=True)
class Findings:
    lost: int = 0
    phantom: int = 0
    dup_tx: int = 0
    dup_ext: int = 0
    early: int = 0
    overlap: int = 0
    over: int = 0
    stuck: int = 0
    lies: int = 0
    gaps: int = 0
    # Not violations: how often the promise "at least once" was used, what woken processes tried, and attempts whose
    # times, not whose marks, seem to overlap.
    uncertain: int = field(default=0, metadata={"harmless": True})
    zombie_runs: int = field(default=0, metadata={"harmless": True})
    refused: int = field(default=0, metadata={"harmless": True})
    inversions: int = field(default=0, metadata={"harmless": True})
    examples: dict[str, list[str]] = field(default_factory=dict, metadata={"harmless": True})

    @property
    def counts(self) -> dict[str, int]:
        return {f.name: getattr(self, f.name) for f in fields(self) if not f.metadata.get("harmless")}

    @property
    def clean(self) -> bool:
        return not any(self.counts.values())

    def add(self, kind: str, what: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        known = self.examples.setdefault(kind, [])
        if len(known) < EXAMPLES:
            known.append(what)


class _Lookup:
    """A history by job and epoch."""

    def __init__(self, history: History) -> None:
        self.attempts: dict[str, dict[int, AttemptRow]] = defaultdict(dict)
        for row in history.attempts:
            self.attempts[row.job][row.epoch] = row
        self.begins: dict[str, list[Mark]] = defaultdict(list)
        for mark in history.begins:
            self.begins[mark.job].append(mark)
        self.ends = {(mark.job, mark.epoch, mark.life): mark for mark in history.ends}
        self.ended_ok = {(mark.job, mark.epoch) for mark in history.ends if mark.word == "ok"}
        self.effects: dict[str, list[int]] = defaultdict(list)
        for _, job, epoch in history.effects:
            self.effects[job].append(epoch)
        self.results: dict[str, set[str]] = defaultdict(set)
        self.due: dict[str, int] = {}
        for op in history.ops.values():
            for token in op.tokens:
                self.results[token].add(op.result)
                if op.due_ns:
                    self.due[token] = op.due_ns
        # Wall clock minus CLOCK_MONOTONIC, to compare what the database says with what the harness did.
        first = history.begins[0] if history.begins else None
        self.offset = first.wall - first.mono if first else 0
        self.processes = history.processes

    def possible(self, token: str) -> bool:
        """Whether a call that can have had an effect names this token."""
        return bool(self.results.get(token, set()) - {"fail"})

    def stop_between(self, life: int, since: int, until: int) -> int | None:
        for what, when in self.processes.get(life, ()):
            if what == "stop" and since <= when <= until:
                return when
        return None

    def gone(self, life: int) -> int:
        return next((when for what, when in self.processes.get(life, ()) if what == "exit"), FOREVER)

    def end_of(self, begin: Mark) -> int:
        mark = self.ends.get((begin.job, begin.epoch, begin.life))
        end = mark.mono if mark else self.gone(begin.life)
        stop = self.stop_between(begin.life, begin.mono, end)
        return end if stop is None else stop

    def begun_by_zombie(self, begin: Mark) -> bool:
        """Claimed before its process was woken, begun after that.  A call sent before the stop is run during it."""
        row = self.attempts[begin.job].get(begin.epoch)
        claimed = row.started * 1000 - self.offset if row else begin.mono
        events = self.processes.get(begin.life, ())
        return any(what == "cont" and claimed <= when <= begin.mono for what, when in events)


def check(history: History) -> Findings:
    found = Findings()
    lookup = _Lookup(history)
    _check_answers(history, found)
    _check_jobs(history, lookup, found)
    _check_marks(history, lookup, found)
    _check_transactions(history, lookup, found)
    for job, begins in lookup.begins.items():
        _check_overlap(job, begins, lookup, found)
    for job, attempts in lookup.attempts.items():
        _check_attempts(job, attempts, found)
    _check_places(history, lookup, found)
    return found


def _check_answers(history: History, found: Findings) -> None:
    created: dict[str, int] = defaultdict(int)
    answered: dict[str, set[str]] = defaultdict(set)
    for name, op in history.ops.items():
        if op.result != "ok":
            continue
        if len(op.refs) != len(op.tokens):
            found.add("lies", f"call {name}: {len(op.tokens)} asked for, {len(op.refs)} answered")
        for token, (job, is_new) in zip(op.tokens, op.refs, strict=False):
            created[token] += is_new
            answered[token].add(job)
            row = history.jobs.get(job)
            if row is None:
                found.add("lost", f"token {token}: job {job} was acknowledged and does not exist")
            elif row.token != token:
                found.add("lies", f"token {token}: job {job} is that of {row.token}")
    for token, count in created.items():
        if count > 1:
            found.add("lies", f"token {token}: {count} callers were told that they created it")
    for token, jobs in answered.items():
        if len(jobs) > 1:
            found.add("lies", f"token {token}: callers were told of {len(jobs)} different jobs")


def _check_jobs(history: History, lookup: _Lookup, found: Findings) -> None:
    of_token: dict[str, list[str]] = defaultdict(list)
    for job, row in history.jobs.items():
        of_token[row.token].append(job)
        if not lookup.possible(row.token):
            found.add("phantom", f"job {job}: no call that went through names its token {row.token}")
        if row.state != ENDS_AS.get(row.mode, "done"):
            found.add("stuck", f"job {job} ({row.token}, {row.mode}) is {row.state}, epoch {row.epoch}")
        elif row.state == "done":
            # The commit of a transactional effect ends the job; its handler may not have lived to see that.
            if row.mode == "tx":
                if not lookup.effects.get(job):
                    found.add("lost", f"job {job} ({row.token}) is done without its transactional effect")
            elif (job, row.epoch) not in lookup.ended_ok:
                found.add("lost", f"job {job} ({row.token}) is done, but epoch {row.epoch} did not succeed")
    for token, jobs in of_token.items():
        if len(jobs) > 1:
            found.add("dup_ext", f"token {token} has {len(jobs)} jobs: {' '.join(jobs[:3])}")


def _check_marks(history: History, lookup: _Lookup, found: Findings) -> None:
    seen: set[tuple[str, int]] = set()
    for mark in history.begins:
        where = f"job {mark.job} epoch {mark.epoch} in life {mark.life}"
        if (mark.job, mark.epoch) in seen:
            found.add("dup_ext", f"{where}: this attempt was begun before")
        seen.add((mark.job, mark.epoch))
        row = history.jobs.get(mark.job)
        if row is None or row.token != mark.word:
            found.add("phantom", f"{where}: runs token {mark.word}, which the job does not have")
            continue
        attempts = lookup.attempts[mark.job]
        if mark.epoch not in attempts:
            found.add("phantom", f"{where}: there is no such attempt")
        if mark.wall < lookup.due.get(mark.word, 0):
            found.add("early", f"{where}: {(lookup.due[mark.word] - mark.wall) / 1e6:.3f} ms too early")
        before = attempts.get(mark.epoch - 1)
        if before is not None and before.retry_at is not None and mark.wall < before.retry_at * 1000:
            found.add("early", f"{where}: {before.retry_at / 1e3 - mark.wall / 1e6:.3f} ms before its retry")
    for job, epoch in lookup.ended_ok:
        row = history.jobs.get(job)
        attempt = lookup.attempts[job].get(epoch)
        if row is None or attempt is None or attempt.outcome == "done":
            continue
        if attempt.outcome == "rescued":
            found.uncertain += 1
        else:
            found.add("dup_ext", f"job {job} epoch {epoch} succeeded, but the attempt is {attempt.outcome}")


def _check_transactions(history: History, lookup: _Lookup, found: Findings) -> None:
    for token, job, epoch in history.effects:
        row: JobRow | None = history.jobs.get(job)
        if row is None or not lookup.possible(token):
            found.add("phantom", f"effect of token {token}, job {job}: nobody asked for it")
        elif row.state != "done" or row.epoch != epoch:
            found.add(
                "dup_tx", f"effect of token {token}, epoch {epoch}: job is {row.state}, epoch {row.epoch}"
            )
    of_token: dict[str, int] = defaultdict(int)
    for token, _, _ in history.effects:
        of_token[token] += 1
    for token, count in of_token.items():
        if count > 1:
            found.add("dup_tx", f"token {token} has {count} transactional effects")

    told: dict[str, set[int]] = defaultdict(set)
    for mark in history.txs:
        if mark.word == "ok":
            told[mark.job].add(mark.epoch)
            if mark.epoch not in lookup.effects.get(mark.job, ()):
                found.add("lies", f"job {mark.job} epoch {mark.epoch}: commit acknowledged, effect missing")
        elif mark.word == "refused":
            found.refused += 1
            if mark.epoch in lookup.effects.get(mark.job, ()):
                found.add(
                    "lies",
                    f"job {mark.job} epoch {mark.epoch}: told that it lost its lease, but it committed",
                )
    for job, epochs in told.items():
        if len(epochs) > 1:
            found.add("lies", f"job {job}: epochs {sorted(epochs)} were each told that they finished it")


def _check_overlap(job: str, begins: list[Mark], lookup: _Lookup, found: Findings) -> None:
    if len(begins) < 2:
        return
    for earlier, later in _neighbours(begins):
        if lookup.begun_by_zombie(earlier) or lookup.begun_by_zombie(later):
            found.zombie_runs += 1
        elif later.mono < lookup.end_of(earlier):
            found.add(
                "overlap",
                f"job {job}: epoch {later.epoch} (life {later.life}) began "
                f"{_ms(lookup.end_of(earlier) - later.mono)} before epoch {earlier.epoch} (life {earlier.life}) ended",
            )
        elif lookup.stop_between(earlier.life, earlier.mono, later.mono) is not None:
            found.zombie_runs += 1


def _neighbours(begins: list[Mark]) -> Iterator[tuple[Mark, Mark]]:
    return pairwise(sorted(begins, key=lambda mark: (mark.epoch, mark.mono)))


def _check_attempts(job: str, attempts: dict[int, AttemptRow], found: Findings) -> None:
    epochs = sorted(attempts)
    if epochs != list(range(1, len(epochs) + 1)):
        found.add("gaps", f"job {job} has attempts with epochs {epochs[:20]}")
    for earlier, later in pairwise(epochs):
        ended = attempts[earlier].ended
        if ended is None:
            found.add("overlap", f"job {job}: epoch {later} was claimed and epoch {earlier} has not ended")
        elif attempts[later].started < ended:
            # The time of a statement is that of its beginning: one that waited for a lock claims "before" what it waited for.
            found.inversions += 1


def _check_places(history: History, lookup: _Lookup, found: Findings) -> None:
    """By the marks: at no moment more attempts of a key between their begin and their end than it has places."""
    events: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    # The commit of a transactional effect ends the job and frees its place, before its handler knows.
    tried = {(mark.job, mark.epoch, mark.life): mark.mono for mark in history.txs if mark.word == "try"}
    for begin in history.begins:
        row = history.jobs.get(begin.job)
        if row is not None and row.place is not None and row.limit and not lookup.begun_by_zombie(begin):
            # At one moment, ends count before begins.
            end = min(lookup.end_of(begin), tried.get((begin.job, begin.epoch, begin.life), FOREVER))
            events[row.place] += [(begin.mono, 1, row.limit), (end, 0, row.limit)]
    for place, moments in events.items():
        busy = 0
        for when, is_begin, limit in sorted(moments):
            busy += 1 if is_begin else -1
            if is_begin and busy > limit:
                found.add("over", f"key {place}: {busy} at once, limit {limit}, at {when}")


def _ms(nanoseconds: int) -> str:
    return "for ever" if nanoseconds > FOREVER // 2 else f"{nanoseconds / 1e6:.1f} ms"
