"""A look at the database with the engine's eyes: what could lose work, slow it down, or keep it from running."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import psycopg

from onceward import calls, doctor_calls, doctor_schema
from onceward.doctor_model import Finding, Server, listed, span
from onceward.doctor_vacuum import autovacuum, dead_rows, pinned_xmin
from onceward.errors import OncewardError

__all__ = ["Finding", "Server", "examine"]

OLD_READY = timedelta(minutes=5)
SKEW = timedelta(seconds=1)
# How long the probe of a pooler may wait for a second connection.
PROBE_SECONDS = 3.0
SETTINGS = (
    "server_version", "server_version_num", "fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names",
    "autovacuum", "track_counts", "max_connections", "superuser_reserved_connections", "reserved_connections",
    "default_transaction_isolation", "default_transaction_read_only",
)  # fmt: skip


def examine(server: Server) -> list[Finding]:
    """All findings.  Nothing is written.  A look that is not allowed is a finding itself."""
    settings = server.run(doctor_calls.settings(SETTINGS))
    looks: list[tuple[str, Callable[[], Iterable[Finding]]]] = [
        ("server", lambda: [server_version(settings, standby=server.run(doctor_calls.in_recovery()))]),
        ("durability", lambda: durability(settings)),
        ("pooler", lambda: [pooler(server)]),
        ("clock", lambda: [clock_skew(server)]),
        ("schema", lambda: doctor_schema.version(server)),
        ("connections", lambda: [connections(server, settings)]),
        ("roles", lambda: [roles(server)]),
        ("xmin", lambda: [pinned_xmin(server)]),
        ("autovacuum", lambda: [autovacuum(server, settings)]),
        ("dead rows", lambda: [dead_rows(server)]),
    ]
    if server.run(doctor_calls.has_schema()):
        looks += [
            ("engine clock", lambda: [engine_clock(server)]),
            ("partitions", lambda: [partitions(server)]),
            ("workers", lambda: [workers(server)]),
            ("oldest ready", lambda: [oldest_ready(server)]),
            ("deliveries", lambda: [deliveries(server)]),
        ]
    found: list[Finding] = []
    for name, look in looks:
        try:
            found += look()
        except (psycopg.Error, OncewardError) as error:
            reason = (
                error.message
                if isinstance(error, OncewardError)
                else error.diag.message_primary or str(error)
            )
            found.append(
                Finding(
                    name,
                    "warn",
                    "could not look",
                    reason,
                    "Run doctor with a role that may look, such as the owner.",
                )
            )
    return found


# ---------------------------------------------------------------- the server


def server_version(settings: dict[str, str], *, standby: bool) -> Finding:
    version = settings["server_version"].split()[0]
    if int(settings["server_version_num"]) < 150000:
        return Finding(
            "server version", "fail", version, "Onceward needs PostgreSQL 15 or later.", "Upgrade the server."
        )
    if standby:
        return Finding(
            "server version",
            "fail",
            f"{version}, a standby",
            "Nothing can be written here.",
            "Connect to the primary.",
        )
    if settings.get("default_transaction_read_only") == "on":
        return Finding(
            "server version",
            "fail",
            f"{version}, read-only",
            "Transactions cannot write unless they ask to.",
            "Set default_transaction_read_only to off.",
        )
    return Finding("server version", "ok", version, "PostgreSQL 15 to 18 are supported.")


def durability(settings: dict[str, str]) -> list[Finding]:
    found = []
    for name, meaning in (
        ("fsync", "Committed work survives a crash of the machine."),
        ("full_page_writes", "Pages that were half written in a crash are repaired."),
    ):
        if settings[name] == "on":
            found.append(Finding(name, "ok", "on", meaning))
        else:
            found.append(
                Finding(
                    name,
                    "fail",
                    settings[name],
                    "A crash of the machine can lose or corrupt everything.",
                    f"Set {name} = on and reload the server.",
                )
            )
    return [*found, _synchronous_commit(settings)]


def _synchronous_commit(settings: dict[str, str]) -> Finding:
    value, standbys = settings["synchronous_commit"], settings.get("synchronous_standby_names", "")
    if value == "off":
        return Finding(
            "synchronous_commit",
            "fail",
            value,
            "A crash can lose jobs whose commit was already confirmed.",
            "Set synchronous_commit = on, at least for the roles that enqueue and work.",
        )
    if value == "local" and standbys:
        return Finding(
            "synchronous_commit",
            "warn",
            value,
            f"Commits do not wait for the synchronous standbys ({standbys}); a failover can lose confirmed jobs.",
            "Set synchronous_commit = on.",
        )
    where = f"here and on {standbys}" if standbys else "on this server"
    return Finding("synchronous_commit", "ok", value, f"A confirmed commit is on disk {where}.")


def connections(server: Server, settings: dict[str, str]) -> Finding:
    used = server.run(doctor_calls.connections())
    reserved = sum(
        int(settings.get(name, "0")) for name in ("superuser_reserved_connections", "reserved_connections")
    )
    room = int(settings["max_connections"]) - reserved
    value = f"{used} of {room}"
    if used < room * 0.8:
        return Finding(
            "connections", "ok", value, "A worker needs 3, and one with --processes N needs N + 1."
        )
    return Finding(
        "connections",
        "fail" if used >= room * 0.95 else "warn",
        value,
        "New workers and clients may soon be refused.",
        "Close idle connections, use a pooler, or raise max_connections.",
    )


# ---------------------------------------------------------------- between here and there


def pooler(server: Server) -> Finding:
    own = server.connection
    # A pooler answers the start-up with a key of its own; the server would have sent its process id.
    direct = own.info.backend_pid
    seen = {server.run(doctor_calls.backend_pid()) for _ in range(3)}
    if seen == {direct}:
        return Finding("pooler", "ok", "none", "This connection goes straight to the server.")
    shared = len(seen) > 1 or _probe_shares_backend(server.conninfo, seen)
    return pooler_finding(shared=shared)


def pooler_finding(*, shared: bool | None) -> Finding:
    if shared is None:
        return Finding(
            "pooler", "warn", "mode unknown", "A pooler is in between, and it had no second connection to spare.",
            "Give its pool at least 3 connections for a worker, and N + 2 for one with --processes N.",
        )  # fmt: skip
    if shared:
        return Finding(
            "pooler",
            "ok",
            "transaction mode",
            "Everything works; wake-ups by NOTIFY may not arrive, so idle workers start jobs by polling.",
            "For the shortest start, let workers connect straight to the server.",
        )
    return Finding("pooler", "ok", "session mode", "Each client keeps one connection, as without a pooler.")


def _probe_shares_backend(conninfo: str, seen: set[int]) -> bool | None:
    """Whether a second client is given the backend that the first one has just used.  None: it had to wait."""
    answer: list[int] = []

    def ask() -> None:
        with psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as other:
            row = other.execute(doctor_calls.backend_pid().sql).fetchone()
            answer.append(int(row[0]) if row else 0)

    # In a thread that may be left behind: a pooler without a free connection does not answer.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    return answer[0] in seen if answer else None


def clock_skew(server: Server) -> Finding:
    best: tuple[timedelta, timedelta] | None = None
    for _ in range(5):
        before = datetime.now(UTC)
        there = server.run(doctor_calls.server_clock())
        after = datetime.now(UTC)
        # Half the round trip is the most that the middle can be wrong by.
        sample = (after - before, there - (before + (after - before) / 2))
        best = sample if best is None else min(best, sample)
    assert best is not None
    round_trip, skew = best
    return skew_finding(skew, round_trip / 2)


def skew_finding(skew: timedelta, uncertainty: timedelta) -> Finding:
    milliseconds = skew.total_seconds() * 1000
    value = f"{round(milliseconds):+d} ms (± {uncertainty.total_seconds() * 1000:.0f})"
    if abs(skew) - uncertainty <= SKEW:
        return Finding("clock skew", "ok", value, "This machine and the server agree on the time.")
    return Finding(
        "clock skew",
        "warn",
        value,
        "The engine uses the server's clock only, but times computed on this machine (delays, logs) are off.",
        "Synchronise both machines with NTP.",
    )


def engine_clock(server: Server) -> Finding:
    offset = server.run(doctor_calls.engine_clock_offset())
    if abs(offset) < SKEW:
        return Finding("engine clock", "ok", "the server's", "onceward.now() is the time of the server.")
    return Finding(
        "engine clock",
        "fail",
        f"{offset.total_seconds():+.0f} s",
        "onceward.now() was replaced, as the testing kit does; schedules and leases are off.",
        'Put it back with what "onceward db sql" prints for clock.sql.',
    )


def roles(server: Server) -> Finding:
    known = server.run(doctor_calls.roles())
    missing = [name for name in doctor_calls.ROLES if name not in {role.name for role in known}]
    if missing:
        return Finding(
            "roles",
            "fail",
            f"missing: {listed(missing)}",
            "Grants are made to these roles.",
            'Run "onceward db init".',
        )
    user = server.reach.user
    short = [role.name.removeprefix("onceward_") for role in known if role.usable]
    members = "; ".join(f"{role.name}: {listed(role.members)}" for role in known if role.members)
    meaning = f"Members: {members}." if members else "No role is a member of them yet."
    if server.reach.superuser:
        return Finding("roles", "ok", f"{user} is superuser", meaning)
    if not short:
        return Finding(
            "roles",
            "fail",
            f"{user} has none",
            f'Role "{user}" can neither enqueue, nor work, nor look.',
            f'grant onceward_producer, onceward_worker to "{user}"',
        )
    if set(short) & {"producer", "worker", "operator"}:
        return Finding("roles", "ok", f"{user} is {', '.join(short)}", meaning)
    return Finding(
        "roles",
        "warn",
        f"{user} is {', '.join(short)}",
        f'Role "{user}" may not enqueue or work by those roles alone. {meaning}',
        f'grant onceward_producer, onceward_worker to "{user}", if it should.',
    )


# ---------------------------------------------------------------- the engine


def partitions(server: Server) -> Finding:
    found = server.run(doctor_calls.partitions())
    ahead = min((part.days_ahead if part.days_ahead is not None else -1 for part in found), default=-1)
    spilled = [f"about {part.default_rows:,} in {part.parent}" for part in found if part.default_rows]
    value = f"{max(ahead, 0)} days ahead" + (f"; default partition: {listed(spilled)}" if spilled else "")
    if ahead >= 3 and not spilled:
        return Finding(
            "partitions", "ok", value, "Archive and attempts have partitions for the days to come."
        )
    return Finding(
        "partitions",
        "warn",
        value,
        "Rows of days without a partition go to the default one, which is never dropped.",
        "Workers make them; run one, or select onceward.ensure_partitions() as a worker.",
    )


def workers(server: Server) -> Finding:
    known = server.run(calls.workers())
    live = [worker for worker in known if worker.state == "live"]
    expired = [worker for worker in known if worker.state == "expired"]
    value = f"{len(live)} live, {len(expired)} expired"
    if expired:
        names = listed([f"{worker.name} on {worker.host}" for worker in expired])
        return Finding(
            "workers",
            "warn",
            value,
            f"Stopped without notice: {names}. Any live worker takes over their jobs.",
            "Start a worker." if not live else None,
        )
    if not live:
        return Finding(
            "workers", "warn", value, "Nobody runs jobs.", "Start one: onceward worker package.module:app"
        )
    return Finding("workers", "ok", value, f"{sum(worker.running for worker in live)} jobs are running.")


def oldest_ready(server: Server) -> Finding:
    now = server.run(calls.now())
    lanes = [
        lane for lane in server.run(calls.lanes()) if lane.oldest_ready_at is not None and not lane.paused
    ]
    if not lanes:
        return Finding("oldest ready", "ok", "none", "No job waits for a worker.")
    worst = min(lanes, key=lambda lane: lane.oldest_ready_at or now)
    assert worst.oldest_ready_at is not None
    age = max(now - worst.oldest_ready_at, timedelta(0))
    value = f"{span(age)} in lane {worst.name}"
    if age <= OLD_READY:
        return Finding("oldest ready", "ok", value, "Jobs start soon after they become ready.")
    return Finding(
        "oldest ready",
        "warn",
        value,
        f"{worst.ready:,} jobs are ready in that lane, and workers do not keep up.",
        f"Start more workers for it: onceward worker … --lanes {worst.name}",
    )


def deliveries(server: Server) -> Finding:
    found = server.run(calls.delivery_trouble())
    uncertain, abandoned = found.get("uncertain", 0), found.get("abandoned", 0)
    value = f"{uncertain:,} uncertain, {abandoned:,} abandoned"
    if uncertain:
        return Finding(
            "deliveries",
            "warn",
            value,
            "Uncertain ones may have arrived, and wait for a person.",
            "See them: onceward delivery list --state uncertain; then onceward delivery decide.",
        )
    if abandoned:
        return Finding(
            "deliveries",
            "warn",
            value,
            "Abandoned ones did not arrive, and nobody has decided about them.",
            "See them: onceward delivery list --state abandoned; then onceward delivery decide ID send-again or abandon.",
        )
    return Finding("deliveries", "ok", value, "No delivery waits for a decision.")
