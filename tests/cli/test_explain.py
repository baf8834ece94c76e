"""`onceward job explain`, `onceward lane explain`, and the second line of `onceward job show`."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4


def test_job_explain_gives_the_answer_first_and_what_to_do(cli, db):
    db.worker("a", tasks=["ocr"])
    job = db.enqueue()
    db.call("pause_lane", name="default", reason="deploy")

    out = cli.ok("job", "explain", job).out.splitlines()

    assert out[0].startswith('  Lane "default" is paused since')
    assert out[0].endswith("by postgres: deploy.")
    assert out[1] == '    Next: Open it with "onceward lane resume default".'


def test_job_explain_as_json(cli, db):
    job = db.enqueue(run_at=db.now() + timedelta(hours=1))

    answer = cli.json("job", "explain", job)

    assert answer["id"] == str(job)
    assert [reason["reason"] for reason in answer["reasons"]] == ["run_at", "no_worker"]
    assert answer["reasons"][0]["until"].endswith("Z")


def test_job_explain_of_an_unknown_job_fails(cli, db):
    job = uuid4()

    assert f"job {job} does not exist" in cli.refused(1, "job", "explain", job)
    assert f"job {job} does not exist" in cli.refused(1, "job", "explain", job, "--json")


def test_job_explain_of_another_tenants_job_fails(cli, db):
    job = db.enqueue(tenant="acme")

    assert "does not exist" in cli.refused(1, "job", "explain", job, "--tenant", "globex")
    assert cli.json("job", "explain", job, "--tenant", "acme")["reasons"][0]["reason"] == "no_worker"


def test_job_show_says_why_in_its_second_line(cli, db):
    job = db.dead_letter(message="no such customer")

    lines = cli.ok("job", "show", job).out.splitlines()

    assert lines[1].startswith("  Gave up at ")
    assert lines[1].endswith("ValueError: no such customer.")
    assert cli.json("job", "show", job)["reasons"][0]["reason"] == "dead_letter"


def test_lane_explain_has_a_line_for_each_lane(cli, db):
    db.call("add_lane", name="mail")
    db.worker("a", tasks=["ocr"])

    answer = cli.ok("lane", "explain")

    assert [line.split()[:2] for line in answer.out.splitlines()] == [
        ["LANE", "STATUS"],
        ["default", "idle"],
        ["mail", "no_worker"],
    ]
    assert "--lanes mail" in answer.err


def test_lane_explain_of_one_lane_as_json(cli, db):
    db.enqueue()

    (row,) = cli.json("lane", "explain", "default")

    assert (row["lane"], row["reason"], row["detail"]["ready"]) == ("default", "no_worker", 1)


def test_lane_explain_of_an_unknown_lane_names_the_nearest(cli, db):
    assert "default" in cli.refused(1, "lane", "explain", "defualt")
