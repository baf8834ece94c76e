"""Many batches from a table, by real HTTP and without scripts."""

from __future__ import annotations

import re
from uuid import uuid4

TABLE = "production_date,kg_produced\n2026-03-20,512.5\n2026-03-21,480\n2026-03-20,100"


def test_many_batches_are_looked_at_before_they_are_created(proof, ana):
    preview = ana.post("/proof/batches/bulk", status=200, table=TABLE)
    assert "3 batches would be created" in preview.text
    for code in ("PR-260320-001", "PR-260320-002", "PR-260321-001"):
        assert code in preview.text
    assert proof.one("select count(*) from raw_ops.batches") == 0
    assert proof.one("select count(*) from raw_ops.ops_events") == 0

    key = re.search(r'name="key" value="([^"]+)"', preview.text)[1]
    for _ in range(2):
        ana.post("/proof/batches/bulk", table=TABLE, key=key, create="1")
    assert proof.all("select batch_code from raw_ops.batches order by 1") == [
        ("PR-260320-001",), ("PR-260320-002",), ("PR-260321-001",),
    ]  # fmt: skip
    assert proof.one("select count(*) from raw_ops.proof_jobs where state = 'queued'") == 3


def test_batches_of_a_table_are_listed_in_its_order_over_all_pages(proof, ana):
    days = [f"2026-03-{day:02},{kg}" for kg in (3, 1, 2) for day in range(20, 0, -1)]
    table = "\n".join(["production_date,kg_produced", *days])
    ana.post("/proof/batches/bulk", table=table, key=str(uuid4()), create="1")
    first = ana.get("/proof/batches")
    older = re.search(r'href="([^"]+before=[^"]+)"', first)[1].replace("&amp;", "&")
    listed = [code for text in (first, ana.get(older)) for code in re.findall(r">(PR-\d{6}-\d{3})</a>", text)]
    assert listed == [f"PR-2603{day:02}-{n:03}" for n in (1, 2, 3) for day in range(20, 0, -1)]


def test_a_row_that_is_worth_a_look_says_why_and_is_counted(proof, ana):
    table = TABLE + "\n2099-03-20,5\n2026-03-21,480"
    text = ana.post("/proof/batches/bulk", status=200, table=table).text
    assert "5 batches would be created; 2 rows are worth a look." in text
    text = ana.post("/proof/batches/bulk", status=422, table=table + "\nsoon,1").text
    assert "1 row of 6 is wrong, 2 are worth a look. Nothing was created." in text
    assert "2099-03-20 lies in the future; " in text
    assert "same as line 3; " in text


def test_wrong_rows_are_named_and_nothing_is_created(proof, ana):
    table = TABLE + "\n2026-02-30,1\n2026-03-20,none"
    text = ana.post("/proof/batches/bulk", status=422, table=table).text
    assert "2 rows of 5 are wrong." in text
    assert "production_date must be a date" in text
    assert "kg_produced must be a number" in text
    # What only the database knows: there was no formulation then.
    text = ana.post("/proof/batches/bulk", status=422, table=TABLE + "\n2020-01-01,5").text
    assert "No active formulation found for date 2020-01-01" in text
    ana.post("/proof/batches/bulk", status=422, table=TABLE + "\n2020-01-01,5", create="1", key=str(uuid4()))
    assert proof.one("select count(*) from raw_ops.batches") == 0


def test_a_table_of_megabytes_is_not_sent_back(ana):
    huge = "production_date,kg_produced\n" + "2026-03-20,1\n" * 20_000
    as_file = ana.http.post(
        "/proof/batches/bulk",
        data={"csrf": ana.csrf, "table": ""},
        files={"file": ("batches.csv", huge.encode(), "text/csv")},
    )
    for answer in (as_file, ana.post("/proof/batches/bulk", status=422, table=huge)):
        assert (answer.status_code, "64 KiB" in answer.text, len(answer.content) < 64 * 1024) == (
            422,
            True,
            True,
        )


def test_a_table_is_uploaded_as_a_file(ana):
    answer = ana.http.post(
        "/proof/batches/bulk",
        data={"csrf": ana.csrf, "table": ""},
        files={"file": ("batches.csv", b"\xef\xbb\xbf" + TABLE.encode(), "text/csv")},
    )
    assert "3 batches would be created" in answer.text
    nonsense = ana.http.post(
        "/proof/batches/bulk",
        data={"csrf": ana.csrf, "table": ""},
        files={"file": ("batches.csv", bytes(range(256)), "text/csv")},
    )
    assert nonsense.status_code == 422
