"""Thrashing: the tiers write what they drop before anybody comes back for it."""

from __future__ import annotations

from dataclasses import dataclass

from agentkv_trace.advise.agents import most_agents, reuse_tokens

EVICTED = 0.5
"""From this share of written tokens evicted before reuse on, a host tier thrashes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiers:
    """What a pool and a host tier do over a trace, all in tokens; `host` 0 is none.

    working_set: the smallest capacity with the asked share of achievable hits, measured.
    compulsory: prompt tokens that an unlimited cache computes.
    """

    pool: int
    host: int
    inclusive: bool
    agents: int
    mean_prompt: float
    working_set: int
    restored: int
    written: int
    evicted: int
    computed: int
    compulsory: int

    @property
    def capacity(self) -> int:
        """Return the tokens both tiers hold: the larger if inclusive, else both."""
        return max(self.pool, self.host) if self.inclusive else self.pool + self.host


@dataclass(frozen=True, slots=True, kw_only=True)
class Thrash:
    """Whether a pair of tiers thrashes, and how badly.

    gamma_gpu = A * N / pool and gamma_host = (A - 1) * N / host (Eq. 5; above 1 is a risk; None
    without a host tier). Severity: `written_per_restored`, `evicted_share` of what is written,
    `computed_per_compulsory`. `begins_at_agents` is the scale estimate of the number of agents
    from which the tiers no longer hold the working set.
    """

    predicted: bool
    gamma_gpu: float
    gamma_host: float | None
    written_per_restored: float | None
    evicted_share: float | None
    computed_per_compulsory: float | None
    begins_at_agents: int


def thrash(tiers: Tiers) -> Thrash:
    """Return the prediction for a pair of tiers.

    Predicted where both are below the working set and most of what is written leaves before
    reuse. Without a host tier the pool alone is judged: it thrashes where it is below the working
    set and the agents' contexts together exceed it, and most of what could be hit is computed.
    """
    gamma_gpu = tiers.agents * tiers.mean_prompt / tiers.pool
    short = tiers.pool < tiers.working_set and tiers.host < tiers.working_set
    evicted = tiers.evicted / tiers.written if tiers.written else None
    if tiers.host:
        predicted = short and evicted is not None and evicted >= EVICTED
    else:
        missed = tiers.computed - tiers.compulsory
        predicted = short and gamma_gpu > 1 and missed > tiers.compulsory
    return Thrash(
        predicted=predicted,
        gamma_gpu=gamma_gpu,
        gamma_host=(
            reuse_tokens(tiers.agents, tiers.mean_prompt) / tiers.host if tiers.host else None
        ),
        written_per_restored=tiers.written / tiers.restored if tiers.restored else None,
        evicted_share=evicted,
        computed_per_compulsory=tiers.computed / tiers.compulsory if tiers.compulsory else None,
        begins_at_agents=most_agents(tiers.capacity, tiers.mean_prompt) + 1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """Something to do against recomputation, with the computed prompt tokens it would leave.

    `bound` where the figure is the most it can do, not what it will do.
    """

    action: str
    computed_tokens: int
    bound: bool = False


def ranked(fixes: list[Fix], now_computed: int) -> list[Fix]:
    """Return the fixes that help, the one with most effect first; as given where they tie."""
    helping = [fix for fix in fixes if fix.computed_tokens < now_computed]
    return sorted(helping, key=lambda fix: fix.computed_tokens)
