"""Agents, pressure, thrashing and what to type, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agentkv_trace.advise.agents import concurrent_agents, most_agents, reuse_tokens
from agentkv_trace.advise.flags import counted, flags
from agentkv_trace.advise.thrash import Fix, Tiers, ranked, thrash
from agentkv_trace.errors import InputError
from agentkv_trace.tiers.backends import BACKENDS, find_backend

GIB = 2**30
TIERS = Tiers(
    pool=100, host=200, inclusive=True, agents=16, mean_prompt=50.0, working_set=700,
    restored=100, written=1000, evicted=800, computed=2000, compulsory=500,
)  # fmt: skip


def test_agents_that_take_turns() -> None:
    assert concurrent_agents(np.array([0, 1, 2, 3] * 9)) == 4
    assert concurrent_agents(np.array([0] * 9)) == 1
    assert concurrent_agents(np.array([0, 1, 2])) == 1
    assert concurrent_agents(np.array([], np.int32)) == 0
    # Two sessions one after the other never take turns.
    assert concurrent_agents(np.array([0] * 40 + [1] * 40)) == 1
    # One return in twenty may see more.
    assert concurrent_agents(np.array([7] * 40 + [1, 2, 3] + [7])) == 1


def test_scale_estimate() -> None:
    assert reuse_tokens(16, 33_228) == 15 * 33_228
    assert reuse_tokens(0, 10) == 0
    # 5 GiB hold 6.57 prompts of 33,228 tokens at 24,576 bytes: the seventh agent still fits.
    assert most_agents(5 * GIB / 24_576, 33_228) == 7
    assert most_agents(100, 0) == 0


def test_prediction() -> None:
    found = thrash(TIERS)
    assert found.predicted
    assert found.gamma_gpu == 8.0
    assert found.gamma_host == 15 * 50 / 200
    assert (found.written_per_restored, found.evicted_share) == (10.0, 0.8)
    assert found.computed_per_compulsory == 4.0
    assert found.begins_at_agents == 200 // 50 + 2


@pytest.mark.parametrize(
    "change",
    [{"pool": 700}, {"host": 700}, {"evicted": 400}, {"written": 0, "evicted": 0}],
)
def test_no_prediction_where_a_tier_holds_it_or_little_is_lost(change: dict) -> None:
    assert not thrash(replace(TIERS, **change)).predicted


def test_the_gpu_alone() -> None:
    alone = replace(TIERS, host=0, written=0, evicted=0, restored=0)
    found = thrash(alone)
    assert found.predicted
    assert (found.gamma_host, found.evicted_share, found.written_per_restored) == (None,) * 3
    assert found.begins_at_agents == 100 // 50 + 2
    assert not thrash(replace(alone, computed=900)).predicted


def test_exclusive_tiers_add_up() -> None:
    assert TIERS.capacity == 200
    assert replace(TIERS, inclusive=False).capacity == 300


def test_fixes_by_effect() -> None:
    one, two = Fix(action="one", computed_tokens=80), Fix(action="two", computed_tokens=50)
    same, worse = Fix(action="same", computed_tokens=50), Fix(action="worse", computed_tokens=100)
    assert ranked([one, two, same, worse], 100) == [two, same, one]


def test_flags_per_rank_and_in_total() -> None:
    total = 160 * GIB
    said = {name: flags(backend, total, 8) for name, backend in BACKENDS.items()}
    assert said["ideal"] == ()
    assert said["vllm"] == ("--kv-offloading-size 160 --kv-offloading-backend native",)
    assert "LMCACHE_MAX_LOCAL_CPU_SIZE=20" in said["lmcache"]
    assert said["lmcache-server"][0] == "lmcache server --l1-size-gb 160"
    assert "VLLM_USE_SIMPLE_KV_OFFLOAD=1" in said["vllm-simple"]
    assert f'"cpu_bytes_to_use": {total}, "lazy_offload": true' in said["vllm-lazy"][0]
    # SGLang counts 10^9 bytes per rank: 20 GiB are 21.5 of them.
    assert said["sglang"] == (
        "--enable-hierarchical-cache --hicache-size 22 --hicache-write-policy write_through",
    )
    assert said["sglang-write-back"][0].endswith("write_back")
    for name, backend in BACKENDS.items():
        assert bool(counted(backend)) == (name != "ideal")


def test_each_replica_is_an_engine_of_its_own() -> None:
    vllm, lmcache = BACKENDS["vllm"], BACKENDS["lmcache"]
    assert flags(vllm, 160 * GIB, 8, dp=2)[0].startswith("--kv-offloading-size 80 ")
    assert "LMCACHE_MAX_LOCAL_CPU_SIZE=20" in flags(lmcache, 160 * GIB, 8, dp=2)
    assert flags(vllm, 3 * GIB // 2, 1)[0].startswith("--kv-offloading-size 1.5 ")


def test_backends_by_name() -> None:
    assert find_backend("SGLang write back").id == "sglang-write-back"
    assert find_backend("vllm").id == "vllm"
    with pytest.raises(InputError, match="unknown backend 'redis'"):
        find_backend("redis")
