"""Run keys: once per function, tenant, window and entity; whoever comes second hears who was first."""

from datetime import UTC, datetime

from onceward import Client
from onceward.errors import RunHeld
from onceward.run_keys import run_key
from onceward.runs import Runs


def look_for_alerts() -> None:
    raise TimeoutError("the shop does not answer")


if __name__ == "__main__":
    at = datetime(2026, 2, 7, 1, 30, tzinfo=UTC)
    key = run_key("detect-alerts", "acme", grain="day", at=at, zone="America/Los_Angeles", entity={"rule": 7})
    print(key)
    print(key == run_key("detect-alerts", "acme", at=at, zone="America/Los_Angeles", entity={"rule": 7.0}))

    with Client() as client:
        first, second = Runs(client, holder="host-1"), Runs(client, holder="host-2")
        try:
            with first.hold(key):
                look_for_alerts()
        except TimeoutError:
            print(first.get(key).state)
        with second.hold(key) as run:
            print(f"attempt {run.attempt} by {run.holder}")
            answer = first.begin(key)
            print(f"held by {answer.holder}: {answer.state}")
            run.result = {"alerts": 3}
        try:
            with first.hold(key):
                print("never printed")
        except RunHeld as error:
            print(error.message)
        print(first.get(key).result)

# Output:
# detect-alerts:acme:2026-02-06:a032ec53b4eb
# True
# failed
# attempt 2 by host-2
# held by host-2: running
# run "detect-alerts:acme:2026-02-06:a032ec53b4eb" has completed
# {'alerts': 3}
