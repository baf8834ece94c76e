"""`onceward operator` and `onceward token`."""

from __future__ import annotations

import hashlib

import pytest


def test_an_operator_is_added_listed_linked_and_disabled(cli, db):
    assert (
        'operator "ana" created: viewer, tenant "acme" only;'
        in cli.ok("operator", "add", "ana", "--role", "viewer", "--only-tenant", "acme").err
    )
    (listed,) = cli.json("operator", "list")
    assert (listed["name"], listed["role"], listed["tenant"]) == ("ana", "viewer", "acme")
    assert "ana" in cli.ok("operator", "list").out
    link = cli.ok("operator", "link", "ana", "--address", "https://jobs.example/").out.strip()
    assert link.startswith("https://jobs.example/sign-in?link=owl_")
    hashed = hashlib.sha256(link.partition("link=")[2].encode()).digest()
    assert db.answer("link_operator", hash=hashed) == "ana"
    assert "is disabled" in cli.ok("operator", "disable", "ana").err
    assert db.answer("link_operator", hash=hashed) is None


def test_an_operator_who_is_added_once_more_keeps_what_is_not_said(cli):
    cli.ok("operator", "add", "ana", "--role", "viewer", "--only-tenant", "acme")
    kept = cli.ok("operator", "add", "ana").err
    assert 'unchanged: role viewer as before, sees tenant "acme" only as before' in kept
    changed = cli.ok("operator", "add", "ana", "--role", "operator").err
    assert 'changed: role viewer -> operator, sees tenant "acme" only as before' in changed
    lifted = cli.ok("operator", "add", "ana", "--all-tenants").err
    assert 'changed: role operator as before, sees tenant "acme" only -> all tenants' in lifted
    (listed,) = cli.json("operator", "list")
    assert (listed["role"], listed["tenant"]) == ("operator", None)


def test_an_operator_who_was_disabled_signs_in_again_only_with_enable(cli):
    cli.ok("operator", "add", "ana", "--role", "viewer")
    cli.ok("operator", "disable", "ana")
    refused = cli.refused(1, "operator", "add", "ana")
    assert 'operator "ana" is disabled' in refused
    assert 'operator "ana" is disabled' in cli.refused(1, "operator", "link", "ana")
    assert "--enable" in refused
    (listed,) = cli.json("operator", "list")
    assert listed["disabled_at"] is not None
    assert "access disabled -> enabled" in cli.ok("operator", "add", "ana", "--enable").err
    (listed,) = cli.json("operator", "list")
    assert (listed["role"], listed["disabled_at"]) == ("viewer", None)


def test_a_token_is_created_listed_and_revoked(cli, db):
    secret = cli.ok("token", "create", "ci", "--scope", "read,enqueue", "--life", "30d").out.strip()
    assert secret.startswith("owt_")
    (listed,) = cli.json("token", "list")
    assert (listed["name"], listed["scopes"]) == ("ci", ["enqueue", "read"])
    assert secret not in cli.ok("token", "list").out
    assert "revoked" in cli.ok("token", "revoke", listed["id"]).err
    assert db.call("token_scopes", hash=hashlib.sha256(secret.encode()).digest()) == []


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("operator", "add", "ana", "--role", "king"), 2, "--role must be one of"),
        (("operator", "add", "ana", "--only-tenant", "a", "--all-tenants"), 2, "exclude each other"),
        (("operator", "link", "eve"), 1, 'operator "eve" does not exist'),
        (("operator", "link", "eve", "--life", "0s"), 2, "--life"),
        (("operator", "link", "eve", "--address", "nope"), 2, "--address must be a URL"),
        (("operator", "link", "eve", "--address", "ftp://jobs.example"), 2, "--address must be a URL"),
        (("operator", "link", "eve", "--address", "https://jobs.example/?a=1"), 2, "--address must be a URL"),
        (("token", "create", "ci"), 2, "--scope is missing"),
        (("token", "create", "ci", "--scope", "all"), 2, "--scope must be one of"),
        (("token", "revoke", "x"), 2, "is a UUID"),
        (("web", "--host", "0.0.0.0", "--port", "0"), 1, "nobody could sign in"),
        (("web", "--port", "70000"), 2, "--port"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(cli, arguments, status, words):
    assert words in cli.refused(status, *arguments)
