"""Verifying the whole log: every hash again, from the entries up, in one pass and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol, TypeVar

from onceward import calls
from onceward.audit.checkpoints import Checkpoint
from onceward.audit.merkle import Frontier, root_of, split
from onceward.audit.verifier import framed, head_of, leaf, signature_problem
from onceward.calls import Call
from onceward.model_audit import EntryRow, SealRow

T = TypeVar("T")
Place = tuple[str, int]
# Findings beyond these are counted and not kept.
MOST = 1000
PAGE = 500
ORIGIN: Place = ("0", 0)


class Run(Protocol):
    """Runs one call: `client.run`, or the command line's."""

    def __call__(self, call: Call[T], /) -> T: ...


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it was sealed, and where.

    kind: entry_edited, entry_deleted, entry_inserted; seal_edited, seal_deleted, leaves_edited;
    truncated, rewritten, wrong_log, bad_signature (these against a checkpoint).
    """

    kind: str
    seal: int | None
    entry: int | None
    detail: str
    day: str | None = None


@dataclass(slots=True)
class Verification:
    """What was found.  The log is whole when there are no findings."""

    seals: int = 0
    entries: int = 0
    unsealed: int = 0
    dropped_before: str | None = None
    dropped: int = 0
    checkpoints: int = 0
    findings: list[Finding] = field(default_factory=list)
    more_findings: int = 0

    @property
    def whole(self) -> bool:
        return not self.findings


def verify(
    run: Run,
    *,
    checkpoints: Sequence[Checkpoint] = (),
    public_key: bytes | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Recompute the log and compare it with its seals, and these with checkpoints kept outside.

    Without a checkpoint, a log that was cut off at its end, or written anew from some seal on, looks whole.
    `progress` is told how many seals of how many are verified.
    """
    return _Verifier(run, checkpoints, public_key, progress).verify()


