"""From how many agents on a deployment thrashes, and how many at a time serve a load fastest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agentkv_trace.errors import InputError
from agentkv_trace.replay.simulate import Load
from agentkv_trace.replay.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentkv_trace.replay.setting import Setting
    from agentkv_trace.trace.store import Trace

MAX_AGENTS = 64
FACTOR = 2.0
"""Computed prefill over compulsory prefill from which tiers are said to thrash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Onset:
    """The smallest number of agents at which tiers thrash, by bisection up to `max_agents`.

    agents: None where not even `max_agents` do. computed_tokens: prefill at that number of agents
    (or at max_agents); before_tokens: at one agent less, None where there is none. compulsory: what
    an unlimited cache computes of the same sessions.
    """

    agents: int | None
    max_agents: int
    factor: float
    computed_tokens: int
    before_tokens: int | None
    compulsory_tokens: int

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


def thrash_onset(
    trace: Trace,
    setting: Setting,
    *,
    timeline: Timeline | None = None,
    max_agents: int = MAX_AGENTS,
    factor: float = FACTOR,
) -> Onset:
    """Return from how many agents on a deployment computes more than `factor` times the compulsory.

    Replays the sessions of the trace closed-loop with 1 to `max_agents` agents, the same sessions
    each time (copies where the trace has fewer than `max_agents`), some log2(max_agents) + 2
    replays. `timeline` gives what is kept of it: gaps, order, seed, number of sessions. More agents
    may compute less where they happen to meet in time; the number is then one of several.
    Raises InputError for numbers that cannot be meant and for an empty trace.
    """
    if max_agents < 1:
        raise InputError(f"--max-agents {max_agents}: must be at least 1")
    base = replace(timeline or Timeline(), kind="closed-loop", max_agents=None, rate=None)
    loads: dict[int, Load] = {}
    found: dict[int, int] = {}

    def load(agents: int) -> Load:
        if agents not in loads:
            sessions = max(base.sessions or 0, max_agents, _families(trace))
            loads[agents] = Load(trace, replace(base, agents=agents, sessions=sessions))
        return loads[agents]

    def computed(agents: int) -> int:
        if agents not in found:
            found[agents] = load(agents).run(setting).computed_tokens
        return found[agents]

    unlimited = replace(setting, pool_tokens=None, host_chunks=0, replicas=1)
    compulsory = load(1).run(unlimited).computed_tokens
    limit = factor * compulsory
    if computed(max_agents) <= limit:
        return Onset(
            agents=None,
            max_agents=max_agents,
            factor=factor,
            computed_tokens=computed(max_agents),
            before_tokens=None,
            compulsory_tokens=compulsory,
        )
    low, high = 0, max_agents
    while high - low > 1:
        middle = (low + high) // 2
        if computed(middle) > limit:
            high = middle
        else:
            low = middle
    return Onset(
        agents=high,
        max_agents=max_agents,
        factor=factor,
        computed_tokens=computed(high),
        before_tokens=computed(low) if low else None,
        compulsory_tokens=compulsory,
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
            load = whole if cap == most else Load(trace, replace(timeline, max_agents=cap))
            found[cap] = load.run(setting).makespan_s
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


def _families(trace: Trace) -> int:
    from agentkv_trace.replay.sessions import sessions_of

    return sessions_of(trace).families
