"""LMCache's published replay of SWE-agent tasks on a host tier of 40, 20 and 10 GiB.

Published: 14 slots at a constant step rate, 2,212 calls of 4 to 158 a task, prompts up to 34.6k
tokens, 36.7 GiB live, 182.6 GiB distinct, GPU alone covers .308; external hits .677, .003, .000.
Assumed: lengths of tasks evenly spread over their logarithm; final prompts that grow with a power
of the length, which follows from distinct over live; a shared head of 1,500 and first prompts of
2,500 tokens; a step each 10 s. "Live" is the mean over time: as the most at any time it leaves no
such tasks with that much distinct. Bytes per token follow from what is live, and the GPU pool,
which is not told, from what it covers alone; the external hits, which are compared, decide nothing.
They move with the order of the tasks, so there are SEEDS of them.
"""

from __future__ import annotations

import sys
from functools import cache

import numpy as np
import pytest

from agentkv_trace.replay.setting import Setting, Speed
from agentkv_trace.replay.simulate import Load
from agentkv_trace.replay.timeline import Timeline
from agentkv_trace.tiers.backends import find_backend
from validation.growing import paced_tasks

GIB = 2**30
LIVE_GIB, DISTINCT_GIB = 36.7, 182.6
GPU_ALONE = 0.308
PUBLISHED = {40: 0.677, 20: 0.003, 10: 0.000}
SEEDS = 5
HOST_CHUNK = 256


def load(power: float, seed: int) -> tuple[Load, float, float]:
    """Return the load, and its live and distinct tokens."""
    # So spread, 52 lengths have nearest to 2,212 calls.
    lengths = np.round(np.geomspace(4, 158, 52)).astype(int)
    lengths = np.random.default_rng(seed).permutation(lengths)
    finals = 34_600 * (lengths / 158) ** power
    trace = paced_tasks(
        lengths.tolist(),
        head=1_500,
        first=2_500,
        finals=np.maximum(finals, 2_600),
        period_s=10.0,
        seed=seed,
    )
    made = Load(trace, Timeline(agents=14))
    live = run(made, None, 0).summary()["mean_live_tokens"]
    new = trace.array("prompt_chunks") - np.minimum(
        trace.array("base_chunks"), trace.array("prompt_chunks")
    )
    return made, live, float(new.sum() * trace.meta.chunk_tokens)


def run(made: Load, pool: int | None, host: int, backend: str = "ideal"):
    return made.run(
        Setting(
            backend=find_backend(backend),
            pool_tokens=pool,
            host_chunks=host,
            host_chunk_tokens=HOST_CHUNK,
            speed=Speed(step_s=0.05),
        )
    )


def halved(low: float, high: float, above, steps: int = 16) -> float:
    """Return where `above` becomes true."""
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if above(middle) else (middle, high)
    return high


@cache
def described(seed: int) -> tuple[Load, float, int]:
    """Return a load as described, its bytes per token, and the GPU pool in tokens."""

    def too_live(power: float) -> bool:
        _, live, distinct = load(power, seed)
        return distinct / live < DISTINCT_GIB / LIVE_GIB

    def covers(size: float) -> bool:
        return run(made, int(size), 0).summary()["gpu_hit_ratio"] >= GPU_ALONE

    power = halved(0.0, 2.0, too_live, steps=10)
    made, live, distinct = load(power, seed)
    assert distinct / live == pytest.approx(DISTINCT_GIB / LIVE_GIB, rel=0.02)
    pool = halved(36_000, live, covers)
    assert run(made, int(pool), 0).summary()["gpu_hit_ratio"] == pytest.approx(GPU_ALONE, abs=0.01)
    return made, LIVE_GIB * GIB / live, int(pool)


@cache
def external(backend: str, seed: int) -> dict[int, float]:
    made, token_bytes, pool = described(seed)
    return {
        gib: run(made, pool, int(gib * GIB / token_bytes / HOST_CHUNK), backend).summary()[
            "external_hit_ratio"
        ]
        for gib in (40, 30, 20, 10)
    }


@pytest.fixture(autouse=True)
def _compiler() -> None:
    import numba

    if numba.config.DISABLE_JIT:
        pytest.skip("thousands of calls, hundreds of times: minutes without the compiler")


def show(backend: str) -> list[dict[int, float]]:
    found = [external(backend, seed) for seed in range(SEEDS)]
    pools = [
        pool * token_bytes / GIB
        for _, token_bytes, pool in (described(seed) for seed in range(SEEDS))
    ]
    sys.stdout.write(f"\n  {backend}, GPU pool {min(pools):.0f} to {max(pools):.0f} GiB")
    for gib in (40, 30, 20, 10):
        mine = ", ".join(f"{hits[gib]:.3f}" for hits in found)
        sys.stdout.write(f"\n    {gib} GiB: published {PUBLISHED.get(gib, '-')}, ours {mine}")
    return found


@pytest.mark.parametrize("backend", ["ideal", "lmcache"])
def test_hits_fall_off_a_cliff_between_40_and_20_gib(backend: str) -> None:
    for hits in show(backend):
        assert hits[40] > 0.1
        assert hits[20] < 0.01
        assert hits[10] < 0.001


def test_the_server_with_its_watermark_does_not_reproduce_the_case() -> None:
    for hits in show("lmcache-server"):
        assert hits[40] < PUBLISHED[40]
        assert hits[20] > PUBLISHED[20]
