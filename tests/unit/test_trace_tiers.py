"""A trace behind the tiers of every backend: figures that must add up, and limits that are said."""

from __future__ import annotations

import numpy as np
import pytest

from agentkv_trace.engine.reuse import hits_at
from agentkv_trace.errors import InputError
from agentkv_trace.tiers import trace_tiers
from agentkv_trace.tiers.backends import BACKENDS
from agentkv_trace.tiers.trace_tiers import TraceTiers
from workload_agents import make_agents

TRACE = make_agents(6, mean_tokens=3000, calls_per_task=12, tasks=2, head_tokens=640)
TIERS = TraceTiers(TRACE)
POOL = 8192
SIZES = [0, 200, 600, 1200, 5000]


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_tokens_add_up(backend) -> None:
    unit = TIERS.host_chunk_tokens(backend) // TIERS.chunk_tokens
    uses = TIERS.use(backend, POOL, [size // unit for size in SIZES])
    for use in uses:
        assert (use.gpu >= 0).all()
        assert (use.restored >= 0).all()
        assert (use.computed >= 0).all()
        np.testing.assert_array_equal(use.gpu + use.restored + use.computed, use.prompt)
        assert use.evicted.sum() <= use.written.sum()
    none, *_, largest = uses
    assert none.host_tokens == none.written.sum() == none.restored.sum() == 0
    # Nothing beats an unlimited cache, and the largest size is one; blocks of 256 tokens and
    # copies made at the second meeting only come near it.
    ceiling = hits_at(TIERS.runs, 10**9).sum() * TIERS.chunk_tokens
    hits = largest.gpu.sum() + largest.restored.sum()
    assert hits <= ceiling
    if backend.id != "sglang-selective":
        assert hits >= 0.9 * ceiling


@pytest.mark.parametrize("name", ["ideal", "vllm", "vllm-simple", "lmcache", "sglang"])
def test_an_inclusive_tier_as_large_as_the_pool_gives_next_to_nothing(name: str) -> None:
    # Not LMCache's server: what does not fit it whole is not stored, so that it may keep what the
    # GPU has dropped.
    backend = BACKENDS[name]
    (use,) = TIERS.use(backend, POOL, [POOL // TIERS.host_chunk_tokens(backend)])
    seen = 0 if name == "ideal" else 0.046  # the most that vLLM's own code gave
    assert use.restored.sum() <= seen * use.prompt.sum()
    assert use.written.sum() > 0


@pytest.mark.parametrize("name", ["vllm-lazy", "sglang-write-back"])
def test_an_exclusive_tier_adds_to_the_pool(name: str) -> None:
    (use,) = TIERS.use(BACKENDS[name], POOL, [POOL // TIERS.chunk_tokens])
    (once,) = TIERS.use(BACKENDS["ideal"], POOL, [0])
    (twice,) = TIERS.use(BACKENDS["ideal"], 2 * POOL, [0])
    hits = use.gpu.sum() + use.restored.sum()
    assert 1.2 * once.gpu.sum() < hits <= twice.gpu.sum()


def test_sizes_in_chunks_are_those_of_the_backend() -> None:
    # vLLM rounds chunks up to pages of 4 KiB: chunks of 2 KiB halve the tier.
    assert TIERS.host_chunks(BACKENDS["vllm"], 2**20, 128) == 2**20 // 4096
    assert TIERS.host_chunks(BACKENDS["ideal"], 2**20, 128) == 2**20 // 2048
    assert TIERS.host_chunks(BACKENDS["lmcache"], 2**20, 128) == 2**20 // (256 * 128)
    assert TIERS.host_chunk_tokens(BACKENDS["lmcache"]) == 256


def test_a_coarse_trace_keeps_its_chunks() -> None:
    coarse = TraceTiers(TRACE.coarsen(512))
    assert coarse.host_chunk_tokens(BACKENDS["lmcache"]) == 512
    (use,) = coarse.use(BACKENDS["lmcache"], 16_384, [100])
    assert use.restored.sum() > 0


def test_order_and_repeats_of_sizes_are_kept() -> None:
    uses = TIERS.use(BACKENDS["vllm"], POOL, [600, 0, 200, 600])
    assert [use.host_tokens for use in uses] == [9600, 0, 3200, 9600]


def test_a_pool_below_the_longest_call_is_refused() -> None:
    smallest = TIERS.smallest_pool(BACKENDS["vllm"])
    TIERS.use(BACKENDS["vllm"], smallest, [100])
    with pytest.raises(InputError, match="cannot hold the largest call"):
        TIERS.use(BACKENDS["vllm"], smallest - 32, [100])
    assert TIERS.smallest_pool(BACKENDS["ideal"]) == 1


def test_a_trace_too_large_to_replay_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_tiers, "MOST_REFERENCES", 1000)
    with pytest.raises(InputError, match="--backend ideal"):
        TraceTiers(TRACE).use(BACKENDS["sglang"], POOL, [100])
