"""`Audit(client)`: the whole log, for those who may see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from onceward import calls
from onceward.audit.checkpoints import Checkpoint, make_checkpoint
from onceward.audit.proofs import Proof, make_proof
from onceward.audit.verifying import Verification, verify
from onceward.calls import Call
from onceward.model_audit import AuditStatus

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

T = TypeVar("T")


class Runs(Protocol):
    """A client, for synchronous code: in a task, let the handler be a plain function."""

    def run(self, call: Call[T], /) -> T: ...


class Audit:
    """Needs a client of the tenant `*`, with the role of an auditor or operator; or of the owner."""

    def __init__(self, client: Runs) -> None:
        self._run = client.run

    def status(self) -> AuditStatus:
        return self._run(calls.audit_status())

    def seal(self) -> int:
        """Seal what is complete.  Returns how many entries."""
        sealed = 0
        while made := self._run(calls.seal()).entries:
            sealed += made
        return sealed

    def verify(
        self,
        checkpoints: Sequence[Checkpoint] = (),
        *,
        public_key: bytes | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Verification:
        """Recompute everything; with checkpoints, also whether the log goes on from them.  See `verifying.verify`."""
        return verify(self._run, checkpoints=checkpoints, public_key=public_key, progress=progress)

    def checkpoint(self, key: Ed25519PrivateKey | None = None) -> Checkpoint:
        """Seal, and return what to keep.  Call `exported` when it is kept."""
        self.seal()
        return make_checkpoint(self.status(), key=key, at=self._run(calls.now()))

    def exported(self, checkpoint: Checkpoint, where: str) -> None:
        """Say in the log that a checkpoint is kept elsewhere: days up to it may then be dropped."""
        if checkpoint["seals"]:
            head = bytes.fromhex(checkpoint["head"])
            self._run(calls.record_checkpoint(checkpoint["seals"], head, where, key=checkpoint.get("key")))

    def proof(self, seq: int, checkpoint: Checkpoint) -> Proof:
        """For one entry; see `proofs.make_proof`."""
        return make_proof(self._run, seq, checkpoint)
