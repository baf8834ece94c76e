"""Workflows on the command line: enqueued from a file, shown as a graph, cancelled and requeued as one."""

from __future__ import annotations

import json
from dataclasses import fields
from uuid import UUID

import pytest

from onceward.model import WorkflowInfo, WorkflowJob

NOWHERE = "00000000-0000-7000-8000-000000000000"


def names(kind) -> set[str]:
    return {field.name for field in fields(kind)}


@pytest.fixture
def diamond(db):
    """Four jobs, d after b and c, and both after a; returns ids by name and the id of the workflow."""
    jobs = db.workflow(
        {"name": "a", "task": "fetch"},
        {"name": "b", "task": "resize", "after": ["a"]},
        {"name": "c", "task": "scan", "after": ["a"], "after_policy": "ignore"},
        {"name": "d", "task": "pack", "after": ["b", "c"]},
    )
    return jobs, db.job(jobs["a"]).workflow_id


@pytest.fixture
def file(tmp_path):
    """Write a file of nodes; its path."""

    def write(nodes: object) -> str:
        path = tmp_path / "flow.json"
        path.write_text(nodes if isinstance(nodes, str) else json.dumps(nodes), encoding="utf-8")
        return str(path)

    return write


def rows(text: str) -> list[str]:
    """The lines of the graph."""
    return text.partition("AFTER")[2].splitlines()[1:]


def test_workflow_list_has_the_columns_of_the_view(cli, db, diamond):
    (workflow,) = cli.json("workflow", "list")

    assert set(workflow) == names(WorkflowInfo)
    assert (workflow["id"], workflow["state"], workflow["jobs"]) == (str(diamond[1]), "running", 4)
    head, row = cli.ok("workflow", "list").out.splitlines()
    assert head.split()[:7] == ["ID", "STATE", "JOBS", "DONE", "LIVE", "DEAD", "STOPPED"]
    assert row.split()[:7] == [str(diamond[1]), "running", "4", "0", "4", "0", "0"]


def test_workflow_list_is_filtered(cli, db, diamond):
    other = db.job(db.workflow({"name": "a"}, tenant="red")["a"]).workflow_id
    db.call("cancel_workflow", workflow_id=other)

    def found(*options: str) -> list[str]:
        return [workflow["id"] for workflow in cli.json("workflow", "list", *options)]

    assert found() == [str(other), str(diamond[1])]
    assert found("--state", "running") == [str(diamond[1])]
    assert found("--state", "cancelled") == [str(other)]
    assert found("--state", "dead-letter") == []
    assert found("--tenant", "red") == [str(other)]
    assert found("--limit", "1") == [str(other)]
    assert cli.ok("workflow", "list", "--count").out == "2\n"
    assert cli.json("workflow", "list", "--count", "--state", "running") == {"count": 1}
    assert "raise --limit" in cli.ok("workflow", "list", "--limit", 1).err
    assert cli.ok("workflow", "list", "--state", "done").err == "no workflows\n"


def test_workflow_show_tells_of_each_job_what_it_comes_after(cli, db, diamond):
    jobs, flow = diamond

    shown = cli.json("workflow", "show", flow)

    assert set(shown) == names(WorkflowInfo) | {"members"}
    assert {member["node"]: member["id"] for member in shown["members"]} == {
        k: str(v) for k, v in jobs.items()
    }
    assert all(set(member) == names(WorkflowJob) for member in shown["members"])
    text = cli.ok("workflow", "show", flow).out
    assert "4 jobs: 4 not ended." in text
    a, b, c, d = rows(text)
    assert a.split()[:5] == ["a", "fetch", "ready", "0/8", "-"]
    assert b.startswith("  b ")
    assert "waits for a" in b
    assert "waits for a (ignore)" in c
    assert d.startswith("    d ")
    assert "waits for b, c" in d


