"""A worker that speaks SQL only, as one in another language would: register, claim, complete or fail, heartbeat.

Every write after the claim names the epoch of that claim. A write that comes too late is refused.
"""

import psycopg

from onceward import Client
from onceward.dsn import resolve_dsn

if __name__ == "__main__":
    with Client() as client:
        for city in ("Oslo", "Nowhere"):
            client.enqueue("weather", {"city": city}, max_attempts=1)

    with psycopg.connect(resolve_dsn(), autocommit=True) as sql:
        (worker,) = sql.execute("select onceward.register_worker('sql worker')").fetchone()
        claimed = sql.execute(
            "select job_id, epoch, payload from onceward.claim(%s, array['default'], 10)", [worker]
        ).fetchall()
        for job, epoch, payload in claimed:
            sql.execute("select onceward.heartbeat(%s)", [worker])
            if payload["city"] == "Oslo":
                sql.execute('select onceward.complete(%s, %s, \'{"sky": "blue"}\')', [job, epoch])
            else:
                sql.execute("select onceward.fail(%s, %s, 'NotFound', 'no such city')", [job, epoch])
        try:
            sql.execute("select onceward.complete(%s, %s)", [job, epoch])
        except psycopg.Error as error:
            print(error.sqlstate, error.diag.message_primary.replace(str(job), "…"))
        sql.execute("select onceward.retire_worker(%s)", [worker])
        for city, state, result in sql.execute(
            "select payload ->> 'city', state, result from onceward.jobs where task = 'weather' order by id"
        ):
            print(city, state, result or "")

# Output:
# OW001 lease on job … is no longer held
# Oslo done {'sky': 'blue'}
# Nowhere dead_letter
