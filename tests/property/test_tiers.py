"""The tier simulators against their plain twins on random trees of calls."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import naive
from agentkv_trace.engine.path_stack import path_runs
from agentkv_trace.tiers import lmcache, lru, sglang, vllm, vllm_offload
from agentkv_trace.tiers.stream import call_stream, densify

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
    # Keys are no small numbers in a row, so that ids are really given by first appearance.
    return call_stream(
        np.array([chunk * 2**40 + 7 for path, _ in calls for chunk in path], dtype=np.uint64),
        np.cumsum([0] + [len(path) for path, _ in calls]),
        np.array([tokens for _, tokens in calls], dtype=np.int64),
        CHUNK,
    )


def capacities(calls, extra=0):
    """Return all capacities from the largest call to more than everything."""
    largest = max(1, *(-(-tokens // CHUNK) for _, tokens in calls)) + extra
    everything = len({chunk for path, _ in calls for chunk in path})
    return list(range(largest, largest + everything + 5))


def assert_equal_at_all(hits, twin, calls, sizes, *more):
    expected = [twin(calls, CHUNK, size, *more) for size in sizes]
    np.testing.assert_array_equal(hits, expected)


@given(call_lists())
def test_plain_stack_at_every_capacity(calls):
    sizes = list(range(1, capacities(calls)[-1]))
    assert_equal_at_all(lru.stack_hits(stream_of(calls), sizes), naive.lru_hits, calls, sizes)


@given(call_lists())
def test_runs_tile_what_is_warm(calls):
    runs = lru.stack_runs(stream_of(calls))
    assert len(runs.call) <= 2 * len(calls)
    assert (runs.length > 0).all()
    assert (runs.owner < runs.call).all()
    for call in range(len(calls)):
        rows = np.flatnonzero(runs.call == call)
        ends = (runs.depth + runs.length)[rows]
        np.testing.assert_array_equal(runs.depth[rows], [0, *ends[:-1]][: len(rows)])
        seen = {chunk for path, _ in calls[:call] for chunk in path}
        assert ends[-1:].sum() == sum(chunk in seen for chunk in calls[call][0])


@given(call_lists())
def test_vllm_in_one_pass_is_the_running_maximum(calls):
    sizes = list(range(1, capacities(calls)[-1]))
    hits = vllm.one_pass_hits(stream_of(calls), sizes)
    assert_equal_at_all(hits, naive.vllm_stack_hits, calls, sizes)


@given(call_lists(), st.lists(st.integers(0, 3), min_size=25, max_size=25))
def test_vllm_in_one_pass_from_the_path_engine(calls, outputs):
    # The last chunks of each path are outputs: touched, not looked up. They may be known already.
    paths = [path for path, _ in calls]
    chunks = [len(path) for path in paths]
    prompts = [max(0, n - output) for n, output in zip(chunks, outputs, strict=False)]
    runs = path_runs(*naive.link(paths), prompts, chunks)
    tail = [tokens % CHUNK != 0 for _, tokens in calls]
    needed = vllm.needed_capacity(runs, chunks, tail, runs.refreshes)
    sizes = list(range(1, capacities(calls)[-1]))
    hits = lru.hits_at(runs, needed, len(calls), sizes)
    assert_equal_at_all(hits, naive.vllm_stack_hits, calls, sizes, prompts)


@given(call_lists())
def test_vllm_in_one_pass_is_the_pool_below_duplicates(calls):
    stream, sizes = stream_of(calls), np.array(capacities(calls))
    limit = vllm.duplicates_from(stream)
    exact = sizes if limit is None else sizes[sizes < limit]
    one_pass = vllm.one_pass_hits(stream, exact)
    np.testing.assert_array_equal(one_pass, vllm.pool_hits(stream, exact))


@given(call_lists())
def test_vllm_pool(calls):
    sizes = capacities(calls)
    hits = vllm.pool_hits(stream_of(calls), sizes)
    assert_equal_at_all(hits, naive.vllm_pool_hits, calls, sizes)


@given(call_lists(), st.lists(st.integers(0, 3 * CHUNK), min_size=25, max_size=25))
def test_vllm_pool_with_outputs(calls, outputs):
    sizes, outputs = capacities(calls, extra=3), outputs[: len(calls)]
    hits = vllm.pool_hits(stream_of(calls), sizes, outputs)
    assert_equal_at_all(hits, naive.vllm_pool_hits, calls, sizes, outputs)


@given(call_lists())
def test_sglang_radix(calls):
    sizes = capacities(calls)
    hits = sglang.radix_hits(stream_of(calls), sizes)
    assert_equal_at_all(hits, naive.sglang_radix_hits, calls, sizes)


@given(call_lists())
def test_lmcache_in_process(calls):
    sizes = capacities(calls)
    hits = lmcache.in_process_hits(stream_of(calls), sizes)
    assert_equal_at_all(hits, naive.lmcache_in_process_hits, calls, sizes)


@given(call_lists(), st.sampled_from([(0.8, 0.2), (0.5, 0.3), (1.0, 1.0)]))
def test_lmcache_server(calls, limits):
    # Below the largest call too: there the whole store is dropped.
    sizes = list(range(1, capacities(calls)[-1]))
    hits = lmcache.server_hits(stream_of(calls), sizes, *limits)
    assert_equal_at_all(hits, naive.lmcache_server_hits, calls, sizes, *limits)


@given(call_lists(), st.integers(0, 12), st.sampled_from([1, 3, 8, 17, 100]), st.booleans())
def test_vllm_offload(calls, more, step_tokens, with_outputs):
    gpu = capacities(calls, extra=3)[0] + more
    hosts = list(range(1, capacities(calls)[-1], 2))
    outputs = [1 + 3 * (i % 4) for i in range(len(calls))] if with_outputs else None
    hits = vllm_offload.offload_hits(stream_of(calls), gpu, hosts, outputs, step_tokens)
    for row, host in enumerate(hosts):
        expected = naive.vllm_offload_hits(calls, CHUNK, gpu, host, outputs, step_tokens)
        np.testing.assert_array_equal([hits.gpu, hits.host[row], hits.written[row]], expected)


@given(st.lists(st.sampled_from([0, 1, 2**63, 2**64 - 1, 2**32, 5 * 2**47]), max_size=40))
def test_densify_numbers_by_first_appearance(keys):
    # Every key is a path of its own here, so none has two parents.
    ids, parents = densify(np.array(keys, dtype=np.uint64), list(range(len(keys) + 1)))
    order = list(dict.fromkeys(keys))
    assert ids.tolist() == [order.index(key) for key in keys]
    assert parents.tolist() == [-1] * len(order)
