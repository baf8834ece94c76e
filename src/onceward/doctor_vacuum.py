"""What keeps dead rows alive: the checks of doctor on vacuum."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from onceward import doctor_calls
from onceward.doctor_calls import Pin, Reach, TableHealth
from onceward.doctor_model import Finding, Server, listed, span

OLD_TRANSACTION = timedelta(minutes=5)


def pinned_xmin(server: Server) -> Finding:
    pins = server.run(doctor_calls.pins())
    return pinned_finding(pins, server.reach)


def pinned_finding(pins: Sequence[Pin], reach: Reach) -> Finding:
    old = [pin for pin in pins if pin.since is None or pin.since > OLD_TRANSACTION]
    if old:
        return Finding(
            "pinned xmin",
            "warn",
            "; ".join(_shown(pin) for pin in old[:3]),
            "Rows that died since then cannot be removed; claiming slows down as they pile up.",
            _unpin(old[0]),
        )
    if not reach.sees_activity:
        return Finding(
            "pinned xmin",
            "warn",
            "not visible",
            f'Role "{reach.user}" cannot see the transactions of other roles.',
            f'grant pg_read_all_stats to "{reach.user}"',
        )
    value = f"oldest: {_shown(pins[0])}" if pins else "nobody"
    return Finding(
        "pinned xmin", "ok", value, "No transaction older than five minutes keeps dead rows alive."
    )


def _shown(pin: Pin) -> str:
    parts = [pin.kind if pin.pid is None else f"{pin.kind} pid {pin.pid}"]
    parts += [f"user {pin.who}"] if pin.who else []
    parts += [f'"{pin.application}"'] if pin.application else []
    parts += [pin.state] if pin.state else []
    parts += [f"for {span(pin.since)}"] if pin.since else []
    parts += [f"{pin.transactions:,} transactions"] if pin.transactions else []
    return ", ".join(parts)


def _unpin(pin: Pin) -> str:
    if pin.kind == "session":
        return f"End it: select pg_terminate_backend({pin.pid}); set idle_in_transaction_session_timeout."
    if pin.kind == "prepared transaction":
        return f"Settle it: rollback prepared '{pin.application}' (or commit prepared)."
    if pin.kind == "standby feedback":
        return "Shorten the queries on that standby, or set hot_standby_feedback = off there."
    return f"If nobody reads it: select pg_drop_replication_slot('{pin.application}')."


def autovacuum(server: Server, settings: dict[str, str]) -> Finding:
    off = [name for name in ("autovacuum", "track_counts") if settings[name] != "on"]
    disabled = [table.name for table in server.run(doctor_calls.tables()) if not table.autovacuum]
    if off or disabled:
        what = [f"{name} = off" for name in off] + [f"disabled on {name}" for name in disabled]
        return Finding(
            "autovacuum",
            "fail",
            listed(what),
            "Dead rows are never removed; the engine slows down until it stops.",
            "Turn it on: autovacuum = on, track_counts = on, alter table … reset (autovacuum_enabled).",
        )
    return Finding("autovacuum", "ok", "on", "Dead rows are removed.")


def dead_rows(server: Server) -> Finding:
    tables = server.run(doctor_calls.tables())
    return dead_rows_finding(tables)


def dead_rows_finding(tables: Sequence[TableHealth]) -> Finding:
    swollen = [table for table in tables if table.dead > max(50_000, table.live)]
    # Less than one live row per page, in a table of some size.
    bloated = [
        table for table in tables if table.heap_bytes > 64 * 1024**2 and table.heap_bytes > table.live * 8192
    ]
    if swollen or bloated:
        worst = (swollen or bloated)[0]
        vacuumed = f"vacuumed {worst.vacuumed_at:%Y-%m-%d %H:%M}Z" if worst.vacuumed_at else "never vacuumed"
        return Finding(
            "dead rows",
            "warn",
            f"{worst.name}: {worst.dead:,} dead, {worst.live:,} live, {worst.heap_bytes / 1024**2:,.0f} MiB, {vacuumed}",
            "Reads and claims walk over rows that are gone.",
            f"See who pins xmin; then vacuum (analyze) onceward.{worst.name}.",
        )
    dead, live = sum(table.dead for table in tables), sum(table.live for table in tables)
    return Finding("dead rows", "ok", f"{dead:,} dead, {live:,} live", "Vacuum keeps up.")
