from __future__ import annotations

import signal
from importlib.metadata import entry_points

import pytest
from hypothesis import HealthCheck, settings

from tests.support import dice
from tests.support.reuse import Reuse

# A shell without job control has what it starts in the background ignore Ctrl+C, and nohup has it ignore the end of the terminal;
# so would the programs to which tests send these signals.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)

# The plugin registers itself through its entry point; an installation made before that was declared has none.
if not entry_points(group="pytest11", name="onceward"):
    pytest_plugins = ["onceward.testing.plugin"]

# The database decides how long an example takes, and a shared machine decides how long the database takes.
settings.register_profile(
    "onceward",
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    derandomize=dice.REPEATED,
)
settings.load_profile("onceward")


# The files that take longest, longest first.  Begun last, each would keep one process busy while the others have ended.
LONGEST = (
    "tests/bench/test_bench.py", "tests/web/test_browser.py", "tests/apps/proof/test_browser.py", "tests/web/api/test_schema.py",
    "tests/apps/alerts/test_pages.py", "tests/apps/meals/test_browser.py", "tests/web/test_injection.py",
    "tests/docs/test_examples.py", "tests/web/test_pages.py", "tests/apps/alerts/test_checklist.py",
    "tests/sql/test_tenant_functions.py", "tests/sql/test_dependency_races.py", "tests/docs/test_demo.py",
    "tests/sdk/test_supervisor.py", "tests/sdk/test_workflows.py", "tests/migrations/test_privileges.py",
    "tests/apps/intake/test_browser.py", "tests/sql/test_run_keys.py", "tests/sql/test_monitor_thresholds.py",
    "tests/sdk/test_client.py", "tests/sql/test_limits.py", "tests/apps/intake/test_uploads.py",
    "tests/apps/intake/reading/test_scan.py", "tests/sdk/test_steps.py", "tests/test_embedded.py",
    "tests/apps/alerts/sync/test_http.py", "tests/apps/meals/test_races.py", "tests/apps/proof/test_pipeline.py",
    "tests/sql/test_dependencies.py", "tests/sdk/test_worker.py", "tests/apps/intake/reading/test_benchmark.py",
    "tests/sql/test_roles.py", "tests/apps/alerts/test_rule_pages.py", "tests/web/test_sso.py", "tests/cli/test_new.py",
    "tests/audit/test_tampering.py", "tests/cli/test_db.py", "tests/apps/proof/test_portal.py",
    "tests/apps/meals/test_desk.py", "tests/web/api/test_nouns.py",
)  # fmt: skip
# The same for crash tests, which are handed out one by one: faults, and tests by their names.
LONGEST_FAULTS = (
    "kills", "test_the_issuing_worker_killed_again_and_again_leaves_one_token_and_one_email_each", "poison", "disk", "hunt",
    "step_points", "restarts", "cuts", "deploys", "clocks", "ticks", "limits", "flows", "sessions",
    "test_five_hours_without_the_provider_and_workers_killed_in_between", "test_every_crash_point[smtp]", "storm",
    "test_mails_by_smtp", "test_the_drill",
)  # fmt: skip


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Long files and long faults first; everything else stays in its random order."""
    places = {config.rootpath / name: place for place, name in enumerate(LONGEST)}
    faults = {
        name if name.startswith("test_") else f"test_the_ledger_is_clean_after[{name}]": place
        for place, name in enumerate(LONGEST_FAULTS)
    }
    later = len(places) + len(faults)
    items.sort(key=lambda item: places.get(item.path, faults.get(item.name, later)))


@pytest.fixture(scope="session")
def reuse(onceward_server):
    reuse = Reuse(onceward_server)
    yield reuse
    reuse.close()


@pytest.fixture
def db(reuse):
    """The contract in SQL on a database as if it were fresh: a superuser's connection, and time that stands still."""
    with reuse.engine() as engine:
        # On the connection that is there; the clock opens one of its own when a test moves it.
        engine.run("update onceward_testing.clock set pinned = statement_timestamp()")
        yield engine
