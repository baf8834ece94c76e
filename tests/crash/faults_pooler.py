"""Everything through PgBouncer in transaction mode, which has fewer connections to the server than clients: workers killed,
its sessions terminated, itself killed.  And how soon a job begins where no NOTIFY arrives."""

from __future__ import annotations

import math

from tests.crash import chains, clients
from tests.crash.arena import Arena
from tests.crash.clients import Work
from tests.crash.fleet import Life
from tests.crash.verdict import CannotInject, Verdict
from tests.support import pgbouncer
from tests.support.pgbouncer import PgBouncer

LEASE = 4.0
POOL_SIZE = 4
PRODUCERS = 3
AT_ONCE = 2
BACKLOG = 150
# Jobs that end between two blows.
BETWEEN = 40
# PgBouncer comes by TCP, and the harness by the socket: only what stands behind the pooler is hit.
TERMINATE = """
select pg_terminate_backend(pid) from pg_stat_activity
 where datname = current_database() and backend_type = 'client backend' and client_addr is not null
 order by random() limit %s
"""
QUIET = """
select id::text, (extract(epoch from created_at) * 1000000)::bigint from onceward.jobs
 where payload ->> 'token' like 'quiet%'
"""
BOOKED = """
select count(*) filter (where e.rows is null), count(*) filter (where e.rows > 1)
  from onceward.jobs as j
  left join (select token, count(*) as rows from public.chain_effect group by 1) as e on e.token = j.payload ->> 'token'
 where j.task = 'booked'
"""
# How a server says that a call has met what another client has prepared, or has missed what it has prepared itself.
CONFUSED = "prepared statement"


class _Behind:
    """The fleet behind the pooler, and what happens to it."""

    def __init__(self, arena: Arena, bouncer: PgBouncer, workers: int) -> None:
        self.arena = arena
        self.bouncer = bouncer
        self.dsn = bouncer.dsn(arena.name)
        self.terminated = 0
        self.most = {"clients": 0, "servers": 0}
        self.fleet = [self._worker() for _ in range(workers)]

    def _worker(self) -> Life:
        # It polls as often as a worker does that was not told otherwise.
        return self.arena.spawn(dsn=self.dsn, concurrency=10, lease=LEASE, grace=5.0)

    def kill(self) -> None:
        victim = self.arena.random.choice(self.fleet)
        self.arena.signal(victim, "kill")
        self.fleet.remove(victim)
        self.fleet.append(self._worker())

    def terminate(self) -> None:
        self.terminated += sum(gone for (gone,) in self.arena.query(TERMINATE, AT_ONCE))

    def restart(self) -> None:
        self.bouncer.kill()
        self.bouncer.start()

    def look(self) -> None:
        for what in self.most:
            self.most[what] = max(self.most[what], self.bouncer.count(what))

    def leave_one(self) -> None:
        """With several, a job would begin when the first of them looks."""
        while len(self.fleet) > 1:
            leaving = self.fleet.pop()
            self.arena.signal(leaving, "term")
            self.arena.until_exited(leaving)
        self.arena.until_registered(*self.fleet)


def pooler(
    arena: Arena, *, kills: int, sessions: int, restarts: int, workers: int, lone_jobs: int, start_ms: int
) -> Verdict:
    """Blows in random order under load, then jobs one by one: 99 % of them begin within `start_ms`."""
    if pgbouncer.PROGRAM is None:
        raise CannotInject(pgbouncer.MISSING)
    arena.execute(chains.TABLES)
    folder = arena.folder / "pgbouncer"
    folder.mkdir()
    server = f"host=127.0.0.1 port={arena.server.port} user=postgres"
    with PgBouncer(folder, server, pool_size=POOL_SIZE) as bouncer:
        behind = _Behind(arena, bouncer, workers)
        producers = clients.produce(
            arena, 100_000_000, producers=PRODUCERS, dsn=behind.dsn, work=_work, backlog=BACKLOG
        )
        blows = [behind.kill] * kills + [behind.restart] * restarts
        blows += [behind.terminate] * math.ceil(sessions / AT_ONCE)
        arena.random.shuffle(blows)
        for blow in blows:
            arena.until_done(arena.done() + BETWEEN)
            behind.look()
            blow()
        arena.until_done(arena.done() + BETWEEN)
        for producer in producers:
            producer.stop()
        problems = clients.finish(producers)
        arena.until_quiet()
        behind.leave_one()
        problems += _one_by_one(arena, behind.dsn, lone_jobs)
        waits = _waits(arena)
        verdict = arena.verdict(
            "behind a pooler",
            {"kills": kills, "sessions": behind.terminated, "pooler_restarts": restarts},
            facts={
                **{f"most_{what}": count for what, count in behind.most.items()},
                "lone_jobs": len(waits),
                "start_p50_ms": _percentile(waits, 0.5),
                "start_p99_ms": _percentile(waits, 0.99),
                **clients.told(producers),
            },
            problems=problems,
        )
    _judge(arena, verdict, start_ms)
    return verdict


def _work(rng):
    """The mix of most faults, and steps that are transactions, on connections that the worker lends."""
    return Work("booked", rng.randrange(40)) if rng.random() < 0.2 else clients.mixed(rng)


def _one_by_one(arena: Arena, dsn: str, count: int) -> list[str]:
    """Each comes when the one before is done, just after its worker has looked: none would have to wait longer."""
    problems: list[str] = []
    for number in range(count):
        problems += clients.finish(
            clients.produce(arena, 1, producers=1, prefix=f"quiet{number}-", dsn=dsn, work=lambda _: Work())
        )
        arena.until_quiet()
    return problems


def _waits(arena: Arena) -> list[int]:
    """Milliseconds from the call that enqueued a lone job until its handler began, rising."""
    begun = {mark.job: mark.wall for mark in arena.marks().begins}
    ready = arena.query(QUIET)
    return sorted(round(begun[job] / 1e6 - moment / 1e3) for job, moment in ready if job in begun)


def _percentile(rising: list[int], share: float) -> int | None:
    return rising[math.ceil(share * len(rising)) - 1] if rising else None


def _judge(arena: Arena, verdict: Verdict, start_ms: int) -> None:
    """What is wanted beside a clean ledger."""
    facts = verdict.facts
    if facts["start_p99_ms"] is None or facts["start_p99_ms"] > start_ms:
        verdict.problems.append(f"lone jobs began after {facts['start_p99_ms']} ms (p99)")
    if facts["most_clients"] <= facts["most_servers"]:
        verdict.problems.append("the clients did not share connections to the server")
    # What the ledger cannot show: such a call was refused this time, because the statement had other parameters.
    confused = arena.output().count(CONFUSED)
    confused += arena.value("select count(*) from onceward.attempts where message like %s", f"%{CONFUSED}%")
    if confused:
        verdict.problems.append(
            f"{confused} calls met a prepared statement that was not theirs, or missed their own"
        )
    ((missing, twice),) = arena.query(BOOKED)
    facts["booked"] = arena.value("select count(*) from public.chain_effect")
    if missing or twice:
        verdict.problems.append(f"rows of transaction steps: {missing} missing, {twice} twice")
