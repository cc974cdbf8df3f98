"""The chunk engine: small cases, long streams, bad input."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

import naive
from agentkv_trace.engine import chunk_stack, keys, lru_line
from agentkv_trace.engine.chunk_stack import CallStack, ChunkStack, leading_run
from agentkv_trace.engine.keys import DenseIds, DistinctCount, salt_of, select
from agentkv_trace.errors import InputError

long = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="too slow without the JIT")


def u64(*chunks: int) -> np.ndarray:
    return np.array(chunks, np.uint64)


def scrambled(size: int, chunks: int, seed: int = 1) -> np.ndarray:
    """Return a stream in which some chunks are hot."""
    random = np.random.default_rng(seed)
    return (chunks * random.random(size) ** 3).astype(np.uint64) * np.uint64(2**61 - 1)


def test_a_distance_counts_the_chunk_itself() -> None:
    assert ChunkStack().feed(u64(7, 7, 8, 9, 7, 9)).tolist() == [0, 1, 0, 0, 3, 2]


def test_both_ways_of_feeding_go_on_from_each_other() -> None:
    stack = ChunkStack()
    stack.feed(u64(1, 2))
    stack.feed_histogram(u64(1, 3, 3))
    assert stack.feed(u64(2)).tolist() == [3]
    assert stack.histogram.tolist() == [1, 1, 1, 0]


def test_nothing_is_fed() -> None:
    stack, calls = ChunkStack(), CallStack()
    assert stack.feed(u64()).size == 0
    assert stack.histogram.tolist() == [0]
    calls.feed_histogram(u64(), [0])
    calls.feed_histogram(u64(), [0, 0, 0])
    result = calls.result()
    assert (result.calls, result.references, result.unique_chunks) == (2, 0, 0)


def test_lookups_come_before_touches_and_the_head_is_most_recent() -> None:
    keys, offsets = u64(1, 2, 3, 1, 2, 3, 4), [0, 3, 7]
    # Tail first leaves 1 on top, head first 3.
    assert CallStack("tail-first").feed(keys, offsets).tolist() == [0, 0, 0, 1, 2, 3, 0]
    head_first = CallStack("head-first").feed(keys, offsets)
    assert head_first.tolist() == [0, 0, 0, 3, 2, 1, 0]
    # Its prefix needs the largest of the distances so far: nothing hits below 3 chunks.
    assert leading_run(head_first, offsets).tolist() == [0, 0, 0, 3, 3, 3, 0]


def test_a_chunk_that_a_call_holds_twice_is_looked_up_twice_with_one_result() -> None:
    stack = CallStack()
    assert stack.feed(u64(5, 6, 5, 5, 6, 5), [0, 3, 6]).tolist() == [0, 0, 0, 1, 2, 1]
    assert stack.unique_chunks == 2


def test_outputs_are_touched_and_not_looked_up() -> None:
    stack = CallStack()
    assert stack.feed(u64(1, 2, 1, 2), [0, 2, 4], [1, 2]).tolist() == [0, -1, 1, 2]
    again = CallStack()
    again.feed_histogram(u64(1, 2, 1, 2), [0, 2, 4], [1, 2])
    assert again.result().cold_references == 1
    assert again.result().unique_chunks == 2


def test_three_blocks_of_positions() -> None:
    stream = scrambled(1700, 400)
    assert ChunkStack().feed(stream).tolist() == naive.distances_by_position(stream.tolist())


@long
def test_a_long_stream_moves_up_many_times() -> None:
    stream = scrambled(400_000, 9_000)
    expected = naive.distances_by_position(stream.tolist())
    assert ChunkStack().feed(stream).tolist() == expected
    stack = ChunkStack()
    for piece in np.array_split(stream, 37):
        stack.feed_histogram(piece)
    assert stack.histogram.tolist() == np.bincount(expected, minlength=9_001).tolist()


@long
@pytest.mark.parametrize("order", chunk_stack.ORDERS)
def test_long_calls_of_one_chunk_are_a_flat_stream(order: chunk_stack.Order) -> None:
    stream = scrambled(200_000, 5_000)
    offsets = np.arange(stream.size + 1)
    assert (CallStack(order).feed(stream, offsets) == ChunkStack().feed(stream)).all()


@long
def test_distances_of_millions_of_positions() -> None:
    size = 600_000
    forth = np.arange(size, dtype=np.uint64)
    stack = ChunkStack()
    assert not stack.feed(forth).any()
    for _ in range(4):
        assert (stack.feed(forth) == size).all()
    assert (stack.feed(forth[::-1]) == np.arange(1, size + 1)).all()


@long
def test_memory_follows_the_chunks_and_not_the_stream() -> None:
    stack = ChunkStack()
    stream = scrambled(100_000, 500)
    sizes = set()
    for _ in range(20):
        stack.feed_histogram(stream)
        sizes.add(stack._line._size)
    assert len(sizes) == 1
    assert sizes.pop() <= 100_500 + lru_line._GROUP


def test_ids_stop_at_the_limit() -> None:
    ids = DenseIds()
    assert ids.intern(u64(5, 6, 5, 7, 8), 3).tolist() == [0, 1, 0, 2]
    assert ids.intern(u64(7, 5, 9), 3).tolist() == [2, 0]
    assert ids.intern(u64(9)).tolist() == [3]


def test_ids_of_keys_in_one_slot() -> None:
    mask = 1023
    clash = [key for key in range(400_000) if naive.mixed(key) & mask == 17][:20]
    ids = DenseIds()
    assert ids.intern(u64(*clash)).tolist() == list(range(20))
    assert ids.intern(u64(*reversed(clash))).tolist() == list(range(19, -1, -1))


def test_the_hash_is_the_one_that_is_documented() -> None:
    keys = [0, 1, 2**63, 2**64 - 1, *(naive.mixed(i) for i in range(60))]
    chosen = select(u64(*keys), salt_of(4), 2**63 - 1).tolist()
    assert chosen == [i for i, key in enumerate(keys) if naive.is_sampled(key, 0.5, 4)]


@pytest.mark.parametrize("chunks", [0, 1, 300, 3_000])
def test_distinct_keys_are_counted_within_their_error(chunks: int) -> None:
    count = DistinctCount()
    keys = np.arange(chunks, dtype=np.uint64)
    for _ in range(2):
        count.sift(keys, salt_of(1), 0)
    assert count.estimate == pytest.approx(chunks, rel=4 * DistinctCount.RELATIVE_ERROR)


@long
@pytest.mark.parametrize("chunks", [100_000, 3_000_000])
def test_many_distinct_keys_are_counted_within_their_error(chunks: int) -> None:
    off = []
    for seed in range(8):
        count = DistinctCount()
        count.sift(np.arange(chunks, dtype=np.uint64), salt_of(seed), 0)
        off.append(count.estimate / chunks - 1)
    assert np.sqrt(np.mean(np.square(off))) < 1.5 * DistinctCount.RELATIVE_ERROR


BAD_KEYS = [[1, 2], np.arange(3), np.arange(3.0), np.zeros((2, 2), np.uint64), ["a"]]


@pytest.mark.parametrize("keys", BAD_KEYS)
def test_keys_of_the_wrong_type(keys: Any) -> None:
    stack = ChunkStack()
    for feed in (stack.feed, stack.feed_histogram, lambda k: CallStack().feed(k, [0, len(k)])):
        with pytest.raises(InputError, match="one-dimensional array of uint64"):
            feed(keys)


@pytest.mark.parametrize("offsets", [[], [0], [0, 2], [1, 3], [0, 2, 1, 3], [[0, 3]], [0.0, 3.0]])
def test_offsets_that_do_not_fit(offsets: Any) -> None:
    with pytest.raises(InputError, match="offsets"):
        CallStack().feed(u64(1, 2, 3), offsets)


@pytest.mark.parametrize("prompts", [[4], [-1], [1, 1], 3, [1.5]])
def test_prompt_chunks_that_do_not_fit(prompts: Any) -> None:
    with pytest.raises(InputError, match="prompt_chunks"):
        CallStack().feed(u64(1, 2, 3), [0, 3], prompts)


def test_an_order_that_is_none() -> None:
    with pytest.raises(InputError, match="sideways"):
        CallStack("sideways")  # type: ignore[arg-type]


def test_keys_may_be_read_only_or_strided() -> None:
    stream = scrambled(300, 40)
    expected = ChunkStack().feed(stream).tolist()
    stream.flags.writeable = False
    assert ChunkStack().feed(stream).tolist() == expected
    assert CallStack().feed(np.repeat(stream, 2)[::2], [0, 300]).size == 300
    assert ChunkStack().feed(np.repeat(stream, 2)[::2]).tolist() == expected


def test_each_kernel_has_one_specialisation() -> None:
    if numba.config.DISABLE_JIT:
        pytest.skip("the JIT is off")
    stream = scrambled(3000, 700)
    frozen = stream.copy()
    frozen.flags.writeable = False
    for each in (stream, frozen, stream[::-1], stream[:0]):
        ChunkStack().feed(each)
        ChunkStack().feed_histogram(each)
        CallStack().feed_histogram(each, np.array([0, each.size], np.int32), [each.size])
        DistinctCount().sift(stream, 3, 2**62)
        select(stream, 3, 2**62)
    kernels = (
        chunk_stack._count,
        chunk_stack._leading,
        lru_line._touch,
        lru_line._move,
        keys._intern,
        keys._fill,
        keys._select,
        keys._sift,
    )
    for kernel in kernels:
        assert len(kernel.signatures) <= 1, kernel
