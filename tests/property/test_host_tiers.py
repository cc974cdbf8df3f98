"""The two-tier simulators against their plain twins on random trees of calls."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from agentkv_trace.engine.path_stack import path_runs
from agentkv_trace.engine.reuse import writes_at
from agentkv_trace.tiers import hicache, lmcache, sglang, simple_offload, vllm_offload
from agentkv_trace.tiers.ideal import ideal_use
from agentkv_trace.tiers.stream import call_stream

CHUNK = 4


@st.composite
def call_lists(draw):
    """Calls as (path, prompt tokens): each keeps a prefix of an earlier path and adds chunks."""
    calls, unique = [], 0
    for _ in range(draw(st.integers(1, 25))):
        base = draw(st.sampled_from(calls))[0] if calls else []
        path = base[: draw(st.integers(0, len(base)))] if draw(st.booleans()) else list(base)
        new = draw(st.integers(0, 6))
        path += range(unique, unique + new)
        unique += new
        tail = draw(st.sampled_from([0, 0, 1, CHUNK - 1]))
        calls.append((path, len(path) * CHUNK + tail))
    return calls


def stream_of(calls):
    return call_stream(
        np.array([chunk for path, _ in calls for chunk in path], dtype=np.uint64),
        np.cumsum([0] + [len(path) for path, _ in calls]),
        np.array([tokens for _, tokens in calls], dtype=np.int64),
        CHUNK,
    )


def largest(calls):
    return max(1, *(-(-tokens // CHUNK) for _, tokens in calls))


def sizes_of(calls):
    return list(range(1, len({chunk for path, _ in calls for chunk in path}) + 4))


extra = st.integers(0, 8)


@given(call_lists(), extra)
def test_simple_offloading(calls, more):
    pool, sizes = largest(calls) + more, sizes_of(calls)
    for replay, twin in (
        (simple_offload.eager_use, naive.simple_eager),
        (simple_offload.lazy_use, naive.simple_lazy),
    ):
        found = replay(stream_of(calls), pool, sizes)
        expected = [twin(calls, CHUNK, pool, size) for size in sizes]
        np.testing.assert_array_equal(found.transpose(0, 2, 1), expected)


@pytest.mark.parametrize("policy", hicache.POLICIES)
@given(call_lists(), extra)
def test_sglang_with_host_memory(policy, calls, more):
    pool, sizes = largest(calls) + more, sizes_of(calls)
    found = hicache.hicache_use(stream_of(calls), pool, sizes, policy)
    threshold = hicache.POLICIES[policy]
    expected = [naive.hicache(calls, CHUNK, pool, size, threshold) for size in sizes]
    np.testing.assert_array_equal(found.transpose(0, 2, 1), expected)


@given(call_lists(), extra)
def test_sglang_without_a_copy_is_the_tree(calls, more):
    # Selective copies nothing that is met once, and no path is sent twice here.
    once = [
        (path, tokens)
        for i, (path, tokens) in enumerate(calls)
        if not any(naive.shared_prefix(path, other) for other, _ in calls[:i])
    ]
    pool = largest(once) + more
    found = hicache.hicache_use(stream_of(once), pool, [1], "write_through_selective")[0]
    np.testing.assert_array_equal(found[0], sglang.radix_hits(stream_of(once), [pool])[0])
    assert not found[1:].any()


@st.composite
def paths_with_outputs(draw):
    """Calls as (whole path, chunks of its prompt)."""
    return [(path, draw(st.integers(0, len(path)))) for path, _ in draw(call_lists())]


@given(paths_with_outputs())
def test_ideal_tier(calls):
    paths = [path for path, _ in calls]
    base, shared = naive.link(paths)
    prompts = [prompt for _, prompt in calls]
    runs = path_runs(
        *(np.array(x, np.int32) for x in (base, shared, prompts)),
        np.array([len(path) for path in paths], np.int32),
    )
    sizes = sizes_of(calls)
    found = ideal_use(runs, sizes)
    for row, size in enumerate(sizes):
        expected = np.array(naive.ideal_tier(calls, size)).reshape(-1, 3).T
        for got, want in zip((found.hits, found.written, found.evicted), expected, strict=True):
            np.testing.assert_array_equal(got[row], want)
        totals = writes_at(runs, size)
        assert found.written[row].sum() == totals.written
        assert found.evicted[row].sum() == totals.evicted


@given(call_lists(), extra)
def test_what_is_written_is_resident_reused_or_evicted(calls, more):
    """Counts add up in every backend: no more is evicted than was written."""
    stream, sizes = stream_of(calls), sizes_of(calls)
    pool = largest(calls) + more
    offload = vllm_offload.offload_hits(stream, pool, sizes)
    in_process = lmcache.in_process_use(stream, sizes)
    server = lmcache.server_use(stream, sizes)
    for written, evicted in (
        (offload.written, offload.evicted),
        (in_process.written, in_process.evicted),
        (server.written, server.evicted),
    ):
        left = np.cumsum(written, axis=1) - np.cumsum(evicted, axis=1)
        assert (left >= 0).all()


@given(call_lists())
def test_lmcache_writes_and_evictions(calls):
    stream, sizes = stream_of(calls), sizes_of(calls)
    for found, twin in (
        (lmcache.in_process_use(stream, sizes), naive.lmcache_in_process_use),
        (lmcache.server_use(stream, sizes), naive.lmcache_server_use),
    ):
        for row, size in enumerate(sizes):
            expected = np.array(twin(calls, size)).reshape(-1, 3).T
            for got, want in zip((found.hits, found.written, found.evicted), expected, strict=True):
                np.testing.assert_array_equal(got[row], want)
