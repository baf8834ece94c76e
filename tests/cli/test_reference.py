"""The reference in the docs is made from the commands and is current."""

from __future__ import annotations

import re
from pathlib import Path

from tools import cli_reference


def test_the_page_is_current(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])

    assert cli_reference.main(["--check"]) == 0, "run python -m tools.cli_reference"


def test_a_stale_page_is_found(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)

    assert cli_reference.main(["--check"]) == 1
    assert "is stale" in capsys.readouterr().err
    assert cli_reference.main([]) == 0
    assert cli_reference.main(["--check"]) == 0


def test_every_json_document_is_described():
    with_json = {
        described.path for described, _ in cli_reference.pages() if "--json" in dict(described.options)
    }

    # Its document is described with the benchmarks.
    assert with_json - {"onceward bench"} == set(cli_reference.SHAPES)


def test_no_sentence_lacks_its_words():
    text = cli_reference.reference()

    assert "Default: ." not in text
    assert not re.search(r"`--json`\w", text)
