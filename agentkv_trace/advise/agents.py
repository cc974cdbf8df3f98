"""How many agents take turns: what the scale estimate of the working set is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

RETURNS = 0.95
"""Share of returns to a session that the count of agents covers."""


def concurrent_agents(sessions: NDArray[Any]) -> int:
    """Return how many sessions take turns, int codes of the sessions in order of calls given.

    Between two calls of one session others call; the number of distinct ones, itself included, is
    the session's stack distance. Of all returns to a session, 95% see at most this many. It needs
    no times. 1 where no session is ever returned to; 0 without calls.
    """
    import numpy as np

    from agentkv_trace.tiers.lru import stack_runs
    from agentkv_trace.tiers.stream import call_stream

    calls = len(sessions)
    if not calls:
        return 0
    _, codes = np.unique(sessions, return_inverse=True)
    stream = call_stream(codes, np.arange(calls + 1), np.ones(calls, np.int64), 1)
    distances = stack_runs(stream).first_distance
    if not len(distances):
        return 1
    return int(np.quantile(distances, RETURNS, method="inverted_cdf"))


def reuse_tokens(agents: int, mean_prompt_tokens: float) -> float:
    """Return the scale estimate (A - 1) * N: what others touch before an agent returns (Eq. 5)."""
    return max(agents - 1, 0) * mean_prompt_tokens


def most_agents(capacity_tokens: float, mean_prompt_tokens: float) -> int:
    """Return the most agents whose scale estimate a capacity holds: floor(K / N) + 1."""
    if mean_prompt_tokens <= 0:
        return 0
    return int(capacity_tokens // mean_prompt_tokens) + 1
