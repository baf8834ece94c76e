"""Sealing: what is taken, in which order, and that nothing can appear below a seal."""

from __future__ import annotations

from datetime import timedelta

import pytest

from onceward.audit.merkle import Frontier, root_of
from onceward.audit.verifier import framed, leaf
from tests.support.audit import fill, kinds, last_seq, seal, verified
from tests.support.engine import refused
from tests.support.races import together, transaction


def test_a_seal_takes_what_is_committed_and_the_next_one_goes_on(db):
    fill(db, 5)
    first = seal(db)
    fill(db, 3)
    second = seal(db)

    assert (first.seals, first.entries, second.entries) == (1, 5, 3)
    rows = db.run("select * from onceward.seals order by number")
    assert [(row.number, row.entries, row.total, row.seqs) for row in rows] == [
        (1, 5, 5, [1, 2, 3, 4, 5]),
        (2, 3, 8, [6, 7, 8]),
    ]
    assert rows[1].previous == rows[0].head
    assert verified(db).whole


def test_nothing_to_seal_makes_no_seal(db):
    assert seal(db) == (0, 0, False)
    assert db.value("select count(*) from onceward.seals") == 0
    assert verified(db).whole


def test_what_an_open_transaction_has_written_is_sealed_after_its_commit_and_in_its_place(db):
    with transaction(db) as slow:
        fill(slow, 1)
        fill(db, 1)
        # The later one waits too: below it, another entry may still appear.
        assert seal(db).entries == 0
        slow.conn.commit()

    assert seal(db).entries == 2
    assert verified(db).whole


def test_an_open_transaction_that_has_not_written_yet_holds_back_what_comes_after_it(db):
    fill(db, 1)
    with transaction(db) as slow:
        slow.run("select pg_current_xact_id()")
        fill(db, 1)
        assert seal(db).entries == 1
        fill(slow, 1)
        slow.conn.commit()

    assert seal(db).entries == 2
    assert db.one("select seqs from onceward.seals where number = 2").seqs == [3, 2]
    assert verified(db).whole


def test_what_was_rolled_back_is_not_in_the_log(db):
    with transaction(db) as undone:
        fill(undone, 4)
        undone.conn.rollback()
    fill(db, 1)

    seal(db)

    assert db.one("select seqs from onceward.seals").seqs == [5]
    assert verified(db).whole


def test_a_limit_leaves_the_rest_to_the_next_call(db):
    fill(db, 25)

    assert [seal(db, limit=10) for _ in range(4)] == [
        (1, 10, True),
        (1, 10, True),
        (1, 5, False),
        (0, 0, False),
    ]
    assert verified(db).entries == 25


def test_a_seal_that_is_young_enough_lets_the_next_one_wait(db):
    fill(db, 1)
    assert seal(db, every=timedelta(seconds=10)).entries == 1
    fill(db, 1)
    assert seal(db, every=timedelta(seconds=10)).entries == 0
    db.clock.advance(timedelta(seconds=10))
    assert seal(db, every=timedelta(seconds=10)).entries == 1


def test_a_seal_never_spans_two_days(db):
    fill(db, 2)
    db.clock.advance(timedelta(days=1))
    fill(db, 3)

    assert seal(db) == (2, 5, False)
    days = db.run("select number, day, entries, after_xact, upto_xact from onceward.seals order by number")
    assert [row.entries for row in days] == [2, 3]
    assert days[1].day - days[0].day == timedelta(days=1)
    assert (days[0].after_xact, days[0].upto_xact) == (days[1].after_xact, days[1].upto_xact)
    assert verified(db).whole


@pytest.mark.race
def test_two_sealers_at_once_seal_everything_once(db):
    fill(db, 300)

    together(db, [lambda rival: [seal(rival, limit=20) for _ in range(20)]] * 4)
    while seal(db, limit=20).more:
        pass

    assert db.value("select sum(entries) from onceward.seals") == 300
    assert verified(db).whole


