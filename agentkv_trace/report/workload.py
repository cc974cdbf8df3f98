"""What a report asks of a trace: its curve, some facts, and what tiers would do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agentkv_trace.report.model import TraceFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.advise.sizing import Curve
    from agentkv_trace.replay.onset import Loads, Onset
    from agentkv_trace.replay.setting import Setting
    from agentkv_trace.tiers.backends import Backend
    from agentkv_trace.tiers.use import TierUse
    from agentkv_trace.trace.store import Trace


ONSET_CALLS = 5_000
"""Calls of the trace that are replayed to tell from how many agents on tiers thrash."""


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

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what was assumed to bring the calls into their order."""
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

    def onset(self, setting: Setting) -> Onset | None:
        """Return from how many agents on a deployment thrashes; None where nobody can tell."""
        ...


class TraceWorkload:
    """A trace with its curve; replays run when they are asked for.

    With `agents`, calls come in the order in which so many agents would make them, closed-loop
    (`replay.order`).
    """

    def __init__(self, trace: Trace, agents: int | None = None) -> None:
        from agentkv_trace.engine.mrc import miss_ratio_curve, trace_next_call_reuse
        from agentkv_trace.tiers.trace_tiers import TraceTiers

        self._logged = trace
        self._loads: Loads | None = None
        self.notes: tuple[str, ...] = ()
        if agents is not None and len(trace):
            from agentkv_trace.replay.order import replayed_trace

            trace, self.notes = replayed_trace(trace, agents)
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

    def onset(self, setting: Setting) -> Onset | None:
        """Return from how many agents on a deployment thrashes; None for an empty trace.

        Replays the first sessions of the log, as many as have `ONSET_CALLS` calls.
        """
        from agentkv_trace.replay.onset import Loads, thrash_onset

        if not len(self._logged):
            return None
        if self._loads is None:
            self._loads = Loads(self._logged, max_calls=ONSET_CALLS)
        return thrash_onset(self._loads, setting)


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
