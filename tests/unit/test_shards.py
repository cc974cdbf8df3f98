"""SHARDS: accuracy and its bound, constant memory, bad input."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from agentkv_trace.engine import sample
from agentkv_trace.engine.chunk_stack import CallStack, ChunkStack
from agentkv_trace.engine.keys import hashes
from agentkv_trace.engine.lru_line import STREAM
from agentkv_trace.engine.shards import REPLICAS, Shards
from agentkv_trace.errors import InputError

long = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="too slow without the JIT")


def u64(*chunks: int) -> np.ndarray:
    return np.array(chunks, np.uint64)


def zipf(size: int, chunks: int) -> np.ndarray:
    """Return a stream in which the k-th chunk is referenced in proportion to 1/k."""
    shares = np.cumsum(1 / np.arange(1, chunks + 1))
    drawn = np.random.default_rng(3).random(size) * shares[-1]
    return np.searchsorted(shares, drawn).astype(np.uint64)


def uniform(size: int, chunks: int) -> np.ndarray:
    return np.random.default_rng(4).integers(0, chunks, size, np.uint64)


def scan(size: int, chunks: int) -> np.ndarray:
    """Return Zipf with every other reference to a chunk that never comes back."""
    once = np.arange(size, dtype=np.uint64) + np.uint64(10**9)
    return np.where(np.arange(size) % 2, zipf(size, chunks), once)


def root(size: int, chunks: int) -> np.ndarray:
    """Return a uniform stream with one chunk at each 20th place, as the root of a tree is."""
    return np.where(np.arange(size) % 20, uniform(size, chunks), np.uint64(10**9))


def errors(stream: np.ndarray, seeds: int, known: bool, **options: Any) -> np.ndarray:
    """Return (mean absolute error, expected error, bound) of each seed, float64[seeds, 3]."""
    exact = ChunkStack()
    exact.feed_histogram(stream)
    hits = np.cumsum(exact.histogram) - exact.histogram[0]
    grid = np.arange(1, 1001) * exact.unique_chunks // 1000
    true = 1 - hits[grid] / stream.size
    found = []
    for seed in range(seeds):
        shards = Shards(seed=seed, **options)
        shards.feed(stream)
        curve = shards.result(exact.unique_chunks if known else None)
        off = np.abs(curve.miss_ratio(grid) - true).mean()
        found.append((off, curve.expected_error, curve.error_bound))
    return np.array(found)


@long
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("stream", [zipf, uniform, scan, root])
@pytest.mark.parametrize("options", [{"rate": 0.05}, {"samples": 1000}], ids=["rate", "samples"])
def test_the_error_is_as_expected(stream: Any, known: bool, options: dict[str, Any]) -> None:
    off, expected, bound = errors(stream(100_000, 20_000), 40, known, **options).T
    # 40 draws that stay below the bound with 95% do so at least 34 times, but for one in 1000.
    assert (off <= bound).sum() >= 34
    assert 1 / 2 < off.mean() / expected.mean() < 2


@long
@pytest.mark.parametrize("stream", [zipf, uniform, scan, root])
def test_known_totals_make_it_better_than_the_first_bucket(stream: Any) -> None:
    calibrated = errors(stream(100_000, 20_000), 20, True, rate=0.05)[:, 0]
    adjusted = errors(stream(100_000, 20_000), 20, True, rate=0.05, correction="adjusted")[:, 0]
    assert np.median(calibrated) < np.median(adjusted)


@long
def test_memory_of_a_fixed_size_does_not_grow() -> None:
    shards = Shards(samples=500)
    held = []
    for start in range(0, 4_000_000, 400_000):
        shards.feed(np.arange(start, start + 400_000, dtype=np.uint64))
        samples = (shards._sample, *shards._replicas)
        held.append(sum(s._seen.size + s.tally.hits.size + s.line._size for s in samples))
        assert len(shards._sample.line) <= 500
    assert max(held) < 1.2 * held[0]
    curve = shards.result()
    assert curve.unique_chunks == pytest.approx(4_000_000, rel=0.01)
    assert curve.miss_ratio(4_000_000) == 1


def test_the_seed_decides() -> None:
    def hits(seed: int) -> list[float]:
        shards = Shards(rate=0.3, seed=seed)
        shards.feed(zipf(2000, 100))
        return shards.result().chunk_hits.tolist()

    assert hits(1) == hits(1)
    assert hits(1) != hits(2)


def test_a_sample_that_is_filled_at_once_is_one_of_its_final_rate() -> None:
    stream = zipf(1500, 400)
    fixed_size = Shards(samples=60, seed=5)
    fixed_size.feed(stream)
    fixed_rate = Shards(rate=fixed_size.rate, seed=5)
    fixed_rate.feed(stream)
    one, other = fixed_size.result(400), fixed_rate.result(400)
    assert 0 < one.rate < 1
    assert one.samples == other.samples
    assert one.chunk_hits == pytest.approx(other.chunk_hits)
    assert one.error_bound == pytest.approx(other.error_bound)


def test_shrinking_keeps_the_order_and_scales_what_was_counted() -> None:
    drawn = sample.Sample(1, STREAM)
    stream = u64(*range(8), *range(8))
    assert drawn.feed(stream, None, None, 1.0, 8)
    assert drawn.tally.hits[0, 0].tolist()[8] == 8  # eight references at distance 8
    hashed = hashes(np.arange(8, dtype=np.uint64), 0)
    limit = int(np.sort(hashed)[3])
    drawn.shrink(0, limit)
    kept = np.flatnonzero(hashed <= limit)
    line = drawn.line
    assert line.ids.keys[line.recency()].tolist() == kept.tolist()
    # Four of eight chunks are left: distances of 8 are now in the upper half of 4.
    assert drawn.tally.hits[0, 0].tolist()[1:5] == [0, 0, 0, 8]
    assert not drawn.tally.hits[0, 0, 5:].any()


@pytest.mark.parametrize("key", [0, 1, 2**64 - 1])
def test_no_likely_key_is_always_sampled(key: int) -> None:
    taken = []
    for seed in range(12):
        shards = Shards(rate=0.25, seed=seed)
        shards.feed(u64(key))
        taken.append(shards.result().samples)
    assert 0 < sum(taken) < 9


def test_a_rate_of_one_is_exact_and_says_so() -> None:
    stream = zipf(1500, 300)
    shards, exact = Shards(rate=1), ChunkStack()
    shards.feed(stream)
    exact.feed_histogram(stream)
    curve = shards.result()
    assert curve.chunk_hits[1:].tolist() == np.cumsum(exact.histogram[1:]).tolist()
    assert curve.capacities.tolist() == list(range(exact.unique_chunks + 1))
    assert (curve.expected_error, curve.error_bound) == (0, 0)


def test_roots_take_or_leave_whole_calls() -> None:
    # Twenty trees, each of which is sent three times, one chunk longer each time.
    calls = [[100 * t + i for i in range(n)] for n in (1, 2, 3) for t in range(20)]
    keys = u64(*(chunk for call in calls for chunk in call))
    offsets = np.cumsum([0, *map(len, calls)])
    shards = Shards(rate=0.5, order="head-first", by="root")
    shards.feed(keys, offsets)
    curve = shards.result()
    assert curve.samples % 3 == 0
    assert curve.references == len(keys)
    assert curve.prefix_hits is not None
    exact = CallStack("head-first")
    exact.feed_histogram(keys, offsets)
    total = exact.result().prefix_histogram.sum()
    assert curve.prefix_hits[-1] == pytest.approx(total, rel=0.01)
    distances, counts = curve.histogram(prefix=True)
    assert counts.sum() == pytest.approx(total, rel=0.01)
    assert (np.diff(distances) > 0).all()


def test_outputs_take_part_without_being_references() -> None:
    shards = Shards(rate=1, order="tail-first")
    shards.feed(u64(1, 2, 1, 2), [0, 2, 4], [1, 2])
    curve = shards.result()
    assert (curve.references, curve.unique_chunks, curve.samples) == (3, 2, 2)
    assert curve.chunk_hits.tolist() == [0, 1, 2]


@pytest.mark.parametrize("options", [{"rate": 1e-12}, {"rate": 0.5}, {"samples": 3}])
def test_an_empty_stream(options: dict[str, Any]) -> None:
    shards = Shards(**options)
    shards.feed(u64())
    curve = shards.result()
    assert (curve.references, curve.samples) == (0, 0)
    assert (curve.expected_error, curve.error_bound) == (0, 0)
    assert curve.miss_ratio([0, 5]).tolist() == [1, 1]


def test_a_sample_without_chunks_says_nothing() -> None:
    shards = Shards(rate=1e-12)
    shards.feed(np.arange(1000, dtype=np.uint64))
    curve = shards.result(1000)
    assert (curve.samples, curve.expected_error, curve.error_bound) == (0, 1, 1)


@pytest.mark.parametrize("rate", [0, -0.1, 1.01, float("nan"), float("inf")])
def test_a_rate_out_of_range(rate: float) -> None:
    with pytest.raises(InputError, match="rate"):
        Shards(rate=rate)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, "one of the two"),
        ({"rate": 0.1, "samples": 5}, "one of the two"),
        ({"samples": 0}, "at least one chunk"),
        ({"rate": 0.1, "order": "sideways"}, "sideways"),
        ({"rate": 0.1, "by": "session"}, "session"),
        ({"rate": 0.1, "correction": "magic"}, "magic"),
        ({"rate": 0.1, "by": "root"}, "by root"),
        ({"samples": 9, "by": "root", "order": "tail-first"}, "by root"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        Shards(**options)


def test_fewer_distinct_chunks_than_are_in_the_sample() -> None:
    shards = Shards(rate=1)
    shards.feed(u64(1, 2, 3))
    with pytest.raises(InputError, match="at least 3 distinct chunks"):
        shards.result(2)


def test_streams_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="uint64"):
        Shards(rate=0.1).feed([1, 2])
    with pytest.raises(InputError, match="flat stream"):
        Shards(rate=0.1).feed(u64(1, 2), [0, 2])
    with pytest.raises(InputError, match="flat stream"):
        Shards(rate=0.1, order="tail-first").feed(u64(1, 2))
    with pytest.raises(InputError, match="offsets"):
        Shards(rate=0.1, order="tail-first").feed(u64(1, 2), [0, 3])


def test_replicas_are_chosen_by_bits_of_the_hash() -> None:
    assert REPLICAS & (REPLICAS - 1) == 0


def test_each_kernel_has_one_specialisation() -> None:
    if numba.config.DISABLE_JIT:
        pytest.skip("the JIT is off")
    stream = zipf(3000, 500)
    stream.flags.writeable = False
    for options in ({"rate": 0.3}, {"rate": 1}, {"samples": 40}):
        Shards(**options).feed(stream)
        calls = Shards(**options, order="tail-first")
        calls.feed(stream, [0, 1000, 3000], [10, 20])
    Shards(rate=0.5, order="head-first", by="root").feed(stream, [0, 1000, 3000])
    for kernel in (sample._weigh, sample._add):
        assert len(kernel.signatures) == 1
