"""What a report asks of a trace: its curve, some facts, and what tiers would do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agentkv_trace.report.model import TraceFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.advise.sizing import Curve
    from agentkv_trace.tiers.backends import Backend
    from agentkv_trace.tiers.use import TierUse
    from agentkv_trace.trace.store import Trace


class Workload(Protocol):
    """A trace as the report sees it; `TraceWorkload` is the one of real traces."""

    @property
    def curve(self) -> Curve:
        """Return the miss-ratio curve."""
        ...

    @property
    def facts(self) -> TraceFacts:
        """Return what else is said about the trace."""
        ...

    def host_chunk_tokens(self, backend: Backend) -> int:
        """Return the tokens in a chunk of the host tier."""
        ...

    def host_chunks(self, backend: Backend, rank_bytes: int, kv_bytes_per_token: int) -> int:
        """Return how many chunks fit `rank_bytes` of host memory on each rank."""
        ...

    def smallest_pool(self, backend: Backend) -> int:
        """Return the tokens a GPU pool needs for the longest call."""
        ...

    def use(self, backend: Backend, pool_tokens: int, host_chunks: Sequence[int]) -> list[TierUse]:
        """Return what calls get at each size of host tier."""
        ...


class TraceWorkload:
    """A trace with its curve; replays run when they are asked for."""

    def __init__(self, trace: Trace) -> None:
        from agentkv_trace.engine.mrc import miss_ratio_curve, trace_next_call_reuse
        from agentkv_trace.tiers.trace_tiers import TraceTiers

        self.curve: Any = miss_ratio_curve(trace)
        self._tiers = TraceTiers(trace)
        self.facts = trace_facts(trace, trace_next_call_reuse(trace))

    def host_chunk_tokens(self, backend: Backend) -> int:
        """Return the tokens in a chunk of the host tier."""
        return self._tiers.host_chunk_tokens(backend)

    def host_chunks(self, backend: Backend, rank_bytes: int, kv_bytes_per_token: int) -> int:
        """Return how many chunks fit `rank_bytes` of host memory on each rank."""
        return self._tiers.host_chunks(backend, rank_bytes, kv_bytes_per_token)

    def smallest_pool(self, backend: Backend) -> int:
        """Return the tokens a GPU pool needs for the longest call."""
        return self._tiers.smallest_pool(backend)

    def use(self, backend: Backend, pool_tokens: int, host_chunks: Sequence[int]) -> list[TierUse]:
        """Return what calls get at each size of host tier."""
        return self._tiers.use(backend, pool_tokens, host_chunks)


def trace_facts(trace: Trace, next_call_reuse: float | None) -> TraceFacts:
    """Return the facts of a trace that do not depend on its curve."""
    from agentkv_trace.advise.agents import concurrent_agents

    tokens = trace.array("prompt_tokens")
    sessions, names = trace.codes("session")
    sources, words = trace.codes("time_source")
    return TraceFacts(
        calls=len(trace),
        sessions=len(names),
        longest_prompt_tokens=int(tokens.max()) if len(trace) else 0,
        tokenizer=trace.meta.tokenizer["name"],
        agents=concurrent_agents(sessions),
        next_call_reuse=next_call_reuse,
        timed={words[code] for code in set(sources.tolist())} != {"order_only"},
    )