def test_a_job_that_waits_names_only_those_that_have_not_ended(cli, db, diamond):
    jobs, flow = diamond
    db.complete(db.claim())
    claims = {claim.job_id: claim for claim in db.claims(2)}
    db.complete(claims[jobs["b"]])

    text = cli.ok("workflow", "show", flow).out

    assert "4 jobs: 2 done, 2 not ended." in text
    assert "b, c: waits for c" in rows(text)[3]
    assert "waits" not in rows(text)[1]


def test_a_dead_letter_is_seen_with_those_that_it_stopped(cli, db, diamond):
    _, flow = diamond
    db.fail(db.claim(), permanent=True)
    while db.promote().more:
        pass

    text = cli.ok("workflow", "show", flow).out

    assert text.splitlines()[0] == f"Workflow {flow}  dead_letter"
    assert "1 dead letter, " in text
    assert [row.split()[2] for row in rows(text)][:2] == ["dead_letter", "cancelled"]


def test_very_many_equal_jobs_are_one_line(cli, db):
    parent = db.running("album")
    children = db.spawn(parent, [{}] * 200, task="resize")
    db.enqueue("pack", after=children)
    for claim in db.claims(50):
        db.complete(claim)

    text = cli.ok("workflow", "show", parent.job_id).out
    album, resize, pack = rows(text)

    assert album.split()[:3] == ["album", "album", "running"]
    assert resize.startswith("  resize × 200 ")
    assert "150 ready, 50 done" in resize
    assert "child of album" in resize
    assert "resize × 200: waits for resize × 150" in pack
    assert len(rows(cli.ok("workflow", "show", parent.job_id, "--full").out)) == 202
    assert len(cli.json("workflow", "show", parent.job_id)["members"]) == 202


@pytest.mark.parametrize("verb", ["show", "cancel", "requeue"])
def test_what_is_no_workflow_is_explained(cli, db, diamond, verb):
    alone = db.enqueue()

    assert "onceward workflow list" in cli.refused(1, "workflow", verb, NOWHERE)
    assert f'"onceward job show {alone}"' in cli.refused(1, "workflow", verb, alone)
    assert f'"onceward workflow show {diamond[1]}"' in cli.refused(1, "workflow", verb, diamond[0]["b"])
    assert "workflow id must be a UUID, got 'x'" in cli.refused(2, "workflow", verb, "x")


def test_one_tenant_does_not_see_or_touch_the_workflow_of_another(cli, db, diamond):
    before = db.contents()

    for verb in ("show", "cancel", "requeue"):
        error = cli.refused(1, "workflow", verb, diamond[1], "--tenant", "red")
        assert 'of tenant "red" does not exist' in error
    assert db.contents() == before


def test_a_workflow_that_several_tenants_name_asks_for_one(cli, db, diamond):
    db.enqueue(workflow_id=diamond[1], tenant="red")

    assert "Name one with --tenant." in cli.refused(2, "workflow", "cancel", diamond[1])
    assert cli.json("workflow", "cancel", diamond[1], "--tenant", "red")["jobs"] == 1


def test_cancel_and_requeue_of_a_whole_workflow(cli, db, diamond):
    _, flow = diamond

    assert cli.ok("workflow", "cancel", flow, "--reason", "not needed").err == "4 jobs cancelled\n"
    assert {job["note"] for job in cli.json("workflow", "show", flow)["members"]} == {"not needed"}
    assert "nothing to cancel" in cli.ok("workflow", "cancel", flow).err
    assert cli.json("workflow", "requeue", flow) == {"id": str(flow), "jobs": 4}
    assert "nothing to requeue" in cli.ok("workflow", "requeue", flow).err
    db.settle()
    assert cli.json("workflow", "list")[0]["state"] == "done"


# ---------------------------------------------------------------- enqueue


NODES = [
    {"name": "a", "task": "fetch", "payload": {"page": 7}},
    {"name": "b", "task": "resize", "after": ["a"], "priority": 3},
]


