"""An upgrade comes while programs work: it stops nobody for long, and is nobody's deadlock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from onceward import install
from onceward.errors import OncewardError
from onceward.install import upgrade

pytestmark = [pytest.mark.race, pytest.mark.slow]

OLDER = "update onceward.code_private set digest = 'of an older version'"
# Every policy and trigger, and the transaction that wrote it.
RULES = """
select md5(string_agg(rule, ',' order by rule)) from (
  select 'p' || p.oid::text || p.xmin::text from pg_policy as p join pg_class as c on c.oid = p.polrelid where c.relnamespace = 'onceward'::regnamespace
  union all
  select 't' || t.oid::text || t.xmin::text from pg_trigger as t join pg_class as c on c.oid = t.tgrelid where c.relnamespace = 'onceward'::regnamespace
) as r (rule)
"""


@pytest.fixture
def dsn(cluster):
    dsn = cluster.database()
    upgrade(dsn)
    cluster.ask(OLDER, dsn)
    return dsn


def test_policies_and_triggers_that_are_right_are_left_alone(cluster, dsn):
    before = cluster.ask(RULES, dsn)

    assert upgrade(dsn) != []
    assert cluster.ask(RULES, dsn) == before


@pytest.mark.parametrize(
    "change",
    [
        "alter policy own_tenant on onceward.job_private using (true)",
        "alter policy own_tenant on onceward.job_private to public",
        "alter policy owner_all on onceward.job_private with check (false)",
        "drop policy own_tenant on onceward.job_private",
        "create policy owner_all on onceward.audit_private using (true)",
        "alter table onceward.audit_private disable trigger append_only_rows",
        "drop trigger append_only_whole on onceward.audit_private",
        "alter table onceward.job_private no force row level security",
    ],
)
def test_what_was_weakened_by_hand_is_mended(cluster, dsn, change):
    rules = (
        "select md5(string_agg(rule, ',' order by rule)) from ("
        " select p::text from pg_policies as p where p.schemaname = 'onceward'"
        " union all select pg_get_triggerdef(t.oid) || t.tgenabled::text from pg_trigger as t join pg_class as c on c.oid = t.tgrelid"
        "  where c.relnamespace = 'onceward'::regnamespace"
        " union all select c.relname || c.relrowsecurity::text || c.relforcerowsecurity::text from pg_class as c"
        "  where c.relnamespace = 'onceward'::regnamespace) as r (rule)"
    )
    before = cluster.ask(rules, dsn)
    cluster.ask(change, dsn)
    assert cluster.ask(rules, dsn) != before

    upgrade(dsn)

    assert cluster.ask(rules, dsn) == before


def test_a_transaction_that_has_enqueued_holds_up_no_upgrade_of_the_code(dsn):
    with psycopg.connect(dsn) as producer:
        producer.execute("select onceward.enqueue('ocr', p_key => 'k')")

        assert upgrade(dsn, on_wait=lambda whom: pytest.fail(f"waited for {whom}")) != []

        producer.execute("select onceward.enqueue('ocr', p_key => 'l')")
        producer.commit()


def test_an_upgrade_that_has_to_wait_lets_others_pass_and_goes_on_when_it_can(dsn):
    told = []
    with psycopg.connect(dsn, application_name="a report") as reader, ThreadPoolExecutor(1) as pool:
        reader.execute("select count(*) from onceward.jobs")
        upgrading = pool.submit(upgrade, dsn, on_wait=told.append)
        while not told:
            assert not upgrading.done(), upgrading.result()
        # The view that has to be replaced is still read, and by a transaction that begins now.
        with psycopg.connect(dsn) as other:
            assert other.execute("select count(*) from onceward.jobs").fetchone() == (0,)
        assert not upgrading.done()
        reader.commit()
        assert upgrading.result(60) != []

    assert "a report" in told[0]
    assert len(told) == 1


def test_an_upgrade_that_never_gets_its_turn_says_who_was_in_the_way(dsn, monkeypatch):
    monkeypatch.setattr(install, "_PATIENCE", 0.0)
    with psycopg.connect(dsn, application_name="a report") as reader:
        reader.execute("select count(*) from onceward.jobs")
        pid = reader.info.backend_pid

        with pytest.raises(OncewardError, match="other sessions keep what has to be changed") as raised:
            upgrade(dsn)

    assert f"process {pid} (a report, for" in raised.value.detail
    assert "Nothing was changed" in raised.value.hint
