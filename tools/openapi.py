"""Make docs/reference/openapi.json, the description of the HTTP API, from its code; with --check, fail when it is stale."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from onceward.web.api.build import described, description

TARGET = Path(__file__).parent.parent / "docs/reference/openapi.json"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.openapi", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; exit status 1 when stale")
    check = parser.parse_args(arguments).check
    text = json.dumps(description(described()), indent=1, ensure_ascii=False) + "\n"
    if check:
        if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
            return 0
        print(f"error: {TARGET.name} is stale\nhint: Run python -m tools.openapi.", file=sys.stderr)
        return 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
