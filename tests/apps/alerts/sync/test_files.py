"""CSV and Parquet files: growing, replaced, half-written, empty, odd."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

HEADER = "order_id,customer_id,ordered_at,updated_at,amount\n"


def line(
    number: object, amount: object = "10.00", *, customer: str = "c1", at: str = "2026-02-01T10:00:00Z"
) -> str:
    return f"{number},{customer},{at},{at},{amount}\n"


def test_a_file_is_read_once_and_then_what_was_added(syncs):
    syncs.source("export", "csv", path="orders.csv")
    syncs.write("orders.csv", HEADER + line(1) + line(2))

    assert syncs.run()["export"] == {"pages": 1, "rows": 2, "written": 2, "deleted": 0}
    before = syncs.versions()
    assert syncs.run()["export"] == {"pages": 1, "rows": 0, "written": 0, "deleted": 0}
    assert syncs.versions() == before

    with (syncs.folder / "northwind" / "orders.csv").open("a") as file:
        file.write(line(3, "7.5"))
    assert syncs.run()["export"]["rows"] == 1
    assert syncs.orders() == [("1", "10.00"), ("2", "10.00"), ("3", "7.5")]


def test_a_line_that_is_being_written_is_left_until_it_is_whole(syncs):
    syncs.source("export", "csv", path="orders.csv")
    whole = line(2, "1234.56")
    syncs.write("orders.csv", HEADER + line(1) + whole[:-4])

    assert syncs.run()["export"]["rows"] == 1
    syncs.write("orders.csv", HEADER + line(1) + whole)
    assert syncs.run()["export"]["rows"] == 1
    assert syncs.orders() == [("1", "10.00"), ("2", "1234.56")]


def test_the_last_line_of_a_file_that_rests_needs_no_newline(syncs):
    syncs.source("export", "csv", path="orders.csv")
    syncs.write("orders.csv", (HEADER + line(1)).rstrip("\n"))
    path = syncs.folder / "northwind" / "orders.csv"
    os.utime(path, (path.stat().st_mtime - 61,) * 2)

    assert syncs.run()["export"]["rows"] == 1


def test_a_record_that_goes_on_over_lines_is_not_cut(syncs):
    syncs.source("export", "csv", path="orders.csv", extra=["note"])
    header = HEADER.rstrip("\n") + ",note\n"
    first, second = (
        line(1).rstrip("\n") + ',"one\nline, and ""another"""\n',
        line(2).rstrip("\n") + ',"in\nthe making',
    )
    syncs.write("orders.csv", header + first + second)

    assert syncs.run()["export"]["rows"] == 1
    syncs.write("orders.csv", header + first + second + '"\n')
    assert syncs.run()["export"]["rows"] == 1
    assert syncs.orders("extra ->> 'note'") == [('one\nline, and "another"',), ("in\nthe making",)]


def test_a_file_that_grows_while_it_is_read_is_read_up_to_where_it_was(syncs, monkeypatch):
    from onceward_apps.alerts.sync import connector

    syncs.source("export", "csv", path="orders.csv", page_size=2)
    path = syncs.folder / "northwind" / "orders.csv"
    syncs.write("orders.csv", HEADER + "".join(line(number) for number in range(1, 5)))
    check = connector.check_columns
    grown = iter(range(100, 200))

    def growing(*arguments):
        # Between two pages, somebody appends a line and the beginning of another: for ever, if we waited for the end.
        with path.open("a") as file:
            file.write(line(next(grown)) + "half,of")
        return check(*arguments)

    monkeypatch.setattr(connector, "check_columns", growing)
    tally = syncs.run()["export"]

    assert (tally["pages"], tally["rows"]) == (2, 4)
    assert [number for number, _ in syncs.orders()] == ["1", "2", "3", "4"]


def test_a_file_that_was_replaced_is_read_from_its_beginning(syncs):
    syncs.source("export", "csv", path="orders.csv")
    syncs.write("orders.csv", HEADER + line(1) + line(2))
    syncs.run()
    # Longer than before, so that only its beginning tells.
    syncs.write("orders.csv", HEADER + line(8, at="2026-02-02T10:00:00Z") + line(9) + line(10))

    assert syncs.run()["export"]["rows"] == 3
    syncs.write("orders.csv", HEADER + line(11))
    assert syncs.run()["export"]["rows"] == 1


