"""The paper's experiment, rebuilt from what is published of it: agents on a GPU with a host tier.

Published: OpenHands on SWE-bench Verified, 4,427 calls, 147.1M prompt tokens, 98.1% of them seen
before; Qwen3-Coder-30B at TP8, 24,576 bytes per token and rank; 16 slots; vLLM 0.13 and LMCache
0.3.12 with chunks of 1,024; `--max-num-seqs 16`, `--max-model-len 262144`.
Assumed: 78 tasks (what 98.1% leaves for prompts that only grow), evenly from half to one and a half
times their mean length, with a head of 6,400 tokens that all share and first prompts of 8,400; what
calls add to their prompts is shaped as in other public traces (`growing.MEDIAN_SHARE`); outputs of
200 tokens; tool times lognormal with a median of 4 s; a GPU pool of 262,144 tokens, the smallest
with which vLLM starts at that length; GPUs, links and LMCache 0.3's waits as in the profiles.
No constant is fitted to the figures below. All are printed (`pytest -s`); asserted is what holds,
and what does not is asserted to be off, so that it is noticed when it changes.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from agentkv_trace.profiles.load import find_gpu, find_model
from agentkv_trace.replay.setting import ideal, setting_for
from agentkv_trace.replay.simulate import Load
from agentkv_trace.replay.timeline import Timeline
from agentkv_trace.tiers.capacity import Deployment, kv_bytes_per_token
from validation.growing import growing_tasks, spread

if TYPE_CHECKING:
    from agentkv_trace.replay.result import Result
    from agentkv_trace.trace.store import Trace

CODER = "qwen3-coder-30b"
CALLS, TOKENS = 4_427, 147.1e6
TASKS = 78
POOL = 262_144
GIB = 2**30
MILLION = 1e6


@cache
def trace() -> Trace:
    return growing_tasks(
        spread(TASKS, CALLS, 0.5, 1.5), head=6_400, first=8_400, mean=TOKENS / CALLS, output=200
    )


@cache
def load(agents: int) -> Load:
    return Load(trace(), Timeline(agents=agents))


@cache
def run(
    gib: float, *, gpu: str = "h20", agents: int = 16, rule: str = "off", pool: int | None = POOL
) -> Result:
    """Replay with a host tier of `gib` GiB per rank; `pool` None: what the GPU has room for."""
    setting = setting_for(
        find_model(CODER),
        find_gpu(gpu),
        Deployment(tp=8, gpu_kv_tokens=pool),
        backend="lmcache",
        connector="lmcache-0.3",
        host_bytes=int(gib * GIB * 8),
        host_chunk_tokens=1024,
        max_num_seqs=16,
        write_filter=rule,
    )
    return load(agents).run(setting)


def computed(gib: float, **rules) -> float:
    """Return computed prefill in millions of tokens."""
    return run(gib, **rules).computed_tokens / MILLION


def minutes(gib: float, **rules) -> float:
    return run(gib, **rules).makespan_s / 60


def show(text: str) -> None:
    sys.stdout.write(f"\n  {text}")


def compare(what: str, published: float, ours: float, unit: str) -> None:
    show(
        f"{what}: published {published:g} {unit}, ours {ours:.3g} "
        f"({100 * (ours / published - 1):+.0f}%)"
    )


def halfway(agents: int) -> float:
    """Return the GiB per rank at which computed prefill is half-way from no tier to a large one."""
    sizes = np.arange(0.5, 20.5, 0.5)
    found = np.array([computed(float(size), agents=agents) for size in sizes])
    middle = (computed(0, agents=agents) + computed(80, agents=agents)) / 2
    return float(sizes[np.flatnonzero(found > middle)[-1] + 1])


@pytest.fixture(autouse=True)
def _compiler() -> None:
    import numba

    if numba.config.DISABLE_JIT:
        pytest.skip("thousands of calls, a hundred times: minutes without the compiler")


def test_the_workload_is_the_published_one() -> None:
    prompt, chunks = trace().array("prompt_tokens"), trace().array("prompt_chunks")
    shared = np.minimum(trace().array("base_chunks"), chunks).sum() * 16
    seen = shared / prompt.sum()
    compare("calls", CALLS, len(trace()), "")
    compare("prompt tokens", TOKENS / MILLION, prompt.sum() / MILLION, "M")
    compare("seen before", 98.1, 100 * seen, "%")
    assert len(trace()) == CALLS
    assert prompt.sum() == pytest.approx(TOKENS, rel=1e-3)
    assert seen == pytest.approx(0.981, abs=5e-4)
    assert kv_bytes_per_token(find_model(CODER), Deployment(tp=8)) == 24_576


def test_host_memory_ends_the_thrashing_of_16_agents() -> None:
    show("H20, 16 agents, computed prefill by host tier in GiB per rank:")
    for gib in (0, 2, 5, 7.5, 10, 12.5, 15, 20, 40, 80):
        show(f"  {gib:>4}: {computed(gib):6.2f}M tokens, {minutes(gib):5.1f} min")
    compare("5 GiB", 76.74, computed(5), "M")
    compare("20 GiB", 5.28, computed(20), "M")
    least = load(16).run(ideal(None)).computed_tokens / MILLION
    show(f"compulsory: {least:.2f}M; chunks of 1,024 leave the end of each prompt to compute")
    # Tens of millions, as without any tier; then near what is compulsory, and flat.
    assert computed(5) > 10 * computed(20)
    assert computed(5) > 0.9 * computed(0)
    assert computed(20) < least + CALLS * 1024 / MILLION
    for gib in (40, 80):
        assert computed(gib) == pytest.approx(computed(20), rel=0.01)


def test_the_transition_is_where_the_paper_has_it() -> None:
    for agents, published in ((16, 11.4), (8, 5.3)):
        show(
            f"{agents} agents: half-way at {halfway(agents):g} GiB per rank; "
            f"the paper's scale of reuse {published} GiB"
        )
    show(
        f"8 agents, computed at 0, 5, 10 GiB: {computed(0, agents=8):.1f}, "
        f"{computed(5, agents=8):.1f}, {computed(10, agents=8):.1f}M"
    )
    assert 5 < halfway(16) < 20
    assert halfway(8) < halfway(16)
    assert halfway(8) == pytest.approx(5.3, rel=0.5)


def test_a_small_tier_is_worth_nothing() -> None:
    found = run(5).summary()
    compare("written at 5 GiB", 81.69, found["written_tokens"] / MILLION, "M")
    compare("restored at 5 GiB", 12.57, found["restored_tokens"] / MILLION, "M")
    compare("evicted before reuse", 79.2, 100 * found["host_evicted_before_reuse"], "%")
    compare("makespan at 5 GiB over none", 208.91 / 212, minutes(5) / minutes(0), "")
    assert found["host_evicted_before_reuse"] > 0.5
    assert found["written_tokens"] > 5 * found["restored_tokens"]
    assert minutes(5) > 0.98 * minutes(0)


def test_a_fixed_write_filter_helps_a_small_tier_and_hurts_a_large_one() -> None:
    compare("fixed filter at 5 GiB", 48.9, computed(5, rule="fixed"), "M")
    compare("fixed filter at 40 GiB", 22.8, computed(40, rule="fixed"), "M")
    compare("makespan over that without, 5 GiB", 186 / 208.91, ratio(5), "")
    compare("makespan over that without, 40 GiB", 162 / 124, ratio(40), "")
    show(
        f"conditioned filter: {computed(5, rule='conditioned'):.1f}M at 5 GiB, "
        f"{computed(40, rule='conditioned'):.1f}M at 40 GiB"
    )
    for pool in (POOL // 2, POOL):
        least, most = (computed(40, rule=rule, pool=pool) for rule in ("off", "fixed"))
        show(f"at 40 GiB with a GPU pool of {pool:,} tokens: {most / least:.1f} times (4.3)")
    assert computed(5, rule="fixed") < computed(5)
    assert computed(40, rule="fixed") > computed(40)
    assert ratio(5) < 1 < ratio(40)
    # The conditioned one helps where the tier is short and does nothing where it is not.
    assert computed(5, rule="conditioned") < computed(5)
    assert computed(40, rule="conditioned") == computed(40)


def ratio(gib: float) -> float:
    return minutes(gib, rule="fixed") / minutes(gib)


@pytest.mark.parametrize(
    ("gpu", "published"), [("rtx3090", "0.91"), ("h20", "0.60"), ("h800", "1.08 to 1.87")]
)
def test_makespan_with_a_tier_over_that_without(gpu: str, published: str) -> None:
    with_5, with_20 = (minutes(gib, gpu=gpu) / minutes(0, gpu=gpu) for gib in (5, 20))
    show(
        f"8 x {gpu}: makespan over that without a tier: published {published}; ours {with_20:.2f} "
        f"with 20 GiB per rank, {with_5:.2f} with 5 GiB; without a tier {minutes(0, gpu=gpu):.0f} "
        "min"
    )
    if gpu != "h800":
        assert with_20 < 1
    else:
        # Not reproduced: a tier that is too small makes the H800 slower, one that fits does not.
        assert with_5 > 1.08
        assert 0.9 < with_20 < 1


def test_a_larger_share_of_the_gpu_on_rtx_3090() -> None:
    small, large = run(0, gpu="rtx3090"), run(0, gpu="rtx3090", pool=None)
    for what, published, found in (("small", 44.6, small), ("large", 98.1, large)):
        compare(f"hits with a {what} share", published, 100 * found.summary()["hit_ratio"], "%")
    faster = small.makespan_s / large.makespan_s
    compare("times faster", 407 / 73, faster, "")
    assert faster > 1.5
    assert large.summary()["hit_ratio"] > 0.9


def test_times_are_shorter_than_the_papers() -> None:
    # Prefill under load is 3.7 times slower than the profile of one stream says, and outputs and
    # tool times are assumed; ratios are what this case can tell.
    compare("H20 without a tier", 212, minutes(0), "min")
    compare("H20 with 20 GiB", 128.05, minutes(20), "min")
    assert minutes(0) < 212
