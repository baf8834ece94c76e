"""Dead letters in bulk: what the preview counts is what is done, and nothing happens unasked."""

from __future__ import annotations

import pytest


@pytest.fixture
def letters(db):
    """Seven dead letters of three kinds, an hour apart, in two lanes and two tenants."""
    db.call("add_lane", name="mail")
    ids = []
    for number in range(3):
        ids.append(db.dead_letter("bill", {"n": number}, message=f"card {number} declined"))
        db.clock.advance("1h")
    for number in range(3):
        ids.append(db.dead_letter("send", message=f"server {number} is down", lane="mail", tenant="red"))
        db.clock.advance("1h")
    ids.append(db.dead_letter("send", message="no such address", lane="mail", priority=1))
    return ids


FILTERS = [
    (["--task", "bill"], 3),
    (["--lane", "mail"], 4),
    (["--tenant", "red"], 3),
    (["--task", "send", "--tenant", "default"], 1),
    (["--error", "DECLINED"], 3),
    (["--error", "no such address"], 1),
    (["--since", "3h30m"], 4),
    (["--until", "3h30m"], 3),
    (["--since", "5h30m", "--until", "1h30m"], 4),
    (["--task", "bill", "--limit", "2"], 2),
    (["--all"], 7),
]


@pytest.mark.parametrize(("options", "count"), FILTERS, ids=str)
@pytest.mark.parametrize("verb", ["requeue", "resolve"])
def test_the_preview_counts_what_would_be_done_and_changes_nothing(cli, db, letters, verb, options, count):
    before = db.contents()

    answer = cli.ok("dead-letter", verb, *options, "--dry-run")

    assert f"would {verb} {count} dead letter" in answer.err
    assert db.contents() == before


@pytest.mark.parametrize(("options", "count"), FILTERS, ids=str)
def test_what_was_previewed_is_requeued(cli, db, letters, options, count):
    answer = cli.ok("dead-letter", "requeue", *options, "--yes")

    assert f"{count} dead letter" in answer.err
    assert "requeued" in answer.err
    assert sorted(db.states().values()) == ["dead_letter"] * (7 - count) + ["ready"] * count


def test_a_fingerprint_takes_one_kind_of_failure(cli, db, letters):
    group = cli.json("dead-letter", "list", "--group", "--task", "bill")[0]
    assert group["count"] == 3

    answer = cli.ok(
        "dead-letter", "resolve", "--fingerprint", group["fingerprint"], "--note", "paid", "--yes"
    )

    assert answer.err == "3 dead letters resolved\n"
    assert {db.job(letter).state for letter in letters[:3]} == {"resolved"}
    assert all("paid" in db.job(letter).note for letter in letters[:3])


def test_a_limit_takes_the_oldest_first(cli, db, letters):
    cli.ok("dead-letter", "requeue", "--all", "--limit", 2, "--yes")

    assert [db.state(letter) for letter in letters] == ["ready", "ready", *["dead_letter"] * 5]


def test_without_yes_a_person_is_asked_and_no_means_no(cli, db, letters):
    before = db.contents()

    for answer in ("n\n", "\n", ""):
        refused = cli("dead-letter", "requeue", "--task", "bill", stdin=answer)
        assert refused.status == 1
        assert "Requeue 3 dead letters? [y/N]" in refused.err
        assert "Nothing was changed." in refused.err
        assert "--yes" in refused.err
    assert db.contents() == before


def test_yes_means_yes(cli, db, letters):
    answer = cli.ok("dead-letter", "requeue", "--task", "bill", stdin="y\n")

    assert "3 dead letters requeued" in answer.err
    # The preview is what a person decides by: kinds of failure with their count.
    assert answer.out.splitlines()[1].split()[0] == "3"


def test_nothing_found_is_said_and_is_no_failure(cli, letters):
    assert (
        "no dead letters to requeue"
        in cli.ok("dead-letter", "requeue", "--error", "nothing like it", "--yes").err
    )


def test_ids_need_no_question(cli, db, letters):
    answer = cli.ok("dead-letter", "requeue", letters[0], letters[1])

    assert answer.out.splitlines() == [f"{letters[0]} ready", f"{letters[1]} ready"]
    assert "would requeue" in cli.ok("dead-letter", "requeue", letters[2], "--dry-run").err
    assert db.state(letters[2]) == "dead_letter"