def test_a_file_that_is_written_over_is_read_again_if_the_settings_say_so(syncs):
    syncs.source("export", "csv", path="orders.csv", reread=True)
    head = "".join(line(number) for number in range(100))
    syncs.write("orders.csv", HEADER + head + line(100, "1"))
    assert syncs.run()["export"]["written"] == 101
    assert syncs.run()["export"]["rows"] == 0

    syncs.write("orders.csv", HEADER + head + line(100, "2"))
    tally = syncs.run()["export"]
    assert (tally["rows"], tally["written"]) == (101, 1)


@pytest.mark.parametrize("content", ["", HEADER, HEADER.rstrip("\n"), "\n"])
def test_an_empty_file_is_no_error(syncs, content):
    syncs.source("export", "csv", path="orders.csv")
    syncs.write("orders.csv", content)

    if content == "\n":
        assert 'source "export" has no column' in syncs.refused()
    else:
        assert syncs.run()["export"]["rows"] == 0
        syncs.write("orders.csv", HEADER + line(1))
        assert syncs.run()["export"]["rows"] == 1


def test_no_file_at_all_is_no_error(syncs):
    syncs.source("export", "csv", path="orders-*.csv")

    assert syncs.run()["export"] == {"pages": 1, "rows": 0, "written": 0, "deleted": 0}


def test_unicode_is_kept_as_it_is_written(syncs):
    syncs.source("export", "csv", path="*.csv", columns={"name": "näme"})
    header = HEADER.rstrip("\n") + ",näme\n"
    names = ["Łucja Żółć", "山田 太郎", "e\u0301 ≠ é", "🧾 \u202ertl", "O'Brien; drop table"]
    lines = [line(number).rstrip("\n") + f",{name}\n" for number, name in enumerate(names)]
    # With the mark that Excel writes.
    syncs.write("orders.csv", b"\xef\xbb\xbf" + (header + "".join(lines)).encode())

    assert syncs.run()["export"]["rows"] == 5
    assert [name for (name,) in syncs.orders("name")] == names


def test_another_encoding_is_named_in_the_settings(syncs):
    syncs.source("export", "csv", path="orders.csv", delimiter=";")
    content = (HEADER.replace(",", ";") + "1;Müller;2026-02-01;2026-02-01;5\n").encode("cp1252")
    syncs.write("orders.csv", content)
    assert 'line 2 of "orders.csv" is not utf-8: byte 4 is 0xfc' in syncs.refused()

    syncs.source("export", "csv", path="orders.csv", delimiter=";", encoding="cp1252")
    syncs.run()
    assert syncs.orders("customer_id") == [("Müller",)]


def test_numbers_keep_their_digits(syncs):
    syncs.source("export", "csv", path="orders.csv")
    amounts = ["0.1", "-0", "1e3", "99999999999999999999.99", ".5", "+7.", "0.000000000000000001"]
    syncs.write("orders.csv", HEADER + "".join(line(number, amount) for number, amount in enumerate(amounts)))

    syncs.run()
    assert [Decimal(amount) for _, amount in syncs.orders()] == [Decimal(amount) for amount in amounts]
    # Ids are texts: zeros at the front stay.
    syncs.write("more.csv", HEADER + line("00042"))
    syncs.source("more", "csv", path="more.csv")
    syncs.run()
    assert ("00042", "10.00") in syncs.orders()


def test_a_row_that_cannot_be_used_is_refused_with_its_place_and_nothing_is_written(syncs):
    syncs.source("export", "csv", path="orders.csv")
    syncs.write("orders.csv", HEADER + line(1) + line(2, '"1,234.50"'))

    error = syncs.refused()

    assert 'could not read source "export"' in error
    assert """line 3 of "orders.csv", column "amount" must be a number, got '1,234.50'""" in error
    assert syncs.orders() == []


def test_a_line_with_too_many_fields_is_refused_with_its_number(syncs):
    syncs.source("export", "csv", path="orders.csv")
    syncs.write("orders.csv", HEADER + line(1) + line(2, "12,50"))

    assert 'line 3 of "orders.csv" has 6 fields, and the header has 5' in syncs.refused()


def test_bad_rows_can_be_left_out_and_are_told(syncs):
    syncs.source("export", "csv", path="orders.csv", on_bad_row="skip")
    syncs.write("orders.csv", HEADER + line(1) + line(2, "?") + line(3, at="yesterday") + line(4))

    tally = syncs.run()["export"]

    assert (tally["written"], tally["left_out"]) == (2, 2)
    assert tally["problems"] == [
        'line 3 of "orders.csv", column "amount" must be a number, got \'?\'',
        'line 4 of "orders.csv", column "ordered_at" must be a time in ISO 8601, got \'yesterday\'',
    ]


