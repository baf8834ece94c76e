"""The model in prose names everything that is there."""

from __future__ import annotations

import re
from pathlib import Path

SQL = Path(__file__).parents[2] / "src/onceward/sql"
PROSE = (SQL / "README.md").read_text(encoding="utf-8")


def test_every_table_is_in_the_model():
    migrations = "".join(path.read_text(encoding="utf-8") for path in sorted(SQL.glob("migrations/*.sql")))
    tables = set(re.findall(r"create table onceward\.(\w+_private)", migrations))

    assert {table for table in tables if f"`{table}`" not in PROSE} == set()


def test_the_model_names_no_function_that_is_gone():
    functions = "".join(path.read_text(encoding="utf-8") for path in sorted(SQL.glob("functions/*.sql")))
    known = set(re.findall(r"function onceward\.(\w+)", functions))
    tables = re.findall(r"\| `?(.+?)`? \| .*? \| (.+?) \|", PROSE)
    named = {name for _, cells in tables for name in re.findall(r"`(\w+)`", cells)}

    assert named
    assert named - known == set()