def test_ids_and_filters_are_not_mixed(cli, letters):
    assert "cannot be given together" in cli.refused(
        2, "dead-letter", "requeue", letters[0], "--task", "bill"
    )


def test_an_edited_payload_goes_with_one_id(cli, db, letters):
    cli.refused(2, "dead-letter", "requeue", "--task", "bill", "--payload", "{}", "--yes")

    cli.ok("dead-letter", "requeue", letters[0], "--payload", '{"n": 99}')

    assert db.job(letters[0]).payload == {"n": 99}


def test_a_check_that_does_not_pass_stops_resolving_unless_overridden(cli, db, letters):
    db.run(
        "create function public.unpaid(job_id uuid) returns text language sql as $$ select 'invoice is open' $$"
    )
    db.run("grant execute on function public.unpaid to public")
    db.call("set_resolve_check", task="bill", check="public.unpaid(uuid)")

    refused = cli("dead-letter", "resolve", "--task", "bill", "--note", "paid", "--yes")

    assert refused.status == 1
    assert "invoice is open" in refused.err
    assert "0 dead letters resolved, 3 failed" in refused.err
    assert "3 dead letters resolved" in cli.ok(
        "dead-letter", "resolve", "--task", "bill", "--note", "paid", "--override", "--yes"
    ).err  # fmt: skip
    assert "invoice is open" in db.job(letters[0]).note


def test_show_is_that_of_the_job(cli, letters):
    assert cli.json("dead-letter", "show", letters[0]) == cli.json("job", "show", letters[0])
    assert "Gave up" in cli.ok("dead-letter", "show", letters[0]).out


def test_a_long_list_says_how_many_there_are(cli, letters):
    assert "2 of 7 dead letters" in cli.ok("dead-letter", "list", "--limit", 2).err


def test_dead_letters_are_assigned_and_talked_about(cli, db, letters):
    group = cli.json("dead-letter", "list", "--group", "--task", "bill")[0]
    kind = ["--task", "bill", "--fingerprint", group["fingerprint"]]

    assert cli.ok("dead-letter", "assign", letters[0], "--to", "ana").err == "ana looks after them\n"
    assert cli.ok("dead-letter", "assign", *kind, "--to", "ana").err == "ana looks after them already\n"
    cli.ok("dead-letter", "comment", letters[1], "--text", "asked the bank")
    cli.ok("dead-letter", "comment", *kind, "--text", "they look into it")

    care = cli.json("dead-letter", "comments", *kind)
    assert [each["assigned_to"] for each in care["assignments"]] == ["ana"]
    assert [(each["body"], each["job_id"]) for each in care["comments"]] == [
        ("asked the bank", str(letters[1])), ("they look into it", None),
    ]  # fmt: skip
    answer = cli.ok("dead-letter", "comments", letters[2])
    assert "ana looks after them" in answer.err
    assert "asked the bank" in answer.out
    assert cli.ok("dead-letter", "assign", *kind, "--nobody").err == "nobody looks after them\n"


def test_what_was_said_about_dead_letters_cannot_speak_to_the_terminal(cli, db, letters):
    cli.ok(
        "dead-letter",
        "comment",
        letters[0],
        "--text",
        "\x1b]0;gotcha\x07 \x9b2J \u202ehidden\n[bold]second[/bold]",
    )

    out = cli.ok("dead-letter", "comments", letters[0]).out
    assert not [c for c in out if c in "\x1b\x07\x9b\u202e"]
    assert "\\x1b]0;gotcha" in out
    assert "[bold]second[/bold]" in out


@pytest.mark.parametrize(
    ("arguments", "status", "fragment"),
    [
        (["assign", "--task", "bill"], 2, "--to or --nobody is missing"),
        (["assign", "--task", "bill", "--to", "ana", "--nobody"], 2, "exclude each other"),
        (["assign", "--to", "ana"], 2, "no dead letter is named"),
        (["assign", "--task", "bill", "--fingerprint", "none", "--to", "ana"], 1, "no dead letter of task"),
        (["comment", "--task", "bill"], 2, "--text is missing"),
        (["comments"], 2, "no dead letter is named"),
    ],
)
def test_a_slip_in_an_assignment_is_named(cli, letters, arguments, status, fragment):
    assert fragment in cli.refused(status, "dead-letter", *arguments)


def test_only_a_dead_letter_is_looked_after(cli, db):
    assert "no dead letter" in cli.refused(1, "dead-letter", "assign", db.enqueue(), "--to", "ana")
