"""What a backend's GPU tier would hit at some capacities, as a curve."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from agentkv_trace.engine.mrc import curve_of_runs, trace_runs
from agentkv_trace.errors import InputError
from agentkv_trace.tiers import lmcache, sglang, vllm
from agentkv_trace.tiers.stream import CallStream, call_stream
from agentkv_trace.trace.paths import Paths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from agentkv_trace.engine.curve import MissRatioCurve
    from agentkv_trace.trace.store import Trace

DEFAULT_POINTS = 24
"""Capacities that are replayed where none was asked for."""

_ROOM = 1.3
"""The largest of them, over the distinct chunks: a watermark of 0.8 needs 1.25."""


@dataclass(frozen=True, slots=True)
class Replay:
    """How a backend that is no stack algorithm is replayed: stream, capacities -> hits."""

    hits: Callable[[CallStream, Any], Any]
    order: str
    chunk_tokens: int | None = None
    """The backend's own chunk size, where it is not the engine's block."""


REPLAYS = {
    "sglang": Replay(sglang.radix_hits, "tail-first"),
    "lmcache": Replay(lmcache.in_process_hits, "head-first", 256),
    "lmcache-server": Replay(lmcache.server_hits, "tail-first", 256),
}
BACKENDS = ("vllm", *REPLAYS)


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedCurve:
    """Hits of a workload at the capacities that were replayed, and at no other.

    Has the fields and ratios of MissRatioCurve that its renderings read; between two
    capacities it answers with the smaller one, below the first with no hit.
    """

    chunk_tokens: int
    calls: int
    prompt_tokens: int
    references: int
    unique_chunks: int
    cold_references: int
    engine: str
    order: str
    capacities: NDArray[np.int64]
    hits: NDArray[np.int64]
    sampling: None = None

    @property
    def ceiling(self) -> float:
        """The highest prefix hit ratio of all capacities replayed."""
        hits = int(self.hits.max(initial=0))
        return hits * self.chunk_tokens / max(self.prompt_tokens, 1)

    def miss_ratio(self, capacity_chunks: Any) -> Any:
        """Return missed references / references."""
        return 1.0 - self._hits(capacity_chunks) / max(self.references, 1)

    def prefix_hit_ratio(self, capacity_chunks: Any) -> Any:
        """Return hit tokens / prompt tokens."""
        return self._hits(capacity_chunks) * self.chunk_tokens / max(self.prompt_tokens, 1)

    def points(self, limit: int = 200) -> NDArray[np.int64]:
        """Return the capacities that were replayed."""
        del limit
        return self.capacities

    def _hits(self, capacity_chunks: Any) -> Any:
        at = np.searchsorted(self.capacities, capacity_chunks, "right")
        return np.concatenate([[0], self.hits])[at]


def backend_curve(
    trace: Trace, backend: str, capacities: Sequence[int] | None = None
) -> MissRatioCurve | ReplayedCurve:
    """Return what a backend would hit, one call after another in order of start.

    vLLM's block pool comes from one pass for all capacities, as long as no block is held
    twice; the others are replayed at `capacities` (chunks), or at DEFAULT_POINTS of them.
    Outputs count for vLLM only. Raises InputError for a capacity that the largest call
    does not fit.
    """
    runs = trace_runs(trace)
    exact = curve_of_runs(trace, runs)
    if backend == "vllm":
        return _vllm_curve(trace, runs, exact)
    whole = Paths(trace)
    block = whole.numbers(0, len(trace))
    stream = call_stream(
        block.chunks, block.offsets, trace.array("prompt_tokens"), trace.meta.chunk_tokens
    )
    if capacities is None:
        least = max(stream.largest_call, 1)
        most = max(int(_ROOM * exact.unique_chunks) + 1, least)
        sizes = np.unique(np.geomspace(least, most, DEFAULT_POINTS).round().astype(np.int64))
    else:
        sizes = np.unique(np.asarray(capacities, np.int64))
        if sizes.size and sizes[0] < stream.largest_call:
            raise InputError(
                f"capacity of {sizes[0]} chunks: the largest call takes {stream.largest_call}, "
                f"so {backend} would refuse it"
            )
    replay = REPLAYS[backend]
    return ReplayedCurve(
        chunk_tokens=exact.chunk_tokens,
        calls=exact.calls,
        prompt_tokens=exact.prompt_tokens,
        references=exact.references,
        unique_chunks=exact.unique_chunks,
        cold_references=exact.cold_references,
        engine=backend,
        order=replay.order,
        capacities=sizes,
        hits=replay.hits(stream, sizes).sum(axis=1, dtype=np.int64),
    )


def _vllm_curve(trace: Trace, runs: Any, exact: MissRatioCurve) -> MissRatioCurve:
    chunk = trace.meta.chunk_tokens
    prompt_tokens = trace.array("prompt_tokens").astype(np.int64)
    output_tokens = trace.array("output_tokens").astype(np.int64)
    path_chunks = trace.array("path_chunks")
    # The last sampled token is never stored; outputs that no path holds leave nothing.
    stored = prompt_tokens + np.where(
        path_chunks > trace.array("prompt_chunks"), np.maximum(output_tokens - 1, 0), 0
    )
    needed = vllm.needed_capacity(runs, path_chunks, stored % chunk != 0, runs.refreshes)
    most = np.maximum(prompt_tokens - 1, 0) // chunk
    length = np.clip(most[runs.call] - runs.depth, 0, runs.length).astype(np.int32)
    kept = length > 0
    capped = replace(
        runs,
        call=runs.call[kept],
        owner=runs.owner[kept],
        depth=runs.depth[kept],
        first_distance=needed[kept],
        length=length[kept],
    )
    return replace(curve_of_runs(trace, capped), engine="vllm", unique_chunks=exact.unique_chunks)
