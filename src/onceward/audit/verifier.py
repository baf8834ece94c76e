"""Check that an entry is in an Onceward audit log: its proof against a checkpoint that you kept.

Needs Python and, for signatures, `cryptography`; nothing of Onceward.  Copy this file where you need it.

    python -m onceward.audit.verifier proof.json checkpoint.json --key audit.pub
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

ENTRY = ("seq", "xact", "at", "kind", "source", "actor", "role", "tenant", "job_id", "jobs", "entity_type",
         "entity_id", "before", "after", "message", "meta")  # fmt: skip
SEAL = ("number", "previous", "day", "above_seq", "after_xact", "after_seq", "upto_xact", "upto_seq", "top_seq",
        "entries", "total", "root", "at")  # fmt: skip
CHECKPOINT = ("log", "seals", "entries", "head", "root", "at")


def framed(tag: str, fields: Iterable[str | None]) -> bytes:
    """Each text with its length before it, in four bytes, big-endian; null is the length -1."""
    texts = [None if field is None else field.encode() for field in (tag, *fields)]
    return b"".join(
        b"\xff\xff\xff\xff" if text is None else len(text).to_bytes(4, "big") + text for text in texts
    )


def entry_bytes(entry: dict[str, Any]) -> bytes:
    return framed("onceward.audit.1", (entry[name] for name in ENTRY))


def head_of(seal: dict[str, Any]) -> bytes:
    return sha256(framed("onceward.seal.1", (seal[name] for name in SEAL))).digest()


def signed_bytes(checkpoint: dict[str, Any]) -> bytes:
    return framed("onceward.checkpoint.1", (str(checkpoint[name]) for name in CHECKPOINT))


def leaf(data: bytes) -> bytes:
    return sha256(b"\x00" + data).digest()


def node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def root_by_path(start: bytes, index: int, size: int, path: Sequence[str]) -> bytes | None:
    """The root that this leaf and its path give (RFC 9162, 2.1.3.2), or None when the path does not fit."""
    if not 0 <= index < size:
        return None
    place, last, found = index, size - 1, start
    for sibling in map(bytes.fromhex, path):
        if last == 0:
            return None
        if place % 2 or place == last:
            found = node(sibling, found)
            while not place % 2 and place:
                place, last = place >> 1, last >> 1
        else:
            found = node(found, sibling)
        place, last = place >> 1, last >> 1
    return found if last == 0 else None


def problem(proof: dict[str, Any], checkpoint: dict[str, Any], public_key: bytes | None) -> str | None:
    """Why the proof does not hold, or None when it does."""
    seal, within, among = proof["seal"], proof["entry_path"], proof["seal_path"]
    if root_by_path(leaf(entry_bytes(proof["entry"])), **within) != bytes.fromhex(seal["root"]):
        return "the entry is not in the seal"
    if int(seal["entries"]) != within["size"] or int(seal["number"]) != among["index"] + 1:
        return "the paths belong to another seal"
    if among["size"] != checkpoint["seals"]:
        return "the proof was made for another checkpoint"
    if root_by_path(leaf(head_of(seal)), **among) != bytes.fromhex(checkpoint["root"]):
        return "the seal is not among those of the checkpoint"
    return None if public_key is None else signature_problem(checkpoint, public_key)


def signature_problem(checkpoint: dict[str, Any], public_key: bytes) -> str | None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    key = load_pem_public_key(public_key)
    if not isinstance(key, Ed25519PublicKey):
        return "the key is not an Ed25519 public key"
    try:
        key.verify(base64.b64decode(checkpoint.get("signature") or ""), signed_bytes(checkpoint))
    except InvalidSignature:
        return "the checkpoint is not signed by this key"
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check a proof of an Onceward audit log.")
    parser.add_argument("proof", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--key", type=Path, help="public key (PEM) that must have signed the checkpoint")
    given = parser.parse_args(arguments)
    try:
        proof, checkpoint = (json.loads(path.read_text()) for path in (given.proof, given.checkpoint))
        wrong = problem(proof, checkpoint, given.key.read_bytes() if given.key else None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        wrong = f"the files cannot be read: {type(error).__name__}: {error}"
    print(f"NOT PROVED: {wrong}" if wrong else f"proved: entry {proof['entry']['seq']}", end="")
    print("" if wrong or given.key else " (signature not checked: give --key)")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
