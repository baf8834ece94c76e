"""Limits, for tests that speak nothing but SQL."""

from __future__ import annotations

from psycopg.types.json import Jsonb


def limit(db, name="api", **options):
    return db.answer("set_limit", name=name, **options)


def uses(*names, key=None, weight=None):
    one = {k: v for k, v in {"key": key, "weight": weight}.items() if v is not None}
    return Jsonb([{"limit": name, **one} for name in names])


def fill(db, count, *names, **options):
    given = {name: options.pop(name) for name in ("key", "weight") if name in options}
    return [
        row.job_id
        for row in db.enqueue_many("ocr", [{}] * count, uses=uses(*names or ["api"], **given), **options)
    ]


def now_of(db, name="api", key=""):
    (row,) = db.call("limit_now", limit=name, key=key)
    return row