@pytest.mark.race
@pytest.mark.slow
def test_writers_with_open_transactions_and_a_sealer_lose_nothing(db):
    def write(rival) -> None:
        rival.conn.autocommit = False
        for n in range(40):
            fill(rival, 1 + n % 3)
            if n % 5 == 4:
                rival.conn.rollback()
            elif n % 3:
                rival.conn.commit()
        rival.conn.commit()

    def keep_sealing(rival) -> None:
        for _ in range(150):
            seal(rival, limit=7)

    answers = together(db, [write] * 6 + [keep_sealing] * 2)
    assert [answer for answer in answers if isinstance(answer, BaseException)] == []
    while seal(db).entries:
        pass

    found = verified(db)
    assert found.findings == []
    assert found.unsealed == 0
    assert found.entries == db.value("select count(*) from onceward.audit_log")


def test_at_a_stricter_isolation_level_nothing_is_sealed(db):
    fill(db, 1)
    with db.conn.transaction():
        db.run("set transaction isolation level repeatable read")
        assert seal(db).entries == 0
    assert seal(db).entries == 1


def from_an_older_cluster(db) -> None:
    """As if what is in the log had come from a cluster whose transactions have much higher numbers."""
    with db.conn.transaction():
        db.run("set local session_replication_role = replica")
        db.run("update onceward.audit_private set xact = (xact::text::bigint + 1000000)::text::xid8")
    db.run("select setval('onceward.audit_seq', 100)")


def restored(db) -> bool:
    return db.value("select restored from onceward.audit_status()")


def test_a_database_that_was_restored_before_its_first_seal_goes_on_sealing(db):
    fill(db, 4)
    from_an_older_cluster(db)
    fill(db, 2)
    assert restored(db)

    assert [seal(db).entries for _ in range(3)] == [4, 2, 0]

    assert not restored(db)
    fill(db, 3)
    assert seal(db).entries == 3
    found = verified(db)
    assert (found.findings, found.entries, found.unsealed) == ([], 9, 0)
    assert db.value("select count(distinct above_seq) from onceward.seals") == 2


def test_a_database_that_was_restored_between_two_seals_goes_on_sealing(db):
    fill(db, 6)
    from_an_older_cluster(db)
    assert seal(db, limit=4).entries == 4
    with transaction(db) as slow:
        fill(slow, 1)
        fill(db, 2)
        assert verified(db).findings == []
        assert verified(db).unsealed == 4
        assert [seal(db).entries for _ in range(2)] == [2, 0]
        assert verified(db).findings == []
        slow.conn.commit()
    assert seal(db).entries == 3

    assert (verified(db).findings, verified(db).unsealed) == ([], 0)


# ------------------------------------------------------------ retention


def yesterday(db, count: int = 3) -> None:
    fill(db, count)
    db.clock.advance(timedelta(days=1))


def today(db):
    return db.value("select (onceward.now() at time zone 'UTC')::date")


def checkpoint(db) -> None:
    db.run(
        "select onceward.record_checkpoint(number, head, 'safe') from onceward.seals order by number desc limit 1"
    )


def test_days_that_are_not_sealed_cannot_be_dropped(db):
    yesterday(db)
    with db.refused("OW036", "not sealed", "onceward audit seal"):
        db.call("drop_audit", before=today(db))


def test_days_that_no_checkpoint_covers_cannot_be_dropped(db):
    yesterday(db)
    fill(db, 1)
    seal(db)
    with db.refused("OW036", "No checkpoint", "onceward audit checkpoint"):
        db.call("drop_audit", before=today(db))


def test_days_that_are_sealed_and_exported_are_dropped_and_the_log_stays_whole(db):
    yesterday(db)
    fill(db, 2)
    seal(db)
    checkpoint(db)

    # With the empty day before.
    assert db.call("drop_audit", before=today(db)) == [(2, 3)]

    assert kinds(db) == ["note", "note", "audit.checkpoint", "audit.dropped"]
    assert db.value("select count(*) from onceward.seals") == 2
    assert db.value("select count(*) from onceward.seals where leaves is null") == 1
    seal(db)
    found = verified(db)
    assert (found.findings, found.dropped, found.dropped_before) == ([], 3, str(today(db)))


