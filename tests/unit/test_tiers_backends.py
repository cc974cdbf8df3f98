"""What sets each backend apart, on streams small enough to follow by hand (4 tokens a chunk)."""

from __future__ import annotations

import numpy as np
import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.tiers import lmcache, lru, sglang, stream, vllm, vllm_offload
from agentkv_trace.tiers.stream import call_stream


def calls(*paths, tail=0):
    """Return a stream whose calls all have the same partial tail."""
    return call_stream(
        [chunk for path in paths for chunk in path],
        np.cumsum([0] + [len(path) for path in paths]),
        [4 * len(path) + tail for path in paths],
        4,
    )


A, B, C = [1, 2, 3], [11, 12, 13], [21]


def test_stack_needs_everything_touched_in_between():
    sent = calls(A, C, A)
    assert lru.stack_hits(sent, [1, 2, 3, 4])[:, 2].tolist() == [0, 1, 2, 3]


def test_vllm_computes_the_last_token_again():
    assert vllm.pool_hits(calls(A, A), [9])[0].tolist() == [0, 2]
    assert vllm.pool_hits(calls(A, A, tail=1), [9])[0].tolist() == [0, 3]


def test_vllm_partial_tail_takes_a_block():
    plain, tailed = calls(A, C, [*A, 4]), calls(A, C, [*A, 4], tail=1)
    assert vllm.pool_hits(plain, [4])[0].tolist() == [0, 0, 3]
    assert vllm.one_pass_hits(plain, [4])[0].tolist() == [0, 0, 3]
    assert vllm.pool_hits(tailed, [5])[0].tolist() == [0, 0, 3]
    assert vllm.one_pass_hits(tailed, [4])[0].tolist() == [0, 0, 2]


def test_vllm_resent_prompt_holds_its_last_block_twice():
    # A and C are four chunks, yet a pool of four forgets C: the end of A is there twice.
    sent = calls(A, C, A, A, [*C, 22])
    assert vllm.duplicates_from(sent) == 3
    assert vllm.one_pass_hits(sent, [4])[0].tolist() == [0, 0, 2, 2, 1]
    assert vllm.pool_hits(sent, [4, 5])[:, 4].tolist() == [0, 1]


def test_vllm_without_resent_prompts_holds_no_block_twice():
    assert vllm.duplicates_from(calls(A, C, [*A, 4])) is None


def test_vllm_outputs_take_blocks():
    sent = calls(A, C, [*A, 4])
    assert vllm.pool_hits(sent, [9], [1, 21, 1])[0].tolist() == [0, 0, 3]
    assert vllm.pool_hits(sent, [7], [1, 21, 1])[0].tolist() == [0, 0, 1]


def test_sglang_evicts_whole_nodes():
    # One chunk too much: the stack loses the tail of A, the radix cache all of A.
    sent = calls(A, [11], A)
    assert lru.stack_hits(sent, [3])[0].tolist() == [0, 0, 2]
    assert sglang.radix_hits(sent, [3])[0].tolist() == [0, 0, 0]


def test_sglang_split_keeps_the_rest_as_recent_as_the_call():
    # [1] meets the node A and refreshes all of it, so B goes first.
    sent = calls(A, B, [1, 9], [*A, 4])
    assert sglang.radix_hits(sent, [7])[0].tolist() == [0, 0, 1, 3]
    assert lru.stack_hits(sent, [5])[0].tolist() == [0, 0, 1, 1]


def test_lmcache_in_process_loses_heads_first():
    sent = calls(A, C, A)
    assert lmcache.in_process_hits(sent, [3])[0].tolist() == [0, 0, 0]
    assert lru.stack_hits(sent, [3])[0].tolist() == [0, 0, 2]


