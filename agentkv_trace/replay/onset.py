"""From how many agents on a deployment thrashes, and how many at a time serve a load fastest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agentkv_trace.errors import InputError
from agentkv_trace.replay.simulate import Load
from agentkv_trace.replay.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentkv_trace.replay.result import Result
    from agentkv_trace.replay.setting import Setting
    from agentkv_trace.trace.store import Trace

MAX_AGENTS = 64
LEAST_AGENTS = 8
_MORE_CALLS = 3
FACTOR = 2.0
"""Computed prefill over compulsory prefill from which tiers are said to thrash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What one number of agents gives; ratios are shares of the prompt tokens served."""

    agents: int
    gpu_hit_ratio: float
    hit_ratio: float
    computed_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Onset:
    """The smallest number of agents at which tiers thrash, by bisection up to `max_agents`.

    agents: None where not even `max_agents` do. computed_tokens: prefill at that number of agents
    (or at max_agents); before_tokens: at one agent less, None where there is none. compulsory: what
    an unlimited cache computes of the same calls. calls: how many were replayed each time;
    rejected: those among them that are larger than the pool, which count nowhere. points: all
    numbers of agents that were replayed, ascending.
    """

    agents: int | None
    max_agents: int
    factor: float
    computed_tokens: int
    before_tokens: int | None
    compulsory_tokens: int
    calls: int
    rejected: int
    points: tuple[Point, ...]

    def in_words(self) -> str:
        """Return the finding as a sentence without its full stop."""
        share = self.computed_tokens / max(self.compulsory_tokens, 1)
        if self.agents is None:
            return (
                f"no thrashing up to {self.max_agents} agents: prefill stays at {share:.1f} times "
                "what an unlimited cache computes"
            )
        return (
            f"thrashes from {self.agents} {'agent' if self.agents == 1 else 'agents'} on: prefill "
            f"is {share:.1f} times what an unlimited cache computes"
        )


class Loads:
    """The same sessions with 1 to `max_agents` agents, closed-loop, for any number of settings.

    `timeline` gives what is kept of it: gaps, order, seed, number of sessions (copies where the
    trace has fewer than `max_agents`). With `max_calls`, only the first sessions of the trace that
    have about so many calls; where `max_agents` sessions have over three times as many, fewer
    agents are tried, `least_agents` at least. `notes`: what was assumed.
    Raises InputError for numbers that cannot be meant and for an empty trace.
    """

    def __init__(
        self,
        trace: Trace,
        timeline: Timeline | None = None,
        *,
        max_agents: int = MAX_AGENTS,
        max_calls: int | None = None,
        least_agents: int = LEAST_AGENTS,
    ) -> None:
        import numpy as np

        from agentkv_trace.replay.sessions import sessions_of

        if max_agents < 1:
            raise InputError(f"--max-agents {max_agents}: must be at least 1")
        base = replace(timeline or Timeline(), kind="closed-loop", max_agents=None, rate=None)
        calls = np.bincount(sessions_of(trace).family, minlength=1)
        wanted = int(calls.size)
        self.max_agents = max_agents
        if max_calls is not None:
            wanted = max(int(np.searchsorted(np.cumsum(calls), max_calls, side="right")), 1)
            most = int(_MORE_CALLS * max_calls / max(calls[:max_agents].mean(), 1.0))
            self.max_agents = min(max_agents, max(most, least_agents))
        sessions = max(base.sessions or wanted, self.max_agents)
        self._load = Load(trace, replace(base, sessions=sessions, agents=self.max_agents))
        self.notes = self._load.plan.notes

    def __getitem__(self, agents: int) -> Load:
        return self._load.with_agents(agents)

    def prepare(self, setting: Setting) -> None:
        """Compute what runs of settings like this one share, before threads run them."""
        self._load.prepare(setting)


def thrash_onset(
    loads: Loads, setting: Setting, factor: float = FACTOR, *, also: Sequence[int] = ()
) -> Onset:
    """Return from how many agents on a deployment computes more than `factor` times the compulsory.

    By bisection, some log2(max_agents) + 2 replays. More agents may compute less where they happen
    to meet in time; the number is then one of several. also: further numbers of agents to replay,
    for the points.
    """
    most = loads.max_agents
    found: dict[int, Point] = {}

    def computed(agents: int) -> int:
        if agents not in found:
            found[agents] = _point(agents, loads[agents].run(setting))
        return found[agents].computed_tokens

    result = loads[most].run(setting)
    found[most] = _point(most, result)
    served = result.served
    unlimited = replace(setting, pool_tokens=None, host_chunks=0, replicas=1)
    compulsory = int(loads[1].run(unlimited).done.computed[served].sum(dtype="int64"))
    limit = factor * compulsory
    low, high = 0, most
    thrashes = computed(most) > limit
    while thrashes and high - low > 1:
        middle = (low + high) // 2
        if computed(middle) > limit:
            high = middle
        else:
            low = middle
    for agents in also:
        computed(min(agents, most))
    return Onset(
        agents=high if thrashes else None,
        max_agents=most,
        factor=factor,
        computed_tokens=computed(high),
        before_tokens=computed(low) if low else None,
        compulsory_tokens=compulsory,
        calls=len(served),
        rejected=int((~served).sum()),
        points=tuple(found[agents] for agents in sorted(found)),
    )


def _point(agents: int, result: Result) -> Point:
    served = result.served
    prompt = max(int(result.prompt[served].sum()), 1)
    gpu = int(result.done.gpu.sum(dtype="int64"))
    restored = int(result.done.restored.sum(dtype="int64"))
    return Point(
        agents=agents,
        gpu_hit_ratio=gpu / prompt,
        hit_ratio=(gpu + restored) / prompt,
        computed_tokens=result.computed_tokens,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """The cap on active agents with the shortest makespan; `makespans`: every cap tried."""

    agents: int
    makespan_s: float
    without_s: float
    makespans: dict[int, float]


def best_cap(
    trace: Trace,
    setting: Setting,
    timeline: Timeline,
    *,
    advance: Callable[[int], object] = lambda done: None,
) -> Cap:
    """Return how many sessions at a time serve a load fastest.

    Tries the powers of two below the number of agents, then halves the steps around the best.
    `advance` hears of each replay. Raises InputError as `Load` does.
    """
    whole = Load(trace, replace(timeline, max_agents=None))
    most = min(whole.plan.agents, len(whole.plan.release))
    found: dict[int, float] = {}

    def makespan(cap: int) -> float:
        if cap not in found:
            found[cap] = whole.with_agents(cap).run(setting).makespan_s
            advance(1)
        return found[cap]

    step = 1
    while step < most:
        makespan(step)
        step *= 2
    makespan(most)
    while step > 1:
        step //= 2
        # On a tie the larger cap, which keeps nobody waiting in vain.
        best = min(found, key=lambda cap: (found[cap], -cap))
        for cap in (best - step // 2, best + step // 2):
            if 1 <= cap <= most:
                makespan(cap)
    best = min(found, key=lambda cap: (found[cap], -cap))
    return Cap(
        agents=best,
        makespan_s=found[best],
        without_s=found[most],
        makespans=dict(sorted(found.items())),
    )
