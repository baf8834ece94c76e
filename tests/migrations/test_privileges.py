"""Installing without being a superuser, as on a hosted PostgreSQL."""

from __future__ import annotations

import psycopg
import pytest

from onceward.errors import OncewardError
from onceward.install import roles_statement, upgrade


def statement_of(error: OncewardError) -> str:
    """What the hint tells an administrator to run."""
    assert error.hint is not None
    said, _, statement = error.hint.partition("\n")
    assert "one statement" in said
    return statement


def run_as_one_statement(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        # The extended protocol takes one statement only.
        result = connection.pgconn.exec_params(statement.encode(), None)
        assert result.status == psycopg.pq.ExecStatus.COMMAND_OK, result.error_message


def works(cluster, dsn: str) -> None:
    """The one who installed can use everything and sees everything."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        job = connection.execute("select job_id from onceward.enqueue('ocr', p_tenant => 'acme')").fetchone()
        worker = connection.execute("select onceward.register_worker('w')").fetchone()
        assert job is not None
        assert worker is not None
        claim = connection.execute("select job_id, epoch from onceward.claim(%s)", worker).fetchone()
        connection.execute("select onceward.complete(%s, %s)", claim)
        assert connection.execute("select state from onceward.jobs where id = %s", job).fetchone() == (
            "done",
        )
        connection.execute("select onceward.tidy(), onceward.rescue(), onceward.ensure_partitions(20)")
    assert upgrade(dsn) == []


def test_an_owner_of_the_database_who_may_not_create_roles_is_told_the_one_statement(cluster):
    dsn = cluster.database(cluster.role("ordinary"))

    with pytest.raises(OncewardError, match='"ordinary" may not create the roles') as refused:
        upgrade(dsn)
    assert cluster.ask("select to_regnamespace('onceward')", dsn) is None
    run_as_one_statement(cluster.as_administrator(dsn), statement_of(refused.value))

    assert upgrade(dsn)
    works(cluster, dsn)


def test_the_statement_can_be_run_from_another_database_and_again(cluster):
    dsn = cluster.database(cluster.role("ordinary"))
    database = cluster.ask("select current_database()", dsn)

    for _ in range(2):
        run_as_one_statement(cluster.database(), roles_statement("ordinary", database))

    assert upgrade(dsn)


def test_names_that_need_quotes_are_quoted(cluster):
    dsn = cluster.database(cluster.role('O\'Neil "the" Admin'))

    with pytest.raises(OncewardError) as refused:
        upgrade(dsn)
    run_as_one_statement(cluster.as_administrator(dsn), statement_of(refused.value))

    assert upgrade(dsn)


def test_an_owner_of_the_database_who_may_create_roles_needs_nobody(cluster):
    dsn = cluster.database(cluster.role("creator", "createrole"))

    assert upgrade(dsn)
    works(cluster, dsn)


def test_a_role_that_owns_nothing_is_told_the_statement_and_can_install_then(cluster):
    stranger = cluster.role("stranger", "createrole")
    dsn = cluster.as_(stranger, cluster.database())

    with pytest.raises(OncewardError) as refused:
        upgrade(dsn)
    run_as_one_statement(cluster.as_administrator(dsn), statement_of(refused.value))

    assert upgrade(dsn)
    works(cluster, dsn)


def test_a_second_database_of_another_owner_needs_the_statement_too(cluster):
    first = cluster.database(cluster.role("creator", "createrole"))
    second = cluster.database(cluster.role("ordinary"))
    upgrade(first)

    with pytest.raises(OncewardError) as refused:
        upgrade(second)
    run_as_one_statement(cluster.as_administrator(second), statement_of(refused.value))

    assert upgrade(second)
    works(cluster, second)


def test_nothing_that_was_installed_has_the_rights_of_a_superuser(cluster):
    dsn = cluster.database()
    upgrade(dsn)

    owners = "select string_agg(distinct pg_get_userbyid(proowner), ',') from pg_proc where pronamespace = 'onceward'::regnamespace"
    assert cluster.ask(owners, dsn) == "onceward_owner"
    assert not cluster.ask(
        "select rolsuper or rolcreaterole or rolcreatedb or rolbypassrls from pg_roles where rolname = 'onceward_owner'"
    )


def test_an_application_role_that_was_granted_producing_can_produce_and_no_more(cluster):
    dsn = cluster.database()
    upgrade(dsn)
    app = cluster.as_(cluster.role("shop"), dsn)
    cluster.ask("grant onceward_producer to shop")

    assert cluster.ask("select created from onceward.enqueue('ocr')", app)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        cluster.ask("select onceward.promote()", app)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        cluster.ask("delete from onceward.job_private", app)
    assert cluster.ask("select count(*) from onceward.jobs", app) == 0


@pytest.mark.parametrize("installer", ["administrator", "creator", "ordinary"])
def test_the_backend_role_of_supabase_may_produce_work_and_operate(cluster, installer):
    cluster.role("service_role", "bypassrls")
    match installer:
        case "administrator":
            dsn = cluster.database()
        case "creator":
            dsn = cluster.database(cluster.role("creator", "createrole"))
        case "ordinary":
            dsn = cluster.database(cluster.role("ordinary"))
            run_as_one_statement(
                cluster.database(), roles_statement("ordinary", cluster.ask("select current_database()", dsn))
            )
    upgrade(dsn)

    service = cluster.as_("service_role", dsn)
    assert cluster.ask("select created from onceward.enqueue('ocr')", service)
    assert cluster.ask("select onceward.register_worker('w') is not null", service)
    assert cluster.ask("select onceward.add_lane('mail')", service)
    assert not cluster.ask("select pg_has_role('service_role', 'onceward_owner', 'member')")
