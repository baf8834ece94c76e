"""The audit log from outside: verifying it, checkpoints to keep, proofs of single entries.

`verifier` is a program of its own, which needs nothing else of this package.
"""

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
