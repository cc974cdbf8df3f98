"""What a report asks of a trace: its curve, some facts, and what tiers would do with it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from agentkv_trace.report.model import TraceFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentkv_trace.advise.sizing import Curve
    from agentkv_trace.replay.onset import Loads, Onset
    from agentkv_trace.replay.setting import Setting
    from agentkv_trace.report.case import Case
    from agentkv_trace.report.detail_model import Detail
    from agentkv_trace.tiers.backends import Backend
    from agentkv_trace.tiers.use import TierUse
    from agentkv_trace.trace.store import Trace


ONSET_CALLS = 5_000
"""Calls of the trace that are replayed to tell from how many agents on tiers thrash."""

_SHOWN = (1, 4, 16)
"""Numbers of agents replayed whatever the onset is, so that its curve can be drawn."""


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

    @property
    def onset_notes(self) -> tuple[str, ...]:
        """Return what was replayed for onsets and what was assumed for it."""
        ...

    def onsets(self, settings: Sequence[Setting]) -> Sequence[Onset | None]:
        """Return from how many agents on deployments thrash; None where nobody can tell."""
        ...

    def detail(
        self, cases: Sequence[tuple[Case, int]], recover: float, bytes_per_token: int
    ) -> Detail | None:
        """Return what is shown beside the advice; None where only distances are known."""
        ...


class TraceWorkload:
    """A trace with its curve; replays run when they are asked for.

    With `agents`, calls come in the order in which so many agents would make them, closed-loop
    (`replay.order`). `advance` hears of each size and onset that was replayed.
    """

    def __init__(
        self,
        trace: Trace,
        agents: int | None = None,
        *,
        advance: Callable[[int], object] = lambda done: None,
    ) -> None:
        from agentkv_trace.engine.mrc import curve_of_runs, trace_next_call_reuse, trace_runs
        from agentkv_trace.tiers.trace_tiers import TraceTiers

        self._logged = trace
        self._advance = advance
        self._agents = agents or 1
        self._loads: Loads | None = None
        self.notes: tuple[str, ...] = ()
        if agents is not None and len(trace):
            from agentkv_trace.replay.order import replayed_trace

            trace, self.notes = replayed_trace(trace, agents)
        self._trace = trace
        self._runs = trace_runs(trace)
        self.curve: Any = curve_of_runs(trace, self._runs)
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
        found = self._tiers.use(backend, pool_tokens, host_chunks)
        self._advance(len(found))
        return found

    def onsets(self, settings: Sequence[Setting]) -> Sequence[Onset | None]:
        """Return from how many agents on deployments thrash, replayed side by side.

        Replays the first sessions of the log, as many as have `ONSET_CALLS` calls, as up to
        `MAX_AGENTS` agents or the number the workload has. None for an empty trace or pool.
        """
        from agentkv_trace.replay.onset import LEAST_AGENTS, MAX_AGENTS, Loads, thrash_onset

        if not len(self._logged):
            return [None] * len(settings)
        if self._loads is None:
            self._loads = Loads(
                self._logged,
                max_agents=max(MAX_AGENTS, self._agents),
                max_calls=ONSET_CALLS,
                least_agents=max(LEAST_AGENTS, self._agents),
            )
        loads = self._loads

        def one(setting: Setting) -> Onset:
            found = thrash_onset(loads, setting, also=_SHOWN)
            self._advance(1)
            return found

        # A pool without a chunk, and one that the engine keeps for itself, serves nobody.
        least = 2 * self._logged.meta.chunk_tokens
        different = [
            setting
            for setting in dict.fromkeys(settings)
            if setting.pool_tokens is None or setting.pool_tokens >= least
        ]
        for setting in different:
            loads.prepare(setting)
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            by_setting = dict(zip(different, pool.map(one, different), strict=True))
        return [by_setting.get(setting) for setting in settings]

    @property
    def onset_notes(self) -> tuple[str, ...]:
        """Return what was replayed for onsets and what was assumed for it."""
        loads = self._loads
        if loads is None:
            return ()
        calls, sessions = len(loads[1]), len(loads[1].plan.release)
        whole = "" if calls >= len(self._logged) else "the first "
        return (
            f"Onset: {whole}{calls:,} calls in {sessions:,} sessions, replayed as 1 to "
            f"{loads.max_agents} agents, closed-loop, tool times as logged; prefill doubles where "
            "more than twice what an unlimited cache computes is computed",
            *(f"Onset: {note}" for note in loads.notes),
        )

    def detail(
        self, cases: Sequence[tuple[Case, int]], recover: float, bytes_per_token: int
    ) -> Detail | None:
        """Return what is shown beside the advice, for cases with their judged host sizes."""
        from agentkv_trace.report.detail import build_detail

        return build_detail(
            self._trace,
            self._runs,
            self.curve,
            cases,
            recover=recover,
            bytes_per_token=bytes_per_token,
            timed=self.facts.timed,
        )


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