def test_a_file_of_nodes_is_enqueued_and_the_id_printed_alone(cli, db, file):
    db.worker(tasks=["fetch", "resize"])

    answer = cli.ok("workflow", "enqueue", file(NODES))

    flow = UUID(answer.out.strip())
    assert answer.err == "2 jobs enqueued\n"
    a, b = db.run(
        "select node, task, payload, priority, after, id from onceward.jobs where workflow_id = %s order by id",
        flow,
    )
    assert (a.node, a.task, a.payload, a.after) == ("a", "fetch", {"page": 7}, None)
    assert (b.node, b.priority, b.after) == ("b", 3, [a.id])


def test_nodes_come_from_standard_input_and_the_jobs_are_told(cli, db):
    answer = cli.ok("workflow", "enqueue", "-", "--unknown-task-ok", "--json", stdin=json.dumps(NODES)).json

    assert set(answer) == {"id", "created", "jobs"}
    assert db.job(UUID(answer["jobs"]["b"])).after == [UUID(answer["jobs"]["a"])]
    assert db.job(UUID(answer["jobs"]["a"])).workflow_id == UUID(answer["id"])


def test_with_a_key_the_same_workflow_is_enqueued_once(cli, file):
    enqueue = ["workflow", "enqueue", file(NODES), "--unknown-task-ok", "--key", "k", "--key-window", "2h"]
    first, again = cli.ok(*enqueue), cli.ok(*enqueue)

    assert again.out == first.out
    assert (first.err, again.err) == ("2 jobs enqueued\n", "enqueued before, under this key\n")
    assert cli.json(*enqueue)["created"] is False
    assert "--key-window goes with --key" in cli.refused(2, *enqueue[:4], "--key-window", "2h")


def test_a_workflow_belongs_to_the_tenant_that_was_named(cli, db, file):
    cli.ok("workflow", "enqueue", file(NODES), "--unknown-task-ok", "--tenant", "red")

    assert [job["tenant"] for job in cli.json("job", "list")] == ["red", "red"]


def test_with_an_application_the_tasks_say_the_rest(cli, db, shop, file):
    nodes = [
        {"name": "a", "task": "mail.send", "payload": {"to": "x@example.com"}},
        {
            "name": "b",
            "task": "mail.send",
            "payload": {"to": "y@example.com"},
            "after": ["a"],
            "max_attempts": 9,
        },
    ]

    jobs = cli.json("workflow", "enqueue", file(nodes), "--app", shop)["jobs"]

    found = [db.job(UUID(jobs[name])) for name in ("a", "b")]
    assert [(job.lane, job.max_attempts) for job in found] == [("mail", 3), ("mail", 9)]
    nodes[1]["payload"] = {"to": 5}
    assert "payload does not fit task mail.send" in cli.refused(
        1, "workflow", "enqueue", file(nodes), "--app", shop
    )


