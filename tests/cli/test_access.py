"""`onceward operator` and `onceward token`."""

from __future__ import annotations

import hashlib

import pytest


def test_an_operator_is_added_listed_linked_and_disabled(cli, db):
    assert (
        'operator "ana" created'
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
        (("operator", "link", "eve"), 1, 'operator "eve" does not exist'),
        (("operator", "link", "eve", "--life", "0s"), 2, "--life"),
        (("token", "create", "ci"), 2, "--scope is missing"),
        (("token", "create", "ci", "--scope", "all"), 2, "--scope must be one of"),
        (("token", "revoke", "x"), 2, "is a UUID"),
        (("web", "--host", "0.0.0.0", "--port", "0"), 1, "nobody could sign in"),
        (("web", "--port", "70000"), 2, "--port"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(cli, arguments, status, words):
    assert words in cli.refused(status, *arguments)
