"""`python -m <this package> <system> produce|work|serve|install <options as JSON>`, with the database in ONCEWARD_BENCH_DSN."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Coroutine
from typing import Any

from . import producer


def main() -> None:
    system, role, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    dsn = os.environ["ONCEWARD_BENCH_DSN"]
    module = importlib.import_module(f".{system}", __package__)
    if role == "produce":
        run(producer.serve(module.make_producer(**options), dsn))
    elif role == "install":
        run(module.install(dsn))
    elif role == "serve":
        threading.Thread(target=end_with_parent, daemon=True).start()
        module.serve(dsn)
    else:
        threading.Thread(target=end_with_parent, daemon=True).start()
        module.work(dsn, run, **options)


def run(main: Coroutine[Any, Any, None]) -> None:
    """On the fastest loop there is, for every system alike."""
    chosen: Any = asyncio.run
    with contextlib.suppress(ImportError):
        import uvloop

        chosen = uvloop.run
    chosen(main)


def end_with_parent() -> None:
    """Standard input is a pipe that closes with the benchmark, however that ends."""
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
