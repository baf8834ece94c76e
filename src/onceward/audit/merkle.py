"""The tree of RFC 6962, over hashes that come one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

from onceward.audit.verifier import node


class Frontier:
    """A tree that only grows, as the roots of its complete subtrees: memory is the logarithm of its size."""

    __slots__ = ("peaks", "size")

    def __init__(self, peaks: Iterable[bytes] = (), size: int = 0) -> None:
        self.size = size
        self.peaks = list(peaks)
        if len(self.peaks) != size.bit_count():
            raise ValueError(f"a tree of {size} leaves has {size.bit_count()} peaks, got {len(self.peaks)}")

    def with_leaf(self, leaf: bytes) -> Frontier:
        """Another tree, one leaf larger."""
        larger = Frontier(self.peaks, self.size)
        larger.append(leaf)
        return larger

    def append(self, leaf: bytes) -> None:
        rest = self.size
        while rest % 2:
            leaf = node(self.peaks.pop(), leaf)
            rest >>= 1
        self.peaks.append(leaf)
        self.size += 1

    def root(self) -> bytes:
        if not self.peaks:
            return sha256(b"").digest()
        found = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            found = node(peak, found)
        return found


def root_of(leaves: Iterable[bytes]) -> bytes:
    tree = Frontier()
    for leaf in leaves:
        tree.append(leaf)
    return tree.root()


def path_of(leaves: Iterable[bytes], index: int, size: int) -> list[str]:
    """What is needed beside leaf `index` to get the root over the first `size` leaves; read once, as a stream."""
    spans = _siblings(index, size)
    trees = {span: Frontier() for span in spans}
    ahead = iter(sorted(spans))
    span = next(ahead, None)
    for place, leaf in zip(range(size), leaves, strict=False):
        while span is not None and place >= span[1]:
            span = next(ahead, None)
        if span is not None and place >= span[0]:
            trees[span].append(leaf)
    return [trees[span].root().hex() for span in spans]


def split(packed: bytes) -> Sequence[bytes]:
    """Hashes that lie end to end."""
    return [packed[i : i + 32] for i in range(0, len(packed), 32)]


def _siblings(index: int, size: int) -> list[tuple[int, int]]:
    """The subtrees beside the way from the leaf to the root, nearest first."""
    low, high, spans = 0, size, []
    while high - low > 1:
        middle = low + (1 << (high - low - 1).bit_length() - 1)
        if index < middle:
            spans.append((middle, high))
            high = middle
        else:
            spans.append((low, middle))
            low = middle
    return spans[::-1]