@pytest.mark.parametrize(
    ("nodes", "status", "fragments"),
    [
        ([{"name": "a", "task": "fetch", "after": ["b"]}, {"name": "b", "task": "fetch", "after": ["a"]}], 1,
         ["workflow has a cycle: a waits for b waits for a", "Nothing was written."]),
        ([{"name": "a", "task": "fetch", "after": ["a"]}], 1, ["workflow has a cycle: a waits for a"]),
        ([{"name": "a", "task": "fecth"}], 1, ['task "fecth" is not known', 'Did you mean "fetch"?']),
        ([{"name": "a", "task": "fetch", "after": ["z"]}], 1, ["must be the name of a node", "got 'z'"]),
        ([{"name": "a", "task": "fetch"}, {"name": "a", "task": "fetch"}], 1, ["must have names of their own", "got 'a'"]),
        ([{"name": "a", "task": "fetch", "colour": "red"}], 1, ["cannot have this field", "colour", "concurrency_key"]),
        ([{"name": "a", "task": "fetch", "lane": "nowhere"}], 1, ['lane "nowhere" does not exist']),
        ([{"name": "a", "task": "fetch", "priority": "high"}], 1, ["must have valid fields", 'node "a"']),
        ([{"name": "a", "task": "fetch"}, {"name": "b", "task": "fetch", "after": ["a"], "after_policy": "hope"}], 1, ["must be fail, ignore or compensate"]),
        ([{}], 1, ["must be objects with a name and a task"]),
        ([], 1, ["must be a list of 1 to 1000 nodes"]),
        ([{"name": "a", "task": "fetch", "payload": {"x": "\0"}}], 1, ["contains a NUL character"]),
        ({"name": "a"}, 2, ["workflow must be a JSON array of nodes, got an object", '"after": ["a"]']),
        (["a"], 2, ["workflow must be an array of JSON objects, got a string"]),
        ("[{]", 2, ["workflow is not JSON", "line 1, column 3 of file"]),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_a_workflow_is_refused_as_a_whole(cli, db, file, nodes, status, fragments):
    db.worker(tasks=["fetch"])
    before = db.contents()

    error = cli.refused(status, "workflow", "enqueue", file(nodes))

    for fragment in fragments:
        assert fragment in error
    assert db.contents() == before


def test_a_file_that_is_not_there(cli_alone):
    error = cli_alone.refused(2, "workflow", "enqueue", "missing.json")

    assert 'could not read workflow from file "missing.json": No such file' in error
    assert "pass - for standard input" in error


# ---------------------------------------------------------------- a job after others


def test_a_job_is_enqueued_after_others(cli, db):
    first, second, third = db.enqueue(), db.enqueue(), db.enqueue()

    job = cli.ok(
        "job", "enqueue", "pack", "--unknown-task-ok", "--after", f"{first},{second}", "--after", third,
        "--after-policy", "ignore",
    ).out.strip()  # fmt: skip

    found = db.job(UUID(job))
    assert (found.state, found.after, found.after_policy) == ("blocked", [first, second, third], "ignore")


@pytest.mark.parametrize(
    ("options", "status", "fragments"),
    [
        (["--after", "x"], 2, ["job id must be a UUID, got 'x'"]),
        (["--after", NOWHERE], 1, [f"job {NOWHERE} does not exist"]),
        (["--after-policy", "ignore"], 2, ["--after-policy goes with --after"]),
        (["--after", NOWHERE, "--after-policy", "ignroe"], 2, ["--after-policy must be one of", 'Did you mean "ignore"?']),
    ],
    ids=str,
)  # fmt: skip
def test_a_job_after_others_is_refused(cli, db, options, status, fragments):
    before = db.contents()

    error = cli.refused(status, "job", "enqueue", "pack", "--unknown-task-ok", *options)

    for fragment in fragments:
        assert fragment in error
    assert db.contents() == before


def test_job_show_tells_which_jobs_it_waits_for_and_its_workflow(cli, db, diamond):
    jobs, flow = diamond

    text = cli.ok("job", "show", jobs["d"]).out

    assert "Waits for 2 jobs, the first:" in text
    assert f"b (blocked, {jobs['b']})" in text
    assert f"{flow} (4 jobs, running)" in text
    assert "2 jobs, on failure: fail" in text


def test_job_show_of_a_job_that_waits_for_very_many_names_the_first(cli, db):
    before = [db.enqueue() for _ in range(8)]
    job = db.enqueue("pack", after=before)

    text = cli.ok("job", "show", job).out

    assert "Waits for 8 jobs, the first:" in text
    assert text.count("ocr (ready, ") == 5


def test_job_show_counts_children(cli, db):
    parent = db.running("album")
    db.spawn(parent, [{}] * 3)
    db.complete(db.claim())

    text = cli.ok("job", "show", parent.job_id).out

    assert "3: 2 ready, 1 done" in text
    assert "workflow" not in cli.ok("job", "show", db.enqueue()).out
