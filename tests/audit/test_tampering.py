"""A superuser who switches triggers off changes the log a thousand times; each time it is found, and where."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from onceward import calls
from onceward.audit import make_checkpoint
from tests.support.audit import fill, runner, seal, tampering, verified

ROUNDS = 25
EACH = 40
EDITS = (
    "kind = kind || 'x'",
    "actor = 'somebody else'",
    "role = 'nobody'",
    "tenant = 'globex'",
    "tenant = null",
    "message = null",
    "message = message || ' '",
    "entity_id = entity_id || '0'",
    "before = 'null'",
    "after = after || '{\"m\": 1}'",
    "meta = '{}'",
    "source = 'engine'",
    "job_id = gen_random_uuid()",
    "jobs = '{}'",
    "jobs = array[null]::uuid[]",
    "at = at + interval '1 microsecond'",
    "at = at + interval '1 day'",
    "at = 'infinity'",
    "xact = (xact::text::bigint + 1)::text::xid8",
    "xact = '1'",
)


class Tamper:
    """One change of the log; each method returns what has to be found: kinds and the entry or seal."""

    def __init__(self, db, random_: random.Random) -> None:
        self.db = db
        self.random = random_
        # Without the last: what is put after it is not below any seal.
        self.left = set(range(1, db.value("select max(seq) from onceward.audit_private")))

    def entry(self) -> int:
        chosen = self.random.choice(sorted(self.left))
        self.left.discard(chosen)
        return chosen

    def edit(self) -> list[tuple[str, int]]:
        seq = self.entry()
        row = "select e::text from onceward.audit_private as e where seq = %s"
        before = self.db.value(row, seq)
        self.db.run(f"update onceward.audit_private set {self.random.choice(EDITS)} where seq = %s", seq)
        # Not every edit changes every entry.
        return [("entry", seq)] if self.db.value(row, seq) != before else []

    def delete(self) -> list[tuple[str, int]]:
        seq = self.entry()
        self.db.run("delete from onceward.audit_private where seq = %s", seq)
        return [("entry", seq)]

    def swap_numbers(self) -> list[tuple[str, int]]:
        """Reordering: two entries change places."""
        one, other = self.entry(), self.entry()
        self.db.run(
            "update onceward.audit_private set seq = case seq when %s then %s else %s end where seq in (%s, %s)",
            one, other + 1_000_000, one + 1_000_000, one, other,
        )  # fmt: skip
        self.db.run("update onceward.audit_private set seq = seq - 1000000 where seq > 1000000")
        return [("entry", one), ("entry", other)]

    def swap_transactions(self) -> list[tuple[str, int]]:
        one, other = self.entry(), self.entry()
        first, second = (
            self.db.value("select xact from onceward.audit_private where seq = %s", seq)
            for seq in (one, other)
        )
        self.db.run(
            "update onceward.audit_private set xact = case seq when %s then %s else %s end::xid8 where seq in (%s, %s)",
            one, second, first, one, other,
        )  # fmt: skip
        return [("entry", one), ("entry", other)] if first != second else []

    def insert(self) -> list[tuple[str, int]]:
        near = self.entry()
        seq = 10_000 + near
        self.db.run(
            "insert into onceward.audit_private (seq, xact, at, kind, source, actor, role) "
            "select %s, xact, at, kind, source, actor, role from onceward.audit_private where seq = %s",
            seq, near,
        )  # fmt: skip
        return [("entry", seq)]

    def insert_before_everything(self) -> list[tuple[str, int]]:
        seq = -self.entry()
        self.db.run(
            "insert into onceward.audit_private (seq, xact, at, kind, source, actor, role) "
            "values (%s, '0', onceward.now() - interval '1 year', 'forged', 'engine', 'x', 'x')",
            seq,
        )
        return [("entry", seq)]


KINDS = {
    "edit": 12,
    "delete": 8,
    "swap_numbers": 5,
    "swap_transactions": 5,
    "insert": 6,
    "insert_before_everything": 4,
}


def log(db) -> None:
    """Some hundred entries in a dozen seals, two of them over the end of a day."""
    for n in range(10):
        for _ in range(5):
            fill(db, 5)
        db.enqueue_many("ocr", [{}] * 3)
        db.exchange(db.claims(3, worker=f"w{n}"), worker=f"w{n}")
        if n in {3, 7}:
            db.clock.advance(timedelta(days=1))
            fill(db, 4)
        seal(db)
    assert verified(db).whole


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_thousand_changes_are_each_found_and_located(db, seed):
    """Twenty-five logs of forty independent changes each; a change undone leaves a whole log."""
    log(db)
    chance = random.Random(seed)
    made = 0
    while made < EACH:
        with tampering(db):
            tamper = Tamper(db, chance)
            expected = {}
            # Several at once, in different entries: each has to be found beside the others.
            for _ in range(chance.choice([1, 1, 5, 10])):
                how = chance.choices(list(KINDS), list(KINDS.values()))[0]
                places = getattr(tamper, how)()
                made += bool(places)
                expected.update(dict.fromkeys((seq for _, seq in places), how))
            found = verified(db)
            assert {f.entry for f in found.findings} == set(expected), expected
            assert all(f.seal is not None for f in found.findings)
    assert verified(db).whole


@pytest.mark.parametrize("edit", EDITS)
def test_every_column_of_an_entry_is_sealed(db, edit):
    fill(db, 5)
    seal(db)
    with tampering(db):
        db.run(f"update onceward.audit_private set {edit} where seq = 3")
        (found,) = verified(db).findings
    assert (found.kind, found.seal, found.entry) == ("entry_edited", 1, 3) or edit.startswith("xact")
    assert found.entry == 3


SEAL_EDITS = (
    "day = day + 1",
    "above_seq = above_seq + 1",
    "after_xact = '1'",
    "after_seq = after_seq + 1",
    "upto_xact = '99999999'",
    "upto_seq = upto_seq + 1",
    "top_seq = top_seq + 1",
    "entries = entries + 1",
    "total = total + 1",
    "root = sha256('x')",
    "previous = sha256('x')",
    "head = sha256('x')",
    "peaks = peaks || sha256('x')",
    "peaks = '{}'",
    "at = at + interval '1 second'",
    "at = 'infinity'",
)


@pytest.mark.parametrize("edit", SEAL_EDITS)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_every_column_of_a_seal_is_sealed_by_itself_or_the_next_one(db, edit, number):
    for _ in range(3):
        fill(db, 3)
        seal(db)
    with tampering(db):
        db.run(f"update onceward.seal_private set {edit} where number = %s", number)
        found = verified(db).findings
    assert ("seal_edited", number) in {(f.kind, f.seal) for f in found}
    # Only a total, and a range, is compared with that of the seal before.
    assert {f.seal for f in found if f.kind == "seal_edited"} <= {number, number + 1}


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_seal_that_is_gone_is_named(db, number):
    for _ in range(4):
        fill(db, 3)
        seal(db)
    with tampering(db):
        db.run("delete from onceward.seal_private where number = %s", number)
        found = verified(db).findings
    assert [(f.kind, f.seal) for f in found] == [("seal_deleted", number)]


@pytest.mark.parametrize(
    "edit", ["leaves = sha256('x') || substr(leaves, 33)", "seqs = seqs[2:]", "leaves = ''"]
)
def test_leaves_that_were_changed_do_not_hide_the_change_of_an_entry(db, edit):
    fill(db, 3)
    seal(db)
    with tampering(db):
        db.run(f"update onceward.seal_leaf_private set {edit}")
        assert [(f.kind, f.seal) for f in verified(db).findings] == [("leaves_edited", 1)]
        db.run("update onceward.audit_private set message = 'x' where seq = 2")
        assert {(f.kind, f.seal) for f in verified(db).findings} == {
            ("leaves_edited", 1),
            ("entry_edited", 1),
        }


# ------------------------------------------------------------ against a checkpoint


def checkpoint(db):
    return make_checkpoint(runner(db.conn)(calls.audit_status()))


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_a_log_that_was_cut_off_is_found_by_a_checkpoint(db, kept):
    for _ in range(5):
        fill(db, 3)
        seal(db)
    kept_outside = checkpoint(db)
    assert verified(db, checkpoints=[kept_outside]).whole
    with tampering(db):
        db.run("delete from onceward.audit_private where seq > %s", kept * 3)
        db.run("delete from onceward.seal_leaf_private where number > %s", kept)
        db.run("delete from onceward.seal_private where number > %s", kept)
        assert verified(db).whole
        found = verified(db, checkpoints=[kept_outside]).findings
        assert [(f.kind, f.seal) for f in found] == [("truncated", kept + 1)]


def test_a_log_that_was_cut_off_and_sealed_anew_is_found_by_a_checkpoint(db):
    kept_outside = []
    for _ in range(5):
        fill(db, 3)
        seal(db)
        kept_outside.append(checkpoint(db))
    with db.conn.transaction():
        db.run("set local session_replication_role = replica")
        db.run("delete from onceward.seal_leaf_private where number > 2")
        db.run("delete from onceward.seal_private where number > 2")
        db.run("update onceward.audit_private set actor = 'somebody else' where seq = 8")
    while seal(db, limit=3).more:
        pass
    assert verified(db).whole

    found = verified(db, checkpoints=kept_outside).findings
    assert [(f.kind, f.seal) for f in found] == [("rewritten", 3), ("rewritten", 4), ("rewritten", 5)]
    assert "after seal 2" in found[0].detail


def test_a_checkpoint_of_another_log_is_not_taken_for_this_one(db):
    fill(db, 1)
    seal(db)
    other = {**checkpoint(db), "log": "00" * 32}
    assert [f.kind for f in verified(db, checkpoints=[other]).findings] == ["wrong_log"]
