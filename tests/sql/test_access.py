"""Operators, links, sessions and tokens, in SQL."""

from __future__ import annotations

import hashlib

import pytest

from tests.support.engine import refused


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


@pytest.fixture
def ana(db):
    db.call("add_operator", name="ana", role="admin")
    return "ana"


def sign_in(db, name: str, session: str = "s") -> None:
    db.call("create_link", operator=name, hash=digest("link " + session))
    db.call("use_link", hash=digest("link " + session), session_hash=digest(session))


def test_an_operator_is_added_changed_and_left_as_it_is(db):
    assert db.answer("add_operator", name="ana") == "created"
    assert db.answer("add_operator", name="ana") == "unchanged"
    assert db.answer("add_operator", name="ana", role="viewer", tenant="acme") == "changed"
    (row,) = db.call("operators")
    assert (row.name, row.role, row.tenant) == ("ana", "viewer", "acme")


def test_what_is_not_said_of_an_operator_stays(db):
    db.call("add_operator", name="ana", role="viewer", tenant="acme")
    assert db.answer("add_operator", name="ana") == "unchanged"
    assert db.answer("add_operator", name="ana", role="admin") == "changed"
    (row,) = db.call("operators")
    assert (row.role, row.tenant) == ("admin", "acme")
    assert db.answer("add_operator", name="ana", tenant="globex") == "changed"
    (row,) = db.call("operators")
    assert (row.role, row.tenant) == ("admin", "globex")
    assert db.answer("add_operator", name="ana", all_tenants=True) == "changed"
    (row,) = db.call("operators")
    assert (row.role, row.tenant) == ("admin", None)
    assert db.answer("add_operator", name="ana", all_tenants=True) == "unchanged"


def test_a_disabled_operator_is_enabled_by_nothing_but_saying_so(db, ana):
    db.call("disable_operator", name=ana)
    with db.refused("OW007", 'operator "ana" is disabled'):
        db.call("add_operator", name=ana, role="viewer", tenant="acme")
    (row,) = db.call("operators")
    assert (row.role, row.tenant, row.disabled_at is None) == ("admin", None, False)
    assert db.answer("add_operator", name=ana, enable=True) == "changed"
    (row,) = db.call("operators")
    assert (row.role, row.tenant, row.disabled_at) == ("admin", None, None)
    assert db.answer("add_operator", name=ana, enable=True) == "unchanged"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"name": ""}, "name"),
        ({"name": " ana"}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": None}, "name"),
        ({"name": "ana", "role": "king"}, "role"),
        ({"name": "ana", "tenant": "*"}, "tenant"),
        ({"name": "ana", "tenant": "acme", "all_tenants": True}, "all_tenants"),
    ],
)
def test_an_operator_that_cannot_be_is_refused(db, arguments, word):
    with db.refused("OW008", word):
        db.call("add_operator", **arguments)


def test_a_link_is_used_once_and_in_time(db, ana):
    db.call("create_link", operator=ana, hash=digest("l"), life="15 min")
    assert db.answer("link_operator", hash=digest("l")) == "ana"
    assert db.answer("use_link", hash=digest("l"), session_hash=digest("s")) == "ana"
    assert db.answer("link_operator", hash=digest("l")) is None
    with db.refused("OW046", "cannot be used"):
        db.call("use_link", hash=digest("l"), session_hash=digest("t"))
    db.call("create_link", operator=ana, hash=digest("late"))
    db.clock.advance("15 min")
    with db.refused("OW046"):
        db.call("use_link", hash=digest("late"), session_hash=digest("t"))


@pytest.mark.race
def test_of_two_who_use_a_link_at_once_the_second_is_refused(db, ana):
    db.call("create_link", operator=ana, hash=digest("l"))
    one, two = db.connect(autocommit=False), db.connect()
    db.on(one).call("use_link", hash=digest("l"), session_hash=digest("s1"))
    two.execute("set lock_timeout = '100ms'")
    with refused("55P03"):
        db.on(two).call("use_link", hash=digest("l"), session_hash=digest("s2"))
    one.commit()
    with refused("OW046"):
        db.on(two).call("use_link", hash=digest("l"), session_hash=digest("s2"))


