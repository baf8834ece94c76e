"""`python -m onceward_apps.meals keys | install | sample | kiosks`: secrets, the schema, people to try it with, links that set up counters."""

from __future__ import annotations

import argparse
import os
import sys
from urllib.parse import quote

from onceward.dsn import resolve_dsn
from onceward.install import upgrade
from onceward_apps.meals import sample
from onceward_apps.meals.settings import Settings, new_keys
from onceward_apps.meals.system import Meals


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m onceward_apps.meals", description=__doc__)
    parser.add_argument("command", choices=["keys", "install", "sample", "kiosks"])
    command = parser.parse_args().command
    if command == "keys":
        for name, value in new_keys().items():
            sys.stdout.write(f"export {name}='{value}'\n")
        return 0
    settings = Settings.from_environ(os.environ)
    if command == "kiosks":
        for name, secret in settings.kiosks.items():
            sys.stdout.write(f"{name}  {settings.base_url}/kiosk#{quote(secret, safe='')}\n")
        return 0
    dsn = resolve_dsn(None)
    upgrade(dsn)
    with Meals(settings, dsn=dsn) as meals:
        sys.stdout.write("schema meals is installed\n" if meals.install() else "schema meals is up to date\n")
        if command == "sample":
            sys.stdout.write(f"{sample.fill(meals)} sample customers are new\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