def test_lmcache_server_watermark():
    sent = calls(A, [11, 12], A)
    # 5 of 6 chunks are above 0.8; a fifth of 5 is the one least recent chunk, A's tail.
    assert lmcache.server_hits(sent, [6])[0].tolist() == [0, 0, 2]
    assert lmcache.server_hits(sent, [6], watermark=1.0)[0].tolist() == [0, 0, 3]
    # What does not fit as a whole is not stored at all.
    assert lmcache.server_hits(sent, [2], watermark=1.0)[0].tolist() == [0, 0, 0]


def test_offload_restores_what_the_gpu_lost():
    sent = calls(A, B, [*A, 4])
    hits = vllm_offload.offload_hits(sent, 4, [3, 6, 7])
    assert hits.gpu.tolist() == [0, 0, 1]
    assert hits.host[:, 2].tolist() == [0, 2, 2]
    assert hits.written.tolist() == [[3, 3, 0], [3, 3, 1], [3, 3, 1]]


@pytest.mark.parametrize(
    ("simulate", "smallest"),
    [
        (vllm.pool_hits, 4),
        (sglang.radix_hits, 4),
        (lmcache.in_process_hits, 3),
        (lambda sent, sizes: vllm_offload.offload_hits(sent, sizes[0], [1]), 4),
        (lmcache.server_hits, 1),
        (lru.stack_hits, 1),
        (vllm.one_pass_hits, 1),
    ],
)
def test_capacities_no_engine_would_run(simulate, smallest):
    sent = calls(A, C, tail=1)
    simulate(sent, [smallest])
    with pytest.raises(InputError, match=f"a capacity of {smallest - 1} chunks"):
        simulate(sent, [smallest - 1])


def test_other_bad_numbers():
    sent = calls(A, C)
    with pytest.raises(InputError, match="output_tokens must be 2 numbers"):
        vllm.pool_hits(sent, [9], [1])
    with pytest.raises(InputError, match="output_tokens must be 2 numbers"):
        vllm.pool_hits(sent, [9], [1, -1])
    with pytest.raises(InputError, match=r"cannot hold .* which needs 6"):
        vllm.pool_hits(sent, [5], [13, 1])
    with pytest.raises(InputError, match="watermark of 0"):
        lmcache.server_hits(sent, [9], watermark=0)
    with pytest.raises(InputError, match="step_tokens is 0"):
        vllm_offload.offload_hits(sent, 9, [9], step_tokens=0)
    with pytest.raises(InputError, match="a capacity of 0 chunks"):
        vllm_offload.offload_hits(sent, 9, [0])
    runs = lru.stack_runs(sent)
    with pytest.raises(InputError, match="2 path lengths for 1 calls"):
        vllm.needed_capacity(runs, np.array([3, 1]), np.array([True]))


def test_no_calls_at_all():
    sent = calls()
    for simulate in (
        lru.stack_hits,
        vllm.one_pass_hits,
        vllm.pool_hits,
        sglang.radix_hits,
        lmcache.in_process_hits,
        lmcache.server_hits,
    ):
        assert simulate(sent, [1, 2]).shape == (2, 0)
    assert vllm_offload.offload_hits(sent, 1, [1, 2]).host.shape == (2, 0)
    assert vllm.duplicates_from(sent) is None


def test_each_kernel_is_compiled_once():
    import numba

    if numba.config.DISABLE_JIT:
        pytest.skip("nothing is compiled")
    paths = calls(A, B, [*A, 4])
    vllm.pool_hits(paths, np.array([9, 10], dtype=np.int32), np.ones(3, dtype=np.int16))
    vllm.one_pass_hits(paths, [5])
    sglang.radix_hits(paths, [9])
    lmcache.in_process_hits(paths, (9,))
    lmcache.server_hits(paths, [9], watermark=1)
    vllm_offload.offload_hits(paths, 9, [9])
    for kernel in (
        stream._dense,
        stream._find_parents,
        lru._runs,
        lru._hits_at,
        vllm._limits,
        vllm._pool,
        sglang._radix,
        lmcache._in_process,
        lmcache._server,
        vllm_offload._host,
    ):
        assert len(kernel.signatures) == 1, kernel
