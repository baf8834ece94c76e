"""Workers of the proof system that kill themselves at a point, forked from a process that has imported everything.

A point lies before and after every SQL call of the worker, every call and commit of a step's transaction, every file
written and every email sent; its name ends with how often it was passed.  Reads {"dsn", "folder", "port", "at"} per line, and
answers with the exit status (minus nine, when the worker came to its point) and the points that it passed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from onceward import contrib
from onceward.deliveries import Resend
from onceward.deliveries.http import ssl_context
from onceward.worker import Worker
from onceward.worker.link import Link
from onceward.worker.transaction import Transaction
from onceward_apps.kit.storage import Storage
from onceward_apps.proof import store
from onceward_apps.proof.jobs import make_app
from onceward_apps.proof.settings import PUBLIC, Settings

LEASE = timedelta(seconds=5)
SECRET = b"only for tests, and of no use elsewhere"


def application(dsn: str, folder: str, port: int):
    storage = Storage(Path(folder).as_uri(), "http://127.0.0.1:8000/proof-assets", [SECRET], PUBLIC)
    way = Resend("key", "production@protocolraw.co.uk", f"http://127.0.0.1:{port}")
    app = make_app(Settings(storage, "packer@example.com"), dsn, email=way)
    # One batch at a time, and nothing else: the points are those of the pipeline.
    app.schedules.clear()
    return app


def live(dsn: str, folder: str, port: int, at: str, tell: Callable[[str], None]) -> None:
    passed: Counter[str] = Counter()

    def point(name: str) -> None:
        passed[name] += 1
        tell(f"{name} {passed[name]}")
        if f"{name} {passed[name]}" == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(owner: Any, name: str, label: Callable[..., str]) -> None:
        function = getattr(owner, name)

        async def watched(*args: Any, **kwargs: Any) -> Any:
            what = label(*args)
            point(f"before {what}")
            answer = await function(*args, **kwargs)
            point(f"after {what}")
            return answer

        setattr(owner, name, watched)

    watch(Link, "run", lambda link, call, *rest: call.sql.partition("onceward.")[2].partition("(")[0])
    watch(contrib, "run_async", lambda connection, call: "checkpoint")
    watch(Transaction, "run_async", lambda step, *rest: f"transaction {step._place.name}")
    watch(
        store,
        "call",
        lambda connection, statement, *rest: statement.partition("raw_ops.")[2].partition("(")[0],
    )
    watch(Storage, "put", lambda storage, path, *rest: f"put {path.partition('/')[0]}")
    watch(Resend, "send", lambda provider, outgoing: "email")
    asyncio.run(Worker(application(dsn, folder, port), dsn=dsn, lease=LEASE).drain())


def main() -> None:
    ssl_context()
    for line in sys.stdin:
        spec = json.loads(line)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                live(**spec, tell=lambda name, to=write: os.write(to, f"{name}\n".encode()))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        os.close(write)
        _, status = os.waitpid(pid, 0)
        # A life passes some hundred points: they fit into the pipe.
        names = os.read(read, 65536).decode().splitlines()
        os.close(read)
        print(json.dumps([os.waitstatus_to_exitcode(status), names]), flush=True)


if __name__ == "__main__":
    main()
