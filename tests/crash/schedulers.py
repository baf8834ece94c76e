"""Processes that do nothing but tick, and are killed all the time: `python -m tests.crash.schedulers DSN COUNT SEED`.

Forks them, kills one after the other with SIGKILL and starts another in its place, and has the server end the session of
some.  Runs until its input ends, then prints how many it has killed and how many sessions were ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import select
import signal
import sys
import time
import traceback

import psycopg

NAME = "crash scheduler"
PR_SET_PDEATHSIG = 1
END_ONE = """
select count(pg_terminate_backend(pid)) from (
  select pid from pg_stat_activity
   where application_name = %s and datname = current_database() and state = 'active' limit 1) as one
"""


def scheduler(dsn: str) -> None:
    """In the child; does not return."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        while True:
            try:
                with psycopg.connect(dsn, autocommit=True, application_name=NAME) as conn:
                    while True:
                        conn.execute("select onceward.tick()")
                        # Twenty that never pause leave no time for anything else.
                        time.sleep(random.uniform(0.0, 0.05))
            except psycopg.OperationalError:
                # Its session was ended: what a scheduler does then is to come back.
                continue
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)


def start(dsn: str) -> int:
    pid = os.fork()
    if pid == 0:
        scheduler(dsn)
    return pid


def main() -> None:
    dsn, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(seed)
    living = [start(dsn) for _ in range(count)]
    killed = ended = 0
    with psycopg.connect(dsn, autocommit=True) as conn:
        while not select.select([sys.stdin], [], [], rng.uniform(0.0, 0.03))[0]:
            if rng.random() < 0.3:
                row = conn.execute(END_ONE, [NAME]).fetchone()
                ended += row[0] if row else 0
            else:
                victim = rng.randrange(count)
                os.kill(living[victim], signal.SIGKILL)
                os.waitpid(living[victim], 0)
                living[victim] = start(dsn)
                killed += 1
    for pid in living:
        os.kill(pid, signal.SIGKILL)
    print(json.dumps({"killed": killed, "ended": ended}))


if __name__ == "__main__":
    main()
