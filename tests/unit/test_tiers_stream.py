from __future__ import annotations

import numpy as np
import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.tiers.stream import call_stream, check_capacities, densify, each_capacity


def test_ids_parents_and_sizes():
    stream = call_stream([90, 70, 90, 50, 40], [0, 2, 4, 5, 5], [9, 8, 4, 0], 4)
    assert stream.ids.tolist() == [0, 1, 0, 2, 3]
    assert stream.parents.tolist() == [-1, 0, 0, -1]
    assert (stream.calls, stream.unique, stream.largest_call) == (4, 4, 3)
    assert stream.has_tail.tolist() == [True, False, False, False]


def test_no_calls():
    stream = call_stream([], [0], [], 16)
    assert (stream.calls, stream.unique, stream.largest_call) == (0, 0, 0)


def test_many_keys_grow_the_table():
    keys = np.arange(5000, dtype=np.uint64) << np.uint64(20)
    ids, parents = densify(np.concatenate([keys, keys]), [0, 5000, 10000])
    assert np.array_equal(ids, np.tile(np.arange(5000), 2))
    assert np.array_equal(parents, np.arange(-1, 4999))


@pytest.mark.parametrize(
    ("keys", "offsets", "prompt", "chunk", "message"),
    [
        ([1.5], [0, 1], [4], 4, "chunk keys must be one row of integers, not float64"),
        ([[1]], [0, 1], [4], 4, "chunk keys must be one row of integers"),
        ([-1], [0, 1], [4], 4, "negative"),
        ([1], [0, 2], [4], 4, "offsets must rise from 0 to the number of chunk keys, 1"),
        ([1], [1, 1], [4], 4, "offsets must rise"),
        ([1, 2], [0, 2, 1], [8, 4], 4, "offsets must rise"),
        ([1], [0, 1], [4, 4], 4, "2 offsets for 2 calls"),
        ([1], [0, 1], [8], 4, "call 0 has 1 chunks but its 8 prompt tokens make 2"),
        ([1], [0, 1], [-4], 4, "negative prompt length"),
        ([1], [0, 1], [4], 0, "chunk_tokens is 0"),
        ([1], [0, 1], ["x"], 4, "prompt_tokens must be one row of integers"),
        ([1, 2, 3, 2], [0, 2, 4], [8, 8], 4, "chunk 1 of call 1 followed another chunk"),
        ([1, 1], [0, 2], [8], 4, "chunk 1 of call 0 followed another chunk"),
    ],
)
def test_bad_streams(keys, offsets, prompt, chunk, message):
    with pytest.raises(InputError, match=message):
        call_stream(keys, offsets, prompt, chunk)


def test_capacities():
    assert check_capacities(5).tolist() == [5]
    assert check_capacities([]).tolist() == []
    with pytest.raises(InputError, match="a capacity of 0 chunks"):
        check_capacities([3, 0])
    with pytest.raises(InputError, match="4 chunks cannot hold the largest call, which needs 5"):
        check_capacities([4, 9], smallest=5)
    with pytest.raises(InputError, match="capacities must be one row of integers"):
        check_capacities([1.5])


def test_each_capacity_keeps_order_and_passes_errors_on():
    def simulate(capacity, out):
        if capacity == 13:
            raise InputError("unlucky")
        out[:] = capacity

    assert each_capacity(simulate, np.array([2, 9, 4]), 2).tolist() == [[2, 2], [9, 9], [4, 4]]
    with pytest.raises(InputError, match="unlucky"):
        each_capacity(simulate, np.array([2, 13]), 2)
