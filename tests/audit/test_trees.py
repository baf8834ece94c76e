"""Our trees and proofs against those of an independent implementation."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymerkle import InmemoryTree, verify_inclusion

from onceward.audit.merkle import Frontier, path_of, root_of
from onceward.audit.verifier import leaf, root_by_path

entries = st.lists(st.binary(max_size=40), min_size=1, max_size=130)


def theirs(data: list[bytes]) -> InmemoryTree:
    tree = InmemoryTree(algorithm="sha256")
    for item in data:
        tree.append_entry(item)
    return tree


@given(entries)
def test_roots_agree(data):
    assert root_of(map(leaf, data)) == theirs(data).get_root()


@given(entries, st.data())
def test_our_path_leads_to_their_root_and_theirs_to_ours(data, draw):
    index = draw.draw(st.integers(0, len(data) - 1))
    leaves = [leaf(item) for item in data]
    tree = theirs(data)

    path = path_of(iter(leaves), index, len(leaves))
    assert root_by_path(leaves[index], index, len(leaves), path) == tree.get_root()

    proof = tree.prove_inclusion(index + 1, len(data))
    verify_inclusion(leaves[index], root_of(leaves), proof)
    # Theirs begins with the leaf itself.
    assert [hashed.hex() for hashed in proof.path[1:]] == path


@given(entries, st.data())
def test_a_path_fits_one_leaf_and_one_place(data, draw):
    index = draw.draw(st.integers(0, len(data) - 1))
    leaves = [leaf(item) for item in data]
    path, root = path_of(leaves, index, len(leaves)), root_of(leaves)

    assert (
        root_by_path(leaf(b"something else entirely, longer than any of them"), index, len(leaves), path)
        != root
    )
    for place in range(len(leaves)):
        if place != index and leaves[place] != leaves[index]:
            assert root_by_path(leaves[index], place, len(leaves), path) != root
    assert root_by_path(leaves[index], index, len(leaves), [*path, "00" * 32]) is None
    assert root_by_path(leaves[index], len(leaves), len(leaves), path) is None
    if path:
        assert root_by_path(leaves[index], index, len(leaves), path[:-1]) is None


def test_the_published_roots_of_rfc_6962():
    """Test vectors of the certificate-transparency reference implementation."""
    data = [bytes.fromhex(text) for text in (
        "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
    )]  # fmt: skip
    assert root_of([]).hex() == hashlib.sha256(b"").hexdigest()
    assert (
        root_of(map(leaf, data[:1])).hex()
        == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    )
    assert (
        root_of(map(leaf, data)).hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"
    )


def test_a_tree_with_the_wrong_number_of_peaks_is_refused():
    with pytest.raises(ValueError, match="2 peaks"):
        Frontier([b""], 3)
