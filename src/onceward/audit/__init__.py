"""The audit log from outside: verifying it, checkpoints to keep, proofs of single entries.

`verifier` is a program of its own, which needs nothing else of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onceward.audit.checkpoints import (
        Checkpoint,
        make_checkpoint,
        new_key,
        read_checkpoint,
        read_private_key,
        read_public_key,
    )
    from onceward.audit.log import Audit
    from onceward.audit.proofs import Proof, make_proof
    from onceward.audit.verifying import Finding, Verification, verify

__all__ = [
    "Audit",
    "Checkpoint",
    "Finding",
    "Proof",
    "Verification",
    "make_checkpoint",
    "make_proof",
    "new_key",
    "read_checkpoint",
    "read_private_key",
    "read_public_key",
    "verify",
]

_HOME = {
    "Audit": "log",
    "Checkpoint": "checkpoints",
    "Finding": "verifying",
    "Proof": "proofs",
    "Verification": "verifying",
    "make_checkpoint": "checkpoints",
    "make_proof": "proofs",
    "new_key": "checkpoints",
    "read_checkpoint": "checkpoints",
    "read_private_key": "checkpoints",
    "read_public_key": "checkpoints",
    "verify": "verifying",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: `python -m onceward.audit.verifier` must find nothing of this package loaded.
    if name not in _HOME:
        raise AttributeError(f"module 'onceward.audit' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"onceward.audit.{_HOME[name]}"), name)
    globals()[name] = value
    return value