def test_metric_values_come_with_constants_and_define_their_metric(syncs):
    syncs.source(
        "traffic", "csv", "metric_values", path="traffic.csv",
        columns={"observed_at": "day", "value": "visits", "external_object_id": "shop"}, constants={"metric_code": "visits"},
    )  # fmt: skip
    syncs.write(
        "traffic.csv", "day,shop,visits\n2026-02-01,berlin,120\n2026-02-01,wien,80\n2026-02-01,berlin,125\n"
    )

    # Of two values of one object at one moment, the last one counts.
    assert syncs.run()["traffic"]["written"] == 2
    assert syncs.place.rows("select external_object_id, value from alerts.metric_values order by 1") == [
        ("berlin", 125.0),
        ("wien", 80.0),
    ]
    assert syncs.place.rows("select external_object_id from alerts.metric_objects order by 1") == [
        ("berlin",),
        ("wien",),
    ]
    assert syncs.place.rows("select metric_code, title from alerts.metric_definitions") == [
        ("visits", "visits")
    ]


# ---------------------------------------------------------------- Parquet


def table(numbers, **more) -> pa.Table:
    at = datetime(2026, 2, 1, 10, tzinfo=UTC)
    return pa.table({
        "order_id": pa.array(numbers, pa.int64()),
        "customer_id": [f"c{number % 2}" for number in numbers],
        "ordered_at": pa.array([at] * len(numbers), pa.timestamp("us", "UTC")),
        "updated_at": pa.array([at] * len(numbers), pa.timestamp("ns", "UTC")),
        "amount": pa.array([Decimal("12.30")] * len(numbers), pa.decimal128(12, 2)),
        **more,
    })  # fmt: skip


def test_parquet_is_read_by_row_groups_and_pages(syncs):
    syncs.source("lake", "parquet", path="*.parquet", page_size=3)
    pq.write_table(table(range(10)), syncs.folder / "northwind" / "a.parquet", row_group_size=5)
    pq.write_table(table([10]), syncs.folder / "northwind" / "b.parquet")

    # 3 + 2, 3 + 2, and one of the other file.
    assert syncs.run()["lake"] == {"pages": 5, "rows": 11, "written": 11, "deleted": 0}
    assert syncs.orders("amount::text") == [("12.30",)] * 11
    assert syncs.run()["lake"]["rows"] == 0


def test_parquet_without_rows_and_one_that_is_being_written(syncs):
    syncs.source("lake", "parquet", path="*.parquet")
    folder = syncs.folder / "northwind"
    pq.write_table(table([]), folder / "a.parquet")
    pq.write_table(table([1]), folder / "whole")
    content = (folder / "whole").read_bytes()
    (folder / "b.parquet").write_bytes(content[:-20])

    assert syncs.run()["lake"]["rows"] == 0
    (folder / "b.parquet").write_bytes(content)
    assert syncs.run()["lake"]["rows"] == 1

    (folder / "b.parquet").write_bytes(b"PAR1 and nothing of it")
    os.utime(folder / "b.parquet", (0, 0))
    assert 'file "b.parquet" is not Parquet' in syncs.refused()


def test_parquet_that_was_written_over_is_read_again(syncs):
    syncs.source("lake", "parquet", path="a.parquet")
    path = syncs.folder / "northwind" / "a.parquet"
    pq.write_table(table([1, 2]), path)
    syncs.run()
    pq.write_table(table([1, 2, 3]), path)

    tally = syncs.run()["lake"]
    assert (tally["rows"], tally["written"]) == (3, 1)


# ---------------------------------------------------------------- what may be read


@pytest.mark.parametrize("path", ["../kiwi/orders.csv", "/etc/passwd", "a/../../kiwi/orders.csv"])
def test_a_path_does_not_leave_the_tenants_folder(syncs, path):
    syncs.source("export", "csv", path=path)
    syncs.write("orders.csv", HEADER + line(1), tenant="kiwi")

    assert "path must be a name below the tenant's folder" in syncs.refused()


def test_a_link_does_not_leave_the_tenants_folder(syncs):
    syncs.source("export", "csv", path="*.csv")
    syncs.write("orders.csv", HEADER + line(1), tenant="kiwi")
    (syncs.folder / "northwind" / "orders.csv").symlink_to(syncs.folder / "kiwi" / "orders.csv")

    assert syncs.run()["export"]["rows"] == 0