def test_a_session_lasts_twelve_hours_from_its_last_use_and_a_week_at_most(db, ana):
    sign_in(db, ana)
    for _ in range(13):
        db.clock.advance("11 h 59 min")
        assert db.call("session_operator", hash=digest("s"))
    db.clock.advance("11 h 59 min")
    db.call("session_operator", hash=digest("s"))
    db.clock.advance("1 h")
    assert db.call("session_operator", hash=digest("s")) == []


def test_a_session_that_nobody_uses_ends(db, ana):
    sign_in(db, ana)
    db.clock.advance("12 h")
    assert db.call("session_operator", hash=digest("s")) == []


def test_disabling_an_operator_ends_everything_of_theirs(db, ana):
    sign_in(db, ana)
    db.call("create_link", operator=ana, hash=digest("l"))
    assert db.answer("disable_operator", name=ana) is True
    assert db.answer("disable_operator", name=ana) is False
    assert db.call("session_operator", hash=digest("s")) == []
    assert db.call("operator_named", name=ana) == []
    assert db.answer("has_operators") is False
    with db.refused("OW046"):
        db.call("use_link", hash=digest("l"), session_hash=digest("t"))
    with db.refused("OW007", 'operator "ana" is disabled'):
        db.call("create_link", operator=ana, hash=digest("l2"))
    assert db.answer("add_operator", name=ana, enable=True) == "changed"
    assert db.call("session_operator", hash=digest("s")) == []


def test_an_unknown_operator_is_named(db):
    for function, arguments in (
        ("disable_operator", {"name": "eve"}),
        ("create_link", {"operator": "eve", "hash": digest("l")}),
    ):
        with db.refused("OW045", 'operator "eve" does not exist'):
            db.call(function, **arguments)


def test_a_token_is_used_until_it_ends_or_is_revoked(db):
    one = db.answer(
        "create_token", name="ci", hash=digest("a"), scopes=["read", "enqueue", "read"], tenant="acme"
    )
    db.call("create_token", name="short", hash=digest("b"), scopes=["read"], life="1 h")
    (row,) = db.call("token_scopes", hash=digest("a"))
    assert (row.name, row.scopes, row.tenant) == ("ci", ["enqueue", "read"], "acme")
    assert db.call("token_scopes", hash=digest("b"))
    db.clock.advance("1 h")
    assert db.call("token_scopes", hash=digest("b")) == []
    assert db.answer("revoke_token", id=one) is True
    assert db.answer("revoke_token", id=one) is False
    assert db.call("token_scopes", hash=digest("a")) == []
    with db.refused("OW047", "does not exist"):
        db.call("revoke_token", id=db.value("select gen_random_uuid()"))


@pytest.mark.parametrize(
    "arguments",
    [
        {"scopes": []},
        {"scopes": ["all"]},
        {"name": ""},
        {"hash": b"short"},
        {"tenant": "*"},
        {"life": "-1 s"},
    ],
)
def test_a_token_that_cannot_be_is_refused(db, arguments):
    with db.refused("OW008"):
        db.call("create_token", **{"name": "ci", "hash": digest("a"), "scopes": ["read"], **arguments})


@pytest.mark.parametrize("tenant", ["acme", None])
def test_who_acts_for_one_tenant_cannot_give_access(db, ana, tenant):
    """An account for all tenants would be a way out of one's own."""
    bound = db.on(db.connect(role="onceward_operator", tenant=tenant))
    for function, arguments in (
        ("add_operator", {"name": "eve", "role": "admin"}), ("disable_operator", {"name": ana}), ("operators", {}),
        ("create_link", {"operator": ana, "hash": digest("l")}), ("operator_named", {"name": ana}), ("tokens", {}),
        ("create_token", {"name": "x", "hash": digest("t"), "scopes": ["operate"]}),
    ):  # fmt: skip
        with refused("OW011"):
            bound.call(function, **arguments)


def test_records_name_the_actor_of_the_transaction(db):
    with db.conn.transaction():
        db.run("select set_config('onceward.actor', 'ana', true)")
        db.call("pause_lane", name="default")
    assert db.value("select paused_by from onceward.lanes") == "ana"
    assert db.value("select onceward.actor()") == db.value("select session_user::text")
