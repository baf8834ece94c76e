"""Checkpoints and proofs: what they say, who signed it, and that the verifier needs nothing of Onceward."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from onceward import calls
from onceward.audit import (
    make_checkpoint,
    make_proof,
    new_key,
    read_checkpoint,
    read_private_key,
    read_public_key,
    verifier,
)
from onceward.errors import InvalidArgument, OncewardError, UnknownEntry, WrongState
from tests.support.audit import fill, runner, seal, tampering, verified

VERIFIER = Path(verifier.__file__)


@pytest.fixture
def log(db):
    for n in range(1, 8):
        fill(db, n)
        seal(db)
    return db


@pytest.fixture
def keys(tmp_path):
    public = new_key(tmp_path / "audit.key")
    return tmp_path / "audit.key", public


def checkpoint(db, key=None):
    return make_checkpoint(runner(db.conn)(calls.audit_status()), key=key)


def test_every_entry_has_a_proof_that_holds(log):
    kept = checkpoint(log)
    for seq in range(1, kept["entries"] + 1):
        proof = make_proof(runner(log.conn), seq, kept)
        assert verifier.problem(json.loads(json.dumps(proof)), kept, None) is None
        assert proof["entry"]["seq"] == str(seq)


def test_an_older_checkpoint_proves_what_it_covers(log):
    old = checkpoint(log)
    fill(log, 5)
    seal(log)
    assert verifier.problem(make_proof(runner(log.conn), 3, old), old, None) is None
    with pytest.raises(WrongState, match="not covered by the checkpoint"):
        make_proof(runner(log.conn), 30, old)


def test_an_entry_that_is_not_sealed_has_no_proof(log):
    fill(log, 1)
    with pytest.raises(WrongState) as caught:
        make_proof(runner(log.conn), 29, checkpoint(log))
    assert caught.value.detail == "It is not sealed yet."


def test_an_entry_that_does_not_exist_has_no_proof(log):
    with pytest.raises(Exception, match="audit entry 999 does not exist") as caught:
        make_proof(runner(log.conn), 999, checkpoint(log))
    assert isinstance(caught.value, UnknownEntry) or getattr(caught.value, "sqlstate", None) == "OW037"


def test_an_entry_that_was_changed_has_no_proof(log):
    kept = checkpoint(log)
    with tampering(log):
        log.run("update onceward.audit_private set actor = 'x' where seq = 9")
        with pytest.raises(OncewardError, match="cannot be proved: the entry is not in the seal"):
            make_proof(runner(log.conn), 9, kept)


def changed(value):
    """Every way to change one leaf of a JSON document."""
    if isinstance(value, dict):
        for name, item in value.items():
            for other in changed(item):
                yield {**value, name: other}
    elif isinstance(value, list):
        yield [*value, "00" * 32]
        for n, item in enumerate(value):
            yield value[:n] + value[n + 1 :]
            for other in changed(item):
                yield [*value[:n], other, *value[n + 1 :]]
    elif isinstance(value, int):
        yield value + 1
    elif value is None:
        yield ""
    elif len(value) == 64:
        yield "00" + value[2:] if not value.startswith("00") else "11" + value[2:]
    else:
        yield value + "0"


def test_a_proof_that_was_changed_anywhere_does_not_hold(log):
    kept = checkpoint(log)
    proof = make_proof(runner(log.conn), 12, kept)
    proof.pop("format")
    tried = 0
    for forged in changed(proof):
        assert verifier.problem(forged, kept, None) is not None, forged
        tried += 1
    assert tried > 40


def test_a_signed_checkpoint_is_that_of_its_key(log, keys, tmp_path):
    private, public = keys
    kept = checkpoint(log, read_private_key(private))
    proof = make_proof(runner(log.conn), 12, kept)
    key = read_public_key(public)

    assert verifier.problem(proof, kept, key) is None
    assert verified(log, checkpoints=[kept], public_key=key).whole
    for name in ("at", "entries", "head"):
        forged = {**kept, name: {"at": "2020-01-01T00:00:00+00:00", "entries": 1, "head": "00" * 32}[name]}
        assert verifier.problem(proof, forged, key) == "the checkpoint is not signed by this key"
    other = read_public_key(new_key(tmp_path / "other.key"))
    assert verifier.problem(proof, kept, other) == "the checkpoint is not signed by this key"
    unsigned = {name: value for name, value in kept.items() if name != "signature"}
    assert [f.kind for f in verified(log, checkpoints=[unsigned], public_key=key).findings] == [
        "bad_signature"
    ]


def test_the_private_key_is_for_its_owner_and_never_replaced(keys):
    private, _ = keys
    assert private.stat().st_mode & 0o777 == 0o600
    before = private.read_bytes()
    with pytest.raises(InvalidArgument, match="cannot write"):
        new_key(private)
    assert private.read_bytes() == before


def test_a_key_of_the_wrong_kind_is_refused(keys, tmp_path):
    private, public = keys
    for read, path in (
        (read_private_key, public),
        (read_public_key, private),
        (read_public_key, tmp_path / "none"),
    ):
        with pytest.raises(InvalidArgument):
            read(path)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "other"}', "not json", '{"format": "onceward.audit.checkpoint/1"}']
)
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path, text):
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(InvalidArgument, match="checkpoint"):
        read_checkpoint(tmp_path / "c.json")


# ------------------------------------------------------------ the verifier, as a program


def test_the_verifier_is_short_and_imports_nothing_of_onceward():
    lines = VERIFIER.read_text().splitlines()
    imported = {
        name
        for node in ast.walk(ast.parse("\n".join(lines)))
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else
                     [node.module] if isinstance(node, ast.ImportFrom) else [])
    }  # fmt: skip

    assert len(lines) <= 125
    assert {name.split(".")[0] for name in imported} <= {
        *sys.stdlib_module_names,
        "cryptography",
        "__future__",
    }


def run_verifier(folder: Path, *arguments: str):
    copy = folder / "verifier.py"
    copy.write_bytes(VERIFIER.read_bytes())
    # Isolated: neither this package nor anything of the environment is on its path but what is installed.
    return subprocess.run(
        [sys.executable, "-I", str(copy), *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_the_verifier_works_alone(log, keys, tmp_path):
    private, public = keys
    kept = checkpoint(log, read_private_key(private))
    proof = make_proof(runner(log.conn), 12, kept)
    (tmp_path / "proof.json").write_text(json.dumps(proof))
    (tmp_path / "checkpoint.json").write_text(json.dumps(kept))

    good = run_verifier(tmp_path, "proof.json", "checkpoint.json", "--key", public.name)
    unsigned = run_verifier(tmp_path, "proof.json", "checkpoint.json")
    proof["entry"]["actor"] = "somebody else"
    (tmp_path / "forged.json").write_text(json.dumps(proof))
    forged = run_verifier(tmp_path, "forged.json", "checkpoint.json")
    nonsense = run_verifier(tmp_path, "audit.key.pub", "checkpoint.json")

    assert (good.returncode, good.stdout) == (0, "proved: entry 12\n")
    assert (unsigned.returncode, unsigned.stdout) == (
        0,
        "proved: entry 12 (signature not checked: give --key)\n",
    )
    assert (forged.returncode, forged.stdout) == (1, "NOT PROVED: the entry is not in the seal\n")
    assert nonsense.returncode == 1
    assert nonsense.stdout.startswith("NOT PROVED: the files cannot be read")


@pytest.mark.slow
def test_the_verifier_runs_as_a_module_without_a_warning(log, tmp_path):
    kept = checkpoint(log)
    (tmp_path / "proof.json").write_text(json.dumps(make_proof(runner(log.conn), 12, kept)))
    (tmp_path / "checkpoint.json").write_text(json.dumps(kept))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "onceward.audit.verifier", "proof.json", "checkpoint.json"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
