"""Proofs: one entry and the few hashes that lead from it to a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onceward import calls
from onceward.audit.checkpoints import Checkpoint
from onceward.audit.merkle import path_of, split
from onceward.audit.verifier import ENTRY, leaf, problem
from onceward.audit.verifying import Run
from onceward.errors import OncewardError, WrongState

Proof = dict[str, Any]
FORMAT = "onceward.audit.proof/1"
PAGE = 10_000


def make_proof(run: Run, seq: int, checkpoint: Checkpoint) -> Proof:
    """For a checkpoint that was taken after the entry was sealed.

    Raises UnknownEntry; WrongState when no seal of the checkpoint has the entry; OncewardError when the log was changed.
    """
    found = run(calls.seal_of(seq))
    seals = int(checkpoint["seals"])
    if found.number is None or found.place is None or found.leaves is None or found.number > seals:
        raise WrongState(
            f"audit entry {seq} is not covered by the checkpoint",
            detail="It is not sealed yet." if found.number is None else f"It is in seal {found.number}.",
            hint='Seal it with "onceward audit seal", and take a new checkpoint.',
        )
    leaves = split(found.leaves)
    (seal,) = run(calls.seal_page(found.number - 1, 1))
    proof: Proof = {
        "format": FORMAT,
        "entry": dict(zip(ENTRY, found.fields[1:], strict=True)),
        "entry_path": {
            "index": found.place,
            "size": len(leaves),
            "path": path_of(leaves, found.place, len(leaves)),
        },
        "seal": seal.fields,
        "seal_path": {
            "index": found.number - 1,
            "size": seals,
            "path": path_of(_leaves_of_heads(run), found.number - 1, seals),
        },
    }
    wrong = problem(proof, checkpoint, None)
    if wrong is not None:
        raise OncewardError(
            f"audit entry {seq} cannot be proved: {wrong}",
            hint='Find out where the log was changed with "onceward audit verify".',
        )
    return proof


def _leaves_of_heads(run: Run) -> Iterator[bytes]:
    after = 0
    while heads := run(calls.seal_heads(after, PAGE)):
        after += len(heads)
        yield from map(leaf, heads)
