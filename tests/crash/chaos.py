"""The crash tests with counts of your own: `make chaos ARGS="--only kills --kills 1000 --jobs 100000"`.

Prints a JSON verdict for each fault as it ends, and one for all of them at the end.  Exits with 1 unless all are clean.
The seed decides what is chosen at random; the same seed with the same counts makes the same choices.
"""

from __future__ import annotations

import argparse
import json
import logging
import secrets
import sys
from pathlib import Path

from tests.crash.faults import FAULTS, run
from tests.crash.server import Server
from tests.crash.verdict import Verdict


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    # The pools of clients report every connection that was cut; that is what happens here all the time.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    seed = secrets.randbelow(2**32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    verdicts: list[Verdict] = []
    server = Server()
    try:
        for _ in range(given.rounds):
            for name in given.only or FAULTS:
                fault = FAULTS[name]
                counts = {
                    option: getattr(given, option)
                    if getattr(given, option) is not None
                    else (fault.full if given.full else fault.small)[option]
                    for option in fault.small
                }
                verdicts.append(run(server, name, seed + len(verdicts), counts, keep=given.keep))
                print(verdicts[-1].to_json(), flush=True)
    finally:
        server.close()
    skipped = {verdict.fault: verdict.skipped for verdict in verdicts if verdict.skipped}
    verdicts = [verdict for verdict in verdicts if not verdict.skipped]
    clean = bool(verdicts) and all(verdict.clean for verdict in verdicts)
    summary = {
        "seed": seed,
        "clean": clean,
        "unclean": [verdict.fault for verdict in verdicts if not verdict.clean],
        "skipped": skipped,
        "injected": {verdict.fault: verdict.injected for verdict in verdicts},
        "ledger": {
            kind: sum(verdict.ledger.get(kind, 0) for verdict in verdicts)
            for kind in dict.fromkeys(kind for verdict in verdicts for kind in verdict.ledger)
        },
        "seconds": round(sum(verdict.seconds for verdict in verdicts), 1),
    }
    print(json.dumps(summary), flush=True)
    return 0 if clean else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.chaos", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(FAULTS),
        metavar="FAULT",
        help=f"of: {', '.join(FAULTS)}",
    )
    parser.add_argument(
        "--seed", type=int, help="makes a run repeatable; without it, one is drawn and printed"
    )
    parser.add_argument("--full", action="store_true", help="the full counts, which take many hours")
    parser.add_argument("--rounds", type=int, default=1, help="how often to go through all of them")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="where to keep the ledgers of runs that are not clean"
    )
    counts = parser.add_argument_group("counts, where they differ from those of make test")
    options: dict[str, list[str]] = {option: [] for fault in FAULTS.values() for option in fault.small}
    for name, fault in FAULTS.items():
        for option, small in fault.small.items():
            options[option].append(f"{name}: {small:,}, full {fault.full[option]:,}")
    for option, known in options.items():
        counts.add_argument(f"--{option.replace('_', '-')}", type=int, metavar="N", help="; ".join(known))
    return parser


if __name__ == "__main__":
    sys.exit(main())
