"""`python -m onceward_apps.meals keys | install | sample`: secrets for an environment, the schema, people to try it with."""

from __future__ import annotations

import argparse
import sys
from datetime import timedelta

import psycopg

from onceward.dsn import resolve_dsn
from onceward.install import upgrade
from onceward_apps.kit import schema
from onceward_apps.meals.settings import new_keys

NAMES = ("Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Frances", "Tony", "Margaret", "Ken")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m onceward_apps.meals", description=__doc__)
    parser.add_argument("command", choices=["keys", "install", "sample"])
    command = parser.parse_args().command
    if command == "keys":
        for name, value in new_keys().items():
            sys.stdout.write(f"export {name}='{value}'\n")
        return 0
    dsn = resolve_dsn(None)
    upgrade(dsn)
    applied = schema.install(dsn, "meals", "meals")
    sys.stdout.write("schema meals is installed\n" if applied else "schema meals is up to date\n")
    if command == "sample":
        sys.stdout.write(f"{sample(dsn)} sample customers are new\n")
    return 0


def sample(dsn: str) -> int:
    """Customers with subscriptions; those who are there already stay as they are."""
    new = 0
    with psycopg.connect(dsn) as connection:
        for name in NAMES:
            stripe_id = f"cus_sample_{name.lower()}"
            if connection.execute("select id from meals.customer_of_stripe(%s)", [stripe_id]).fetchone():
                continue
            new += 1
            connection.execute(
                "select meals.set_subscription(%s, 'active', onceward.now() - %s, meals.register_customer(%s, %s, %s, %s))",
                [
                    f"sub_sample_{name.lower()}",
                    timedelta(days=1),
                    stripe_id,
                    f"{name.lower()}@example.com",
                    name,
                    f"@{name.lower()}_sample",
                ],
            )
    return new


if __name__ == "__main__":
    sys.exit(main())
