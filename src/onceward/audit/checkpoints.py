"""Checkpoints: the head of the log at one moment, kept where nobody who can change the database can change it."""

from __future__ import annotations

import base64
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceward import calls
from onceward.audit.merkle import Frontier
from onceward.audit.verifier import CHECKPOINT, signed_bytes
from onceward.errors import InvalidArgument, shown
from onceward.model_audit import AuditStatus

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    from onceward.audit.verifying import Run

Checkpoint = dict[str, Any]
FORMAT = "onceward.audit.checkpoint/1"


def make_checkpoint(
    status: AuditStatus, *, key: Ed25519PrivateKey | None = None, at: datetime | None = None
) -> Checkpoint:
    """What to keep: how many seals and entries there are, and the hashes that stand for all of them."""
    checkpoint: Checkpoint = {
        "format": FORMAT,
        "log": status.log.hex(),
        "seals": status.seals,
        "entries": status.sealed,
        "head": status.head.hex(),
        "root": status.root.hex(),
        "at": (at or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="seconds"),
    }
    if key is not None:
        checkpoint["key"] = key_id(key.public_key())
        checkpoint["signature"] = base64.b64encode(key.sign(signed_bytes(checkpoint))).decode()
    return checkpoint


def checkpoint_at(run: Run, seals: int | None = None) -> Checkpoint:
    """As the log was after so many seals, from what it says itself; None: after all of them.

    It proves nothing about the log, which it was made from; it is what a proof of the same moment is checked against.
    """
    status = run(calls.audit_status())
    if seals is not None and seals != status.seals:
        found = run(calls.seal_page(seals - 1, 1)) if 0 < seals < status.seals else []
        if not found:
            raise InvalidArgument(f"the log has {status.seals} seals, got {seals}")
        total = int(found[0].fields["total"] or 0)
        root = Frontier(found[0].peaks, seals).root()
        status = status._replace(seals=seals, sealed=total, head=found[0].head, root=root)
    return make_checkpoint(status, at=run(calls.now()))


def read_checkpoint(path: Path) -> Checkpoint:
    """Raises InvalidArgument when the file is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise InvalidArgument(f"checkpoint {path} cannot be read: {reason}") from error
    return parse_checkpoint(text, str(path))


def parse_checkpoint(text: str, name: str) -> Checkpoint:
    """`name` is where it comes from, for the error.  Raises InvalidArgument."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"checkpoint {name} cannot be read: {error}") from error
    if (
        not isinstance(found, dict)
        or found.get("format") != FORMAT
        or any(not isinstance(found.get(name), str) for name in ("log", "head", "root", "at"))
        or any(type(found.get(name)) is not int or found[name] < 0 for name in ("seals", "entries"))
    ):
        raise InvalidArgument(
            f"{name} is not a checkpoint",
            detail=f'It needs "format": "{FORMAT}", and {", ".join(CHECKPOINT)}.',
        )
    return found


def new_key(path: Path) -> Path:
    """Make a key pair: the private one in `path`, for its owner's eyes only, the public one beside it."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    if not path.name:
        raise InvalidArgument(f"cannot write {path}: not the name of a file")
    key = Ed25519PrivateKey.generate()
    public = path.with_name(path.name + ".pub")
    for target, mode, data in (
        (path, 0o600, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())),
        (public, 0o644, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)),
    ):
        try:
            # Never over an existing file: what it has signed could not be verified any more.
            handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except OSError as error:
            raise InvalidArgument(
                f"cannot write {shown(str(target))}: {error.strerror}",
                hint="Choose another name; a key is never replaced.",
            ) from error
        with os.fdopen(handle, "wb") as file:
            file.write(data)
    return public


def read_private_key(path: Path) -> Ed25519PrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InvalidArgument(f"key {path} cannot be read: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidArgument(
            f"{path} is not an Ed25519 private key", hint='Make one with "onceward audit keygen".'
        )
    return key


def read_public_key(path: Path) -> bytes:
    """The PEM text, checked."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        text = path.read_bytes()
        key = load_pem_public_key(text)
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise InvalidArgument(f"key {path} cannot be read: {error}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidArgument(f"{path} is not an Ed25519 public key")
    return text


def key_id(key: Ed25519PublicKey) -> str:
    """The raw public key, as hexadecimal digits: short enough to be its own name."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()
