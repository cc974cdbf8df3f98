from __future__ import annotations

from itertools import pairwise

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from agentkv_trace.trace.chunks import SEED, extend, filler, keyed


def test_each_key_is_seeded_with_the_one_before() -> None:
    keys, tail = extend(SEED, b"", b"aaaabbbbcc", 4)
    first = xxhash.xxh3_64_intdigest(b"aaaa", seed=0)
    assert keys == [first, xxhash.xxh3_64_intdigest(b"bbbb", seed=first)]
    assert tail == b"cc"


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=6), st.integers(1, 17))
def test_keys_do_not_depend_on_how_the_text_is_cut_into_pieces(
    data: bytes, cuts: list[int], chunk_bytes: int
) -> None:
    whole, rest = extend(SEED, b"", data, chunk_bytes)
    key, tail, keys = SEED, b"", []
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        new, tail = extend(key, tail, data[start:end], chunk_bytes)
        keys += new
        key = keys[-1] if keys else SEED
    assert (keys, tail) == (whole, rest)
    assert len(whole) == len(data) // chunk_bytes


def test_equal_text_behind_another_prefix_has_another_key() -> None:
    one, _ = extend(SEED, b"", b"aaaabbbb", 4)
    two, _ = extend(SEED, b"", b"xxxxbbbb", 4)
    assert one[1] != two[1]


@pytest.mark.parametrize("size", [0, 1, 16, 17, 1000])
def test_filler_has_the_size_asked_for_and_follows_its_identity(size: int) -> None:
    assert len(filler(b"image", size)) == size
    assert filler(b"image", size) == filler(b"image", size)
    assert size == 0 or filler(b"image", size) != filler(b"other", size)


def test_a_salt_changes_every_key_and_keeps_equalities() -> None:
    keys = [1, 2, 1]
    salted = keyed(keys, b"secret")
    assert salted[0] == salted[2] != salted[1]
    assert set(salted).isdisjoint(keys)
    assert keyed(keys, b"other") != salted
    assert all(0 <= key < 2**64 for key in salted)
