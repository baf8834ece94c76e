"""Keep files small enough to be read in one go: a warning above 400 lines, an error above 600."""

from __future__ import annotations

import sys
from pathlib import Path

WARN, FAIL = 400, 600
FOLDERS = ("src", "tests", "tools")
# Generated, and meant for comparing rather than reading.
EXCEPT = {"snapshot.sql"}


def main(root: Path = Path()) -> int:
    failed = False
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*")):
        if path.suffix not in {".py", ".sql"} or path.name in EXCEPT:
            continue
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > FAIL:
            failed = True
            print(f"error: {path} has {lines} lines, more than {FAIL}", file=sys.stderr)
        elif lines > WARN:
            print(f"warning: {path} has {lines} lines, more than {WARN}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