class _Verifier:
    def __init__(
        self,
        run: Run,
        checkpoints: Sequence[Checkpoint],
        public_key: bytes | None,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.run = run
        self.public_key = public_key
        self.progress = progress
        self.checkpoints = sorted(checkpoints, key=lambda checkpoint: int(checkpoint["seals"]))
        self.result = Verification()
        # None after a seal that is gone, until one tells how to go on.
        self.tree: Frontier | None = Frontier()
        self.head = b""
        self.total = 0
        self.number = 0
        self.upto: Place | None = None
        self.era = 0
        self.eras: list[int] = []
        self.has_gap = False
        self.dropped: str | None = None

    def verify(self) -> Verification:
        # What is sealed while this runs is for the next time.
        status = self.run(calls.audit_status())
        self.eras = self.run(calls.seal_eras())
        if status.restored:
            # What was written since the restore comes into the next era, which begins with the next seal.
            last = self.run(calls.seal_page(status.seals - 1, 1))
            self.eras += [int(seal.fields["top_seq"] or 0) for seal in last]
        self.dropped = self.result.dropped_before = self.run(calls.audit_dropped())
        self.result.unsealed = status.unsealed
        self.head = status.log
        self._check_checkpoints_themselves(status.log.hex())
        self._compare_checkpoints()
        for _, chunk in groupby(self._seals(status.seals), key=_range_of):
            self._verify_chunk(list(chunk))
            if self.progress is not None:
                self.progress(self.number, status.seals)
        for checkpoint in self.checkpoints:
            if checkpoint["seals"] > self.number:
                self._find(
                    "truncated", f"a checkpoint of {checkpoint['at']} has {checkpoint['seals']} seals",
                    seal=self.number + 1,
                )  # fmt: skip
        self._forgive_dropped()
        return self.result

    def _seals(self, upto: int) -> Iterator[SealRow]:
        after = 0
        while rows := self.run(calls.seal_page(after, PAGE)):
            for row in rows:
                after = int(row.fields["number"] or 0)
                if after > upto:
                    return
                yield row

    # ------------------------------------------------------------ seals

    def _verify_chunk(self, seals: list[SealRow]) -> None:
        first = seals[0].fields
        above, after, upto = int(first["above_seq"] or 0), _place(first, "after"), _place(first, "upto")
        if above != self.era:
            # Everything above is another era's.
            self._scan_era_end(above)
            self.era, self.upto = above, None
        self.has_gap = False
        for seal in seals:
            self._verify_seal(seal)
        bounds = (above or None, next((later for later in self.eras if later > above), None))
        if after != (self.upto or ORIGIN):
            # Between seals there is nothing; if there is, its seal is gone, which has been found.
            self.result.entries += sum(1 for _ in self._entries(bounds, self.upto, after))
        # From the very beginning, so that nothing hides before the first seal.
        self._verify_entries(seals, self._entries(bounds, None if after == ORIGIN else after, upto))
        self.upto = upto

    def _verify_seal(self, seal: SealRow) -> None:
        number, total = int(seal.fields["number"] or 0), int(seal.fields["total"] or 0)
        wrong, head = [], seal.head
        if head_of(seal.fields) != seal.head:
            wrong.append("its head is not the hash of its fields")
        if number == self.number + 1:
            if seal.fields["previous"] != self.head.hex():
                wrong.append("it does not follow from the seal before")
            if total != self.total + int(seal.fields["entries"] or 0):
                wrong.append("its total does not add up")
        else:
            for missing in range(self.number + 1, min(number, self.number + MOST)):
                self._find("seal_deleted", "the seal is not there", seal=missing)
            self.has_gap, self.tree = True, None
        # Whether the head or a field was changed, the tree can tell; later seals are then judged by what is right.
        if self.tree is not None:
            trees = {
                hashed: self.tree.with_leaf(leaf(hashed)) for hashed in (seal.head, head_of(seal.fields))
            }
            head = next((h for h, tree in trees.items() if tree.peaks == seal.peaks), seal.head)
            self.tree = trees[head]
            if self.tree.peaks != seal.peaks:
                wrong.append("its tree is not that of the seals before")
        elif len(seal.peaks) == number.bit_count():
            self.tree = Frontier(seal.peaks, number)
        if wrong:
            self._find("seal_edited", "; ".join(wrong), seal=number)
        self.number, self.head, self.total = number, head, total
        self.result.seals += 1
        self._compare_checkpoints()

    # ------------------------------------------------------------ entries

    def _verify_entries(self, seals: list[SealRow], entries: Iterable[EntryRow]) -> None:
        expected: dict[int, tuple[bytes, SealRow]] = {}
        unknown: dict[str, Frontier] = {}
        for seal in seals:
            number, day = int(seal.fields["number"] or 0), seal.fields["day"] or ""
            if self.dropped is not None and day < self.dropped:
                self.result.dropped += int(seal.fields["entries"] or 0)
                continue
            known = self.run(calls.seal_leaves(number))
            hashes = split(known[1]) if known else []
            if known is None or root_of(hashes).hex() != seal.fields["root"] or len(hashes) != len(known[0]):
                self._find(
                    "leaves_edited", "the leaves of the seal do not give its root", seal=number, day=day
                )
                unknown[day] = Frontier()
            else:
                expected.update((seq, (hashed, seal)) for seq, hashed in zip(known[0], hashes, strict=True))
        for entry in entries:
            self.result.entries += 1
            self._verify_entry(entry, expected, unknown)
        for seq, (_, seal) in expected.items():
            self._find(
                "entry_deleted", "the entry is not there", seal=int(seal.fields["number"] or 0), entry=seq,
                day=seal.fields["day"],
            )  # fmt: skip
        for seal in seals:
            tree = unknown.get(seal.fields["day"] or "")
            if tree is not None and tree.root().hex() != seal.fields["root"]:
                self._find(
                    "entry_edited", "entries of the seal do not give its root; which one, its leaves would tell",
                    seal=int(seal.fields["number"] or 0), day=seal.fields["day"],
                )  # fmt: skip

    def _verify_entry(
        self,
        entry: EntryRow,
        expected: dict[int, tuple[bytes, SealRow]],
        unknown: dict[str, Frontier],
    ) -> None:
        hashed = leaf(framed(entry.fields[0] or "", entry.fields[1:]))
        day = (entry.fields[3] or "")[:10]
        if day in unknown:
            unknown[day].append(hashed)
            return
        sealed = expected.pop(entry.seq, None)
        if sealed is None and not self.has_gap:
            self._find(
                "entry_inserted", "no seal contains the entry", seal=self.number, entry=entry.seq, day=day
            )
        elif sealed is not None and sealed[0] != hashed:
            self._find(
                "entry_edited", "the entry is not what was sealed", seal=int(sealed[1].fields["number"] or 0),
                entry=entry.seq, day=sealed[1].fields["day"],
            )  # fmt: skip

    def _entries(
        self, bounds: tuple[int | None, int | None], after: Place | None, upto: Place | None
    ) -> Iterator[EntryRow]:
        place = after
        while rows := self.run(calls.audit_page(bounds, place, upto, PAGE)):
            yield from rows
            place = (rows[-1].xact, rows[-1].seq)

    def _scan_era_end(self, next_above: int) -> None:
        """Beyond the last seal of an era there is nothing."""
        bounds = (self.era or None, next_above)
        for entry in self._entries(bounds, self.upto, None):
            self._find("entry_inserted", "no seal contains the entry", seal=self.number, entry=entry.seq)

    # ------------------------------------------------------------ checkpoints

    def _check_checkpoints_themselves(self, log: str) -> None:
        for checkpoint in self.checkpoints:
            problem = signature_problem(checkpoint, self.public_key) if self.public_key else None
            if problem:
                self._find("bad_signature", problem, seal=checkpoint["seals"])
            if checkpoint["log"] != log:
                self._find(
                    "wrong_log", "the checkpoint is of another log, or this log was begun anew", seal=0
                )

    def _compare_checkpoints(self) -> None:
        for checkpoint in self.checkpoints:
            if checkpoint["seals"] != self.number:
                continue
            self.result.checkpoints += 1
            same = (self.head.hex(), self.total) == (checkpoint["head"], checkpoint["entries"])
            rooted = self.tree is None or self.tree.root().hex() == checkpoint["root"]
            if not (same and rooted):
                before = [c["seals"] for c in self.checkpoints if c["seals"] < self.number]
                self._find(
                    "rewritten",
                    f"after seal {max(before, default=0)}, the log is not the one that a checkpoint of "
                    f"{checkpoint['at']} saw",
                    seal=self.number,
                )

    # ------------------------------------------------------------ findings

    def _find(
        self,
        kind: str,
        detail: str,
        *,
        seal: int | None = None,
        entry: int | None = None,
        day: str | None = None,
    ) -> None:
        if len(self.result.findings) < MOST:
            self.result.findings.append(Finding(kind, seal, entry, detail, day))
        else:
            self.result.more_findings += 1

    def _forgive_dropped(self) -> None:
        """Days that were dropped while this ran are not missing."""
        now = self.run(calls.audit_dropped())
        if now != self.dropped and now is not None:
            self.result.dropped_before = now
            self.result.findings = [
                found for found in self.result.findings if found.day is None or found.day >= now
            ]


def _place(fields: dict[str, Any], side: str) -> Place:
    return fields[f"{side}_xact"], int(fields[f"{side}_seq"])


def _range_of(seal: SealRow) -> tuple[str | None, ...]:
    names = ("above_seq", "after_xact", "after_seq", "upto_xact", "upto_seq")
    return tuple(seal.fields[name] for name in names)
