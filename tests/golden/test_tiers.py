"""Every call at every capacity against the engines' own code; see the golden data's README.

Which model is exact for which list follows from the list, not from its name: the one-pass model of
vLLM's pool holds below the capacity at which a prompt of full chunks is resident whole and its last
block is therefore held twice. All other models hold always. The plain stack's error is shown beside
(`pytest -s`).
"""

from __future__ import annotations

import numpy as np
import pytest

from agentkv_trace.engine.path_stack import path_runs
from agentkv_trace.tiers import lmcache, lru, sglang, vllm
from golden.lists import points_off, read, report, results, sizes_and_hits


def show(title, calls, sizes, real):
    """Print the plain stack's error at each capacity and return it, in points."""
    off = points_off(calls, lru.stack_hits(calls.stream, sizes), real)
    figures = "  ".join(f"{size}: {error:+.2f}" for size, error in zip(sizes, off, strict=True))
    report(title, [f"  plain stack, points off: {figures}"])
    return off


@pytest.mark.parametrize("file", results("lmcache_mp_exact"))
def test_lmcache_server_is_the_plain_stack(file):
    calls, result = read(file)
    sizes, real = sizes_and_hits(result)
    assert not show(result["engine"] + ", " + result["list"], calls, sizes, real).any()
    np.testing.assert_array_equal(lru.stack_hits(calls.stream, sizes), real)


@pytest.mark.parametrize("file", results("lmcache_mp_watermark"))
def test_lmcache_server_with_its_watermark(file):
    calls, result = read(file)
    sizes, real = sizes_and_hits(result)
    show(result["engine"] + ", " + result["list"], calls, sizes, real)
    np.testing.assert_array_equal(lmcache.server_hits(calls.stream, sizes), real)


@pytest.mark.parametrize("file", results("lmcache_inproc"))
def test_lmcache_in_process(file):
    calls, result = read(file)
    sizes, real = sizes_and_hits(result)
    show(result["engine"] + ", " + result["list"], calls, sizes, real)
    np.testing.assert_array_equal(lmcache.in_process_hits(calls.stream, sizes), real)


@pytest.mark.parametrize("file", results("sglang"))
def test_sglang_radix_cache(file):
    calls, result = read(file)
    sizes, real = sizes_and_hits(result)
    show(result["engine"] + ", " + result["list"], calls, sizes, real)
    np.testing.assert_array_equal(sglang.radix_hits(calls.stream, sizes), real)


@pytest.mark.parametrize("file", results("vllm"))
def test_vllm_pool_replayed(file):
    calls, result = read(file)
    sizes, real = sizes_and_hits(result)
    np.testing.assert_array_equal(vllm.pool_hits(calls.stream, sizes), real)


@pytest.mark.parametrize("file", results("vllm"))
def test_vllm_pool_in_one_pass_where_no_block_is_held_twice(file):
    calls, result = read(file)
    sizes, real = sizes_and_hits(result)
    one_pass = vllm.one_pass_hits(calls.stream, sizes)
    plain = lru.stack_hits(calls.stream, sizes)
    limit = vllm.duplicates_from(calls.stream)
    exact = sizes < (np.inf if limit is None else limit)
    show(result["engine"] + ", " + result["list"], calls, sizes, real)
    beyond = points_off(calls, one_pass, real)[~exact]
    report("  in one pass", [f"  exact below {limit}; beyond: {np.round(beyond, 2).tolist()}"])
    np.testing.assert_array_equal(one_pass[exact], real[exact])
    # Below the limit the cap never bites, and one block more moves a call's hit by one at most.
    assert np.abs(plain - real)[exact].max(initial=0) <= 1


@pytest.mark.parametrize("file", results("vllm"))
def test_path_engine_gives_the_same_one_pass_models(file):
    calls, result = read(file)
    sizes, _ = sizes_and_hits(result)
    stream = calls.stream
    # A call's base is the owner of its deepest warm chunk.
    own = lru.stack_runs(stream)
    base = np.full(stream.calls, -1)
    base_chunks = np.zeros(stream.calls, dtype=np.int64)
    base[own.call] = own.owner
    base_chunks[own.call] = own.depth + own.length
    chunks = np.diff(stream.offsets)
    runs = path_runs(base, base_chunks, chunks, chunks)
    plain = lru.hits_at(runs, runs.first_distance, stream.calls, sizes)
    np.testing.assert_array_equal(plain, lru.stack_hits(stream, sizes))
    needed = vllm.needed_capacity(runs, chunks, stream.has_tail, runs.refreshes)
    most = np.maximum(stream.prompt_tokens - 1, 0) // stream.chunk_tokens
    hits = np.minimum(lru.hits_at(runs, needed, stream.calls, sizes), most)
    np.testing.assert_array_equal(hits, vllm.one_pass_hits(stream, sizes))
