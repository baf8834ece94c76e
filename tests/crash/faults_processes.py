"""What happens to worker processes: killed, stopped past their lease, asked to leave, hogged by a handler."""

from __future__ import annotations

import time

from tests.crash import clients
from tests.crash.arena import Arena
from tests.crash.clients import Work
from tests.crash.fleet import Life
from tests.crash.ledger import History
from tests.crash.verdict import Verdict
from tests.crash.waiting import until

LEASE = 2.0
# After the lease of a dead worker is over, its jobs are ready again within this many seconds.
RESCUED_WITHIN = 2.0


def kills(arena: Arena, *, kills: int, jobs: int, workers: int) -> Verdict:
    """SIGKILL, spread evenly over the jobs; a new process takes each dead one's place."""
    fleet = [_worker(arena) for _ in range(workers)]
    producers = clients.produce(arena, jobs, backlog=max(2000, jobs // 20))
    # Rolled-back enqueues make fewer jobs than tokens: the last kill comes well before the end.
    step = 0.9 * jobs / kills
    for count in range(kills):
        arena.until_done(int(count * step))
        index = arena.random.randrange(workers)
        victim = fleet[index]
        arena.signal(victim, "kill")
        fleet[index] = _worker(arena)
    problems = clients.finish(producers)
    arena.until_quiet()
    verdict = arena.verdict(
        "worker killed",
        {"kills": kills, "jobs": jobs},
        facts=clients.told(producers),
        also=lambda history: {"slowest_rescue_s": _slowest_rescue(history)},
        problems=problems,
    )
    if verdict.facts["slowest_rescue_s"] > LEASE + RESCUED_WITHIN:
        verdict.problems.append(f"a job was rescued after {verdict.facts['slowest_rescue_s']} s")
    return verdict


def zombies(arena: Arena, *, zombies: int, at_once: int, healthy: int = 2) -> Verdict:
    """SIGSTOP past the lease while handlers run; others finish their jobs; SIGCONT: every late write is refused."""
    victims = [_worker(arena, concurrency=3) for _ in range(at_once)]
    for _ in range(healthy):
        _worker(arena, concurrency=30)

    def work(rng):
        if rng.random() < 0.2:
            return Work("work", rng.randrange(250, 400))
        return Work("stubborn", rng.randrange(250, 400), "tx" if rng.random() < 0.8 else "plain")

    producers = clients.produce(arena, 100_000_000, producers=1, work=work, batch=50, backlog=200)
    count = rounds = 0
    while count < zombies:
        rounds += 1
        arena.until_registered(*victims)
        until(lambda: all(_at_work(arena, life) for life in victims), what="every victim has begun a job")
        for life in victims:
            arena.signal(life, "stop")
        held = {life: _at_work(arena, life) for life in victims}
        _until_done_by_others(arena, [job for attempts in held.values() for job, _ in attempts])
        for life in victims:
            arena.signal(life, "cont")
        for life in victims:
            _until_ended(arena, life, held[life])
        # A worker that held nothing was stopped for nothing.
        count += sum(bool(attempts) for attempts in held.values())
    producers[0].stop()
    problems = clients.finish(producers)
    arena.until_quiet()
    verdict = arena.verdict(
        "zombie",
        {"zombies": count, "rounds": rounds},
        also=lambda history: {"late_writes": _late_writes(history)},
        problems=problems,
    )
    late = verdict.facts["late_writes"]
    if late["accepted"]:
        verdict.problems.append(f"{late['accepted']} late writes were accepted")
    if not late["refused"]:
        verdict.problems.append("no late write was tried")
    return verdict


def deploys(arena: Arena, *, deploys: int, jobs: int, workers: int) -> Verdict:
    """SIGTERM under load, one worker after the other: nothing is lost and no attempt is used up."""
    grace = 0.3
    fleet = [_worker(arena, grace=grace, lease=10.0) for _ in range(workers)]

    def work(rng):
        # Some handlers outlast the grace and are interrupted; those in threads are asked to stop.
        ms = rng.randrange(400, 1200) if rng.random() < 0.1 else rng.randrange(60)
        task = "work_sync" if rng.random() < 0.3 else "work"
        return Work(task, ms, "tx" if rng.random() < 0.3 else "plain")

    producers = clients.produce(arena, jobs, work=work, backlog=400)
    slowest = 0.0
    for count in range(deploys):
        index = count % workers
        leaving = fleet[index]
        arena.until_registered(leaving)
        asked = time.monotonic()
        arena.signal(leaving, "term")
        fleet[index] = _worker(arena, grace=grace, lease=10.0)
        arena.until_exited(leaving, 60)
        slowest = max(slowest, time.monotonic() - asked)
    problems = clients.finish(producers)
    arena.until_quiet()
    outcomes = dict(arena.query("select outcome, count(*) from onceward.attempts group by 1"))
    if odd := set(outcomes) - {"done", "released"}:
        problems.append(f"attempts ended as {sorted(odd)}")
    if burned := arena.value("select count(*) from onceward.jobs where attempt <> 1"):
        problems.append(f"{burned} jobs have used up more than one attempt")
    if codes := [life.code for life in arena.lives if life.code not in {0, None}]:
        problems.append(f"exit codes {codes}")
    return arena.verdict(
        "rolling deploy",
        {"deploys": deploys, "jobs": jobs},
        facts={"outcomes": outcomes, "slowest_exit_s": round(slowest, 2), **clients.told(producers)},
        also=lambda history: {"slowest_pick_up_s": _slowest_pick_up(history)},
        problems=problems,
    )


def hogs(arena: Arena, *, hogs: int, seconds: float = 6.0) -> Verdict:
    """Handlers that keep the interpreter, or the event loop, busy for longer than the lease: nobody is rescued."""
    for _ in range(2):
        _worker(arena, concurrency=3, lease=3.0)

    def work(rng):
        return Work(rng.choice(["hog", "hog_sync"]), int(seconds * 1000))

    problems = clients.finish(clients.produce(arena, hogs, producers=1, work=work, batch=2))
    arena.until_quiet(within=60 + 4 * seconds)
    rescued = arena.value("select count(*) from onceward.attempts where outcome = 'rescued'")
    if rescued:
        problems.append(f"{rescued} false rescues")
    # Some of those that were asked for were rolled back by their producer.
    hogged = arena.value("select count(*)::int from onceward.jobs")
    return arena.verdict(
        "handler hogs the GIL", {"hogs": hogged}, facts={"rescued": rescued}, problems=problems
    )


# ---------------------------------------------------------------- helpers


def _worker(arena: Arena, **settings) -> Life:
    return arena.spawn(**{"concurrency": 10, "lease": LEASE, "grace": 5.0, "poll": 0.5, **settings})


def _at_work(arena: Arena, life: Life) -> set[tuple[str, int]]:
    """Attempts that this process has begun and not ended, by its own marks."""
    path = arena.folder / f"effects-{life.number}.log"
    open_now: set[tuple[str, int]] = set()
    if path.exists():
        for line in path.read_text().splitlines():
            kind, job, epoch, *_ = line.split()
            if kind == "begin":
                open_now.add((job, int(epoch)))
            elif kind == "end":
                open_now.discard((job, int(epoch)))
    return open_now


def _until_done_by_others(arena: Arena, jobs: list[str]) -> None:
    unfinished = "select count(*) from onceward.jobs where id = any (%s::uuid[]) and state <> 'done'"
    until(lambda: arena.value(unfinished, jobs) == 0, what="the jobs of stopped workers done by others")


def _until_ended(arena: Arena, life: Life, attempts: set[tuple[str, int]]) -> None:
    until(lambda: not _at_work(arena, life) & attempts, what=f"the handlers of {life.name} at their end")


def _late_writes(history: History) -> dict[str, int]:
    """Writes tried by attempts that were under way when their process was stopped, and had lost the job by then."""
    current = {job: row.epoch for job, row in history.jobs.items()}
    late = {"refused": 0, "accepted": 0, "unknown": 0}
    for mark in history.txs:
        stopped = any(
            what == "stop" and when < mark.mono for what, when in history.processes.get(mark.life, ())
        )
        if mark.word != "try" and stopped and mark.epoch < current.get(mark.job, 0):
            late["accepted" if mark.word == "ok" else mark.word] += 1
    return late


def _slowest_pick_up(history: History) -> float:
    """Seconds from the moment when a job was handed back until it was claimed again, at worst; it stands in line."""
    started = {(row.job, row.epoch): row.started for row in history.attempts}
    waits = [
        started[row.job, row.epoch + 1] - row.ended
        for row in history.attempts
        if row.outcome == "released" and row.ended is not None and (row.job, row.epoch + 1) in started
    ]
    return round(max(waits, default=0) / 1e6, 2)


def _slowest_rescue(history: History) -> float:
    """Seconds from the death of a process until a job it was working on was ready again, at worst."""
    gone = {
        life: when for life, events in history.processes.items() for what, when in events if what == "exit"
    }
    killed = {life for life, events in history.processes.items() if any(what == "kill" for what, _ in events)}
    if not history.begins:
        return 0.0
    offset = history.begins[0].wall - history.begins[0].mono
    ended = {(mark.job, mark.epoch) for mark in history.ends}
    rescued = {(row.job, row.epoch): row for row in history.attempts if row.outcome == "rescued"}
    slowest = 0
    for mark in history.begins:
        if mark.life in killed and mark.life in gone and (mark.job, mark.epoch) not in ended:
            row = rescued.get((mark.job, mark.epoch))
            if row is not None and row.ended is not None:
                slowest = max(slowest, row.ended * 1000 - (gone[mark.life] + offset))
    return round(slowest / 1e9, 2)
