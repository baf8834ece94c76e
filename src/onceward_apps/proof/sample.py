"""Something to look at: products, a formulation, and eleven weeks of batches of a small company.

`load` brings what a batch needs; `fill` brings the batches.  Either may be called again, and then changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from onceward_apps.kit.storage import Storage
from onceward_apps.proof import drawing
from onceward_apps.proof.domain import day

PRODUCT = (
    "PRC-500",
    "Protocol Raw Complete",
    "PROTOCOL RAW COMPLETE",
    "Complete raw food for adult dogs. Keep frozen at −18 °C. Feed thawed, never cooked.",
    500,
    (
        "Beef (42 %), chicken with ground bone (30 %), beef heart (10 %), beef liver (5 %), carrot (4 %), kale (3 %), "
        "blueberry (2 %), flaxseed (1.5 %), salmon oil (1 %), sea kelp (0.5 %), egg (0.5 %), vitamin E, zinc, manganese, iodine."
    ),
)
# Its list of ingredients was pasted twice: no label can hold it, until somebody mends it under Products.
PUPPY = (
    "PRP-500",
    "Protocol Raw Puppy",
    "PROTOCOL RAW PUPPY",
    "Complete raw food for puppies from eight weeks. Keep frozen at −18 °C. Feed thawed, never cooked.",
    500,
    ("Chicken with ground bone (38 %), beef (30 %), beef heart (10 %), turkey (8 %), beef liver (5 %), carrot (3 %), "
     "kale (2 %), blueberry (1 %), flaxseed (1 %), salmon oil (1 %), sea kelp (0.5 %), egg (0.5 %), vitamin E, zinc. ") * 12,
)  # fmt: skip
FORMULATION = (
    "v2.1", "Complete Adult", "Beef and chicken, balanced for adult dogs", "2024-01-01",
    "https://protocolraw.co.uk/pages/formulation-v2-1", "Eurofins", "FORM-2024-07",
)  # fmt: skip
LAB = "Northgate Food Laboratories"
# Who does what in the samples.
MAKER, TESTER = "maya@example.com", "tom@example.com"
METHODS = {
    "Salmonella": ("ISO 6579-1", "Absent in 25 g"),
    "Enterobacteriaceae": ("ISO 21528-2", "5000 cfu/g"),
    "Listeria monocytogenes": ("ISO 11290-1", "Absent in 25 g"),
    "E. coli": ("ISO 16649-2", "500 cfu/g"),
}
CLEAN = "Not detected"


@dataclass(frozen=True, slots=True)
class Story:
    """One batch: made so many days ago, what the lab found, and what became of it."""

    days_ago: int
    kg: str
    found: Sequence[str] = ()
    outcome: str = "hold"
    views: int = 0


STORIES = (
    Story(76, "410", (CLEAN, "80 cfu/g", CLEAN, "< 10 cfu/g"), "release", 212),
    Story(69, "425", (CLEAN, "120 cfu/g", CLEAN, "< 10 cfu/g"), "release", 188),
    Story(62, "440.5", (CLEAN, "40 cfu/g", CLEAN, "20 cfu/g"), "release", 164),
    Story(55, "460", (CLEAN, "< 10 cfu/g", CLEAN, "< 10 cfu/g"), "release", 171),
    Story(48, "455", (CLEAN, "210 cfu/g", CLEAN, "30 cfu/g"), "release", 143),
    Story(41, "480", ("Detected in 25 g", "7200 cfu/g", CLEAN, "640 cfu/g"), "reject"),
    Story(40, "482.5", (CLEAN, "150 cfu/g", CLEAN, "< 10 cfu/g"), "release", 130),
    Story(34, "500", (CLEAN, "90 cfu/g", CLEAN, "10 cfu/g"), "release", 121),
    Story(27, "505", (CLEAN, "60 cfu/g", CLEAN, "< 10 cfu/g"), "release", 96),
    Story(20, "498", (CLEAN, "30 cfu/g", CLEAN, "< 10 cfu/g"), "release", 77),
    Story(13, "512.5", (CLEAN, "110 cfu/g", CLEAN, "< 10 cfu/g"), "release", 41),
    Story(8, "520", (CLEAN, "70 cfu/g", CLEAN, "20 cfu/g"), "release", 12),
    # Everything has come in, and somebody may press the button.
    Story(4, "515", (CLEAN, "55 cfu/g", CLEAN, "< 10 cfu/g"), "ready"),
    # On hold: the second culture is still growing.
    Story(3, "518", (CLEAN,), "hold"),
    # In production.
    Story(0, "530"),
)


def load(dsn: str) -> None:
    """Put the sample data in; what is there already stays as it is."""
    with psycopg.connect(dsn) as connection:
        _own(connection)
        _product(connection, PRODUCT)
        connection.execute(
            "insert into raw_ops.formulations (version, name, description, effective_from, shopify_page_url, lab_name,"
            " certificate_reference) values (%s, %s, %s, %s, %s, %s, %s) on conflict do nothing",
            FORMULATION,
        )
        connection.execute(
            "insert into raw_ops.config (key, value) values ('default_cogs_per_kg', '3.80'), ('default_product_sku', %s)"
            " on conflict do nothing",
            PRODUCT[:1],
        )


async def fill(dsn: str, storage: Storage) -> None:
    """Batches of the last eleven weeks, unless there is any.  Their labels and emails are made by a worker, as always."""
    load(dsn)
    with psycopg.connect(dsn) as connection:
        _own(connection)
        # Two starts at once: the second waits, and finds everything.
        connection.execute("lock table raw_ops.batch_counters in exclusive mode")
        if _one(connection, "select exists (select from raw_ops.batches)"):
            return
        today: date = _one(connection, "select (onceward.now() at time zone 'UTC')::date")
        for number, story in enumerate(STORIES):
            await _tell(connection, storage, story, today, number)
        _product(connection, PUPPY)
        _dead_letter(connection, today)


async def _tell(
    connection: psycopg.Connection[Any], storage: Storage, story: Story, today: date, number: int
) -> None:
    produced = today - timedelta(days=story.days_ago)
    _act_as(connection, MAKER)
    batch = _one(connection, "select raw_ops.fn_create_batch_v1(%s, %s)", produced, Decimal(story.kg))
    assert batch["success"], batch
    _made_at(connection, batch["batch_id"], timedelta(days=story.days_ago))
    if not story.found:
        return
    _act_as(connection, TESTER)
    analysed = min(today, produced + timedelta(days=3))
    results = [
        {"parameter": parameter, "method": method, "result": found, "limit": limit, "passed": _passes(found, limit)}
        for found, (parameter, (method, limit)) in zip(story.found, METHODS.items(), strict=False)
    ]  # fmt: skip
    reference = f"NFL-{analysed:%y%m}-{1040 + number * 7}"
    path = f"lab-reports/{batch['batch_code']}-sample.pdf"
    certificate = drawing.certificate_pdf(
        {"lab": LAB, "reference": reference, "customer": "Protocol Raw Ltd", "product": PRODUCT[1],
         "batch": batch["public_batch_id"], "analysed": day(analysed), "results": results}
    )  # fmt: skip
    await storage.put(path, certificate, content_type="application/pdf")
    answer = _one(
        connection, "select raw_ops.fn_record_lab_results_v1(%s, %s, %s, %s, %s, %s)",
        batch["batch_id"], Jsonb(results), LAB, reference, analysed, path,
    )  # fmt: skip
    assert answer["success"], answer
    if story.outcome == "release":
        _one(connection, "select raw_ops.fn_release_batch_v1(%s)", batch["batch_id"])
    elif story.outcome == "reject":
        _one(
            connection, "select raw_ops.fn_reject_batch_v1(%s, 'Salmonella was detected')", batch["batch_id"]
        )
    _decided_at(connection, batch["batch_id"], timedelta(days=max(story.days_ago - 4, 0)))
    connection.execute(
        "insert into raw_ops.proof_page_events (public_batch_id, event, created_at)"
        " select %s, 'page_view', onceward.now() - (%s / %s::numeric * g) * interval '1 day'"
        " from generate_series(1, %s) as g",
        [batch["public_batch_id"], story.days_ago, max(story.views, 1), story.views],
    )


def _dead_letter(connection: psycopg.Connection[Any], today: date) -> None:
    """A batch whose label cannot be drawn: the worker finds out, and a person decides."""
    _act_as(connection, MAKER)
    connection.execute("update raw_ops.config set value = %s where key = 'default_product_sku'", PUPPY[:1])
    batch = _one(connection, "select raw_ops.fn_create_batch_v1(%s, 120)", today - timedelta(days=1))
    connection.execute("update raw_ops.config set value = %s where key = 'default_product_sku'", PRODUCT[:1])
    assert batch["success"], batch
    _made_at(connection, batch["batch_id"], timedelta(days=1))


def _passes(found: str, limit: str) -> bool:
    if limit.startswith("Absent"):
        return found == CLEAN
    return float(found.removeprefix("< ").removesuffix(" cfu/g")) <= float(limit.removesuffix(" cfu/g"))


def _made_at(connection: psycopg.Connection[Any], batch_id: str, ago: timedelta) -> None:
    """Samples have a past, which functions cannot give them."""
    connection.execute(
        "update raw_ops.batches set created_at = created_at - %s where id = %s", [ago, batch_id]
    )
    connection.execute(
        "update raw_ops.batch_status_history set changed_at = changed_at - %s where batch_id = %s",
        [ago, batch_id],
    )
    connection.execute(
        "update raw_ops.ops_event_log set created_at = created_at - %s where entity_id = %s", [ago, batch_id]
    )


def _decided_at(connection: psycopg.Connection[Any], batch_id: str, ago: timedelta) -> None:
    connection.execute(
        "update raw_ops.batches set released_at = released_at - %s where id = %s", [ago, batch_id]
    )
    connection.execute(
        "update raw_ops.lab_results set recorded_at = recorded_at - %s where batch_id = %s", [ago, batch_id]
    )
    connection.execute(
        "update raw_ops.batch_status_history set changed_at = changed_at - %s where batch_id = %s and old_status is not null",
        [ago, batch_id],
    )
    connection.execute(
        "update raw_ops.ops_event_log set created_at = created_at - %s where entity_id = %s and message !~ '^Batch created'",
        [ago, batch_id],
    )


def _product(connection: psycopg.Connection[Any], product: tuple[object, ...]) -> None:
    connection.execute(
        "insert into raw_ops.products (sku, name, label_name, description, net_weight_g, ingredients)"
        " values (%s, %s, %s, %s, %s, %s) on conflict do nothing",
        product,
    )


def _own(connection: psycopg.Connection[Any]) -> None:
    """Tables are the owner's, for the rest of the transaction."""
    connection.execute("set local role onceward_owner")


def _act_as(connection: psycopg.Connection[Any], person: str) -> None:
    connection.execute("select set_config('onceward.actor', %s, true)", [person])


def _one(connection: psycopg.Connection[Any], statement: str, *params: object) -> Any:
    row = connection.execute(statement.encode(), params).fetchone()
    assert row is not None
    return row[0]
