"""Workers that kill themselves at a named point, forked from a process that has imported everything.

Reads one JSON object per line, {"dsn": …, "provider": …, "port": …, "at": "after effect"}, and answers with the exit status of
the worker: minus nine, when it came to its point, and zero, when it has emptied the lane.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from datetime import timedelta
from typing import Any

import aiosmtplib  # noqa: F401 - imported before the fork, as everything a delivery needs
import httpx  # noqa: F401

from onceward import Onceward
from onceward.deliveries import Deliveries, Resend, Smtp
from onceward.deliveries.http import ssl_context
from onceward.worker import Worker
from onceward.worker.link import Link

LEASE = timedelta(seconds=5)
CALLS = {"exchange": "claim", "begin_delivery": "begin", "settle_delivery": "settle"}


def application(provider: str, port: int) -> Onceward:
    app = Onceward()
    way = (
        Smtp("127.0.0.1", port, "none", sender="shop@example.com")
        if provider == "smtp"
        else Resend("key", "shop@example.com", f"http://127.0.0.1:{port}")
    )
    Deliveries(app, email=way, environ={})
    return app


def live(dsn: str, provider: str, port: int, at: str) -> None:
    app = application(provider, port)

    def point(name: str) -> None:
        if name == at:
            os.kill(os.getpid(), signal.SIGKILL)

    run = Link.run

    async def watched(self: Link, call: Any, begun: Any = None) -> Any:
        name = next((name for function, name in CALLS.items() if f"onceward.{function}(" in call.sql), None)
        if name is None:
            return await run(self, call, begun)
        if name != "claim":
            point(f"before {name}")
        answer = await run(self, call, begun)
        # An exchange that claims nothing is no claim.
        if name != "claim" or answer:
            point(f"after {name}")
        return answer

    Link.run = watched
    way = type(app.deliveries.providers["email"])
    send = way.send

    async def effect(self: Any, outgoing: Any) -> Any:
        point("before effect")
        report = await send(self, outgoing)
        point("after effect")
        return report

    way.send = effect
    asyncio.run(Worker(app, dsn=dsn, lease=LEASE).drain())


def main() -> None:
    ssl_context()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                live(**json.loads(line))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
