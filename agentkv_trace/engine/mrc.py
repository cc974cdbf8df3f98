"""From a trace to its curve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.engine.curve import MissRatioCurve
from agentkv_trace.engine.path_stack import next_call_reuse, path_runs

if TYPE_CHECKING:
    from agentkv_trace.trace.store import Trace


def miss_ratio_curve(trace: Trace) -> MissRatioCurve:
    """Return the exact curve of a trace, calls in order of start."""
    base_chunks = trace.array("base_chunks")
    prompt_chunks = trace.array("prompt_chunks")
    path_chunks = trace.array("path_chunks")
    runs = path_runs(trace.array("base"), base_chunks, prompt_chunks, path_chunks)
    return MissRatioCurve.from_runs(
        runs,
        chunk_tokens=trace.meta.chunk_tokens,
        calls=len(trace),
        prompt_tokens=int(trace.array("prompt_tokens").sum(dtype="int64")),
        references=int(prompt_chunks.sum(dtype="int64")),
        unique_chunks=int(path_chunks.sum(dtype="int64") - base_chunks.sum(dtype="int64")),
    )


def trace_next_call_reuse(trace: Trace) -> float | None:
    """Return the share of new chunks that the session's very next call reuses."""
    return next_call_reuse(
        trace.codes("session")[0],
        trace.array("base"),
        trace.array("base_chunks"),
        trace.array("prompt_chunks"),
        trace.array("path_chunks"),
    )