def test_a_day_that_was_deleted_and_not_dropped_is_found(db):
    yesterday(db)
    seal(db)
    day = today(db) - timedelta(days=1)
    db.run(f"drop table onceward.audit_{day:%Y%m%d}")

    assert {f.kind for f in verified(db).findings} == {"entry_deleted"}


def test_today_cannot_be_dropped(db):
    with db.refused("OW008", "must not be later than today"):
        db.call("drop_audit", before=today(db) + timedelta(days=1))


def test_a_checkpoint_of_a_seal_that_does_not_exist_is_refused(db):
    with db.refused("OW008", "number"):
        db.call("record_checkpoint", number=7, head=b"\0" * 32, where="nowhere")


# ------------------------------------------------------------ what is hashed


def test_the_hash_of_an_entry_is_that_of_its_framed_texts(db):
    db.call("record_event", kind="note", message="grüße ☃", entity_type="thing", before={"a": [1.10, None]})
    assert db.value("select onceward.framed(array['ab', null, '', 'ü'])") == framed("ab", [None, "", "ü"])
    row = db.one("select onceward.entry_fields(e) as fields from onceward.audit_private as e")
    seal(db)

    assert db.one("select leaves from onceward.seals").leaves == leaf(framed(row.fields[0], row.fields[1:]))


def test_null_and_empty_and_shifted_texts_have_different_bytes(db):
    texts = (["a", "b"], ["ab", ""], ["", "ab"], ["ab"], ["ab", None], [None, "ab"])
    assert len({db.value("select onceward.framed(%s::text[])", text) for text in texts}) == len(texts)
    assert len({framed(text[0] or "", text[1:]) for text in texts}) > 4


@pytest.mark.parametrize("size", [*range(18), 31, 32, 33, 100, 257])
def test_the_tree_in_sql_is_that_of_the_package(db, size):
    leaves = [leaf(str(n).encode()) for n in range(size)]
    tree, peaks = Frontier(), []
    for n, hashed in enumerate(leaves):
        tree.append(hashed)
        peaks = db.value(
            "select onceward.merkle_append(%s::bytea[], %s::bigint, %s::bytea)", peaks, n, hashed
        )

    assert db.value("select onceward.merkle_root(%s::bytea[])", leaves) == root_of(leaves) == tree.root()
    assert peaks == tree.peaks
    assert db.value("select onceward.merkle_fold(%s::bytea[])", peaks) == tree.root()


# ------------------------------------------------------------ nobody changes it


CHANGES = {
    f"{verb} {table}": statement.format(table)
    for table in ("audit_private", "seal_private", "seal_leaf_private")
    for verb, statement in {
        "update": "update onceward.{} set day_or_kind = null",
        "delete": "delete from onceward.{}",
        "truncate": "truncate onceward.{}",
    }.items()
}
COLUMN = {"audit_private": "kind = 'x'", "seal_private": "total = 0", "seal_leaf_private": "leaves = ''"}


@pytest.mark.parametrize("statement", list(CHANGES.values()), ids=list(CHANGES))
def test_not_even_a_superuser_changes_the_log_by_mistake(db, statement):
    fill(db, 1)
    seal(db)
    for table, change in COLUMN.items():
        if table in statement:
            statement = statement.replace("day_or_kind = null", change)
    with db.refused("OW035", "append-only"):
        db.run(statement)
    with db.refused("42501"):
        db.on(db.connect(role="onceward_owner", tenant="*")).run(statement)


def test_a_partition_cannot_be_truncated_either(db):
    fill(db, 1)
    name = db.value("select tableoid::regclass::text from onceward.audit_private")
    with db.refused("OW035", "TRUNCATE"):
        db.run(f"truncate {name}")


def test_whoever_sees_one_tenant_cannot_verify(db):
    last = last_seq(db)
    auditor = db.on(db.connect(role="onceward_auditor", tenant="acme"))
    for call in (
        lambda: auditor.call("audit_status"),
        lambda: auditor.call("seal_of", seq=last),
        lambda: auditor.run("select * from onceward.audit_page(null, null, null, null, null, null)"),
    ):
        with refused("OW011", "as a whole"):
            call()
