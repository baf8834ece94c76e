#!/bin/sh
# Print a Python that can make the virtual environment: 3.11 or newer, with venv and ensurepip.
# The one already in .venv comes first, so that an environment is not mixed from two; then $PYTHON; then the default.
set -u

for candidate in .venv/bin/python "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
  [ -n "$candidate" ] || continue
  # The base installation of an environment, since the environment itself may be about to be replaced.
  found=$("$candidate" -c '
import sys, venv, ensurepip
if sys.version_info < (3, 11): sys.exit(1)
print(getattr(sys, "_base_executable", sys.executable))
' 2>/dev/null) && [ -x "$found" ] || continue
  echo "$found"
  exit 0
done

echo "error: no Python 3.11 or newer with venv was found" >&2
echo "hint: install one (Debian and Ubuntu: apt install python3 python3-venv), or name it: make PYTHON=/path/to/python3" >&2
exit 1
