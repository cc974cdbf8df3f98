"""From a trace to its curves.

Each kernel costs its share of a command's start, so engines are imported where they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from agentkv_trace.engine.curve import MissRatioCurve
from agentkv_trace.engine.path_stack import Runs, Timing, next_call_reuse, path_runs
from agentkv_trace.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agentkv_trace.engine.chunk_stack import Order
    from agentkv_trace.trace.store import Trace

Engine = Literal["path", "chunk"]
GROUPS = ("session", "agent", "model", "source")
"""Columns by which a curve can be split."""


def miss_ratio_curve(
    trace: Trace,
    *,
    engine: Engine = "path",
    order: Order = "tail-first",
    timing: Timing = "sequential",
) -> MissRatioCurve:
    """Return the exact curve of a trace.

    The path engine's cost does not depend on the number of chunks; the chunk engine is for the
    other order of touches. `timing` "overlap" looks a call up at its start and touches its path
    at its end. Raises InputError for a combination that no engine has.
    """
    if engine == "path":
        if order != "tail-first":
            raise InputError("--order head-first: only --engine chunk has it")
        return curve_of_runs(trace, trace_runs(trace, timing))
    if timing != "sequential":
        raise InputError(f"--timing {timing}: only --engine path has it")
    from agentkv_trace.engine.chunk_stack import CallStack
    from agentkv_trace.trace.paths import Paths

    stack = CallStack(order)
    prompts = trace.array("prompt_chunks").astype(np.int64)
    for block in Paths(trace).blocks(outputs=True):
        calls = slice(block.first, block.first + block.offsets.size - 1)
        stack.feed_histogram(block.chunks.astype(np.uint64), block.offsets, prompts[calls])
    found = stack.result()
    distances = np.arange(found.chunk_histogram.size)[1:]
    return MissRatioCurve.from_distances(
        distances,
        found.chunk_histogram[1:],
        prefix_distances=distances,
        prefix_counts=found.prefix_histogram[1:],
        chunk_tokens=trace.meta.chunk_tokens,
        calls=len(trace),
        prompt_tokens=int(trace.array("prompt_tokens").sum(dtype=np.int64)),
        references=found.references,
        unique_chunks=found.unique_chunks,
        order=order,
    )


def sampled_curve(
    trace: Trace, *, rate: float | None = None, samples: int | None = None, seed: int = 0
) -> MissRatioCurve:
    """Return the curve that SHARDS estimates from a sample of the chunks.

    At a fixed `rate`, or with `samples` chunks at most. What the trace tells exactly (references,
    distinct chunks, first touches) is not estimated. Raises InputError for a rate or size that
    cannot be meant.
    """
    from agentkv_trace.engine.shards import Shards
    from agentkv_trace.trace.paths import Paths

    shards = Shards(rate=rate, samples=samples, seed=seed, order="tail-first")
    prompts = trace.array("prompt_chunks").astype(np.int64)
    paths = Paths(trace)
    for block in paths.blocks(outputs=True):
        calls = slice(block.first, block.first + block.offsets.size - 1)
        shards.feed(paths.keys[block.chunks], block.offsets, prompts[calls])
    unique = int(_new_chunks(trace).sum())
    cold = int(np.maximum(prompts - trace.array("base_chunks"), 0).sum())
    found = shards.result(unique, cold)
    if not found.samples:
        raise InputError("the sample holds no chunk; give a higher --rate or more --samples")
    return MissRatioCurve.from_distances(
        *found.histogram(),
        chunk_tokens=trace.meta.chunk_tokens,
        calls=len(trace),
        prompt_tokens=int(trace.array("prompt_tokens").sum(dtype=np.int64)),
        references=found.references,
        unique_chunks=unique,
        engine="shards",
        sampling={
            "rate": found.rate,
            "samples": found.samples,
            "seed": found.seed,
            "expected_error": found.expected_error,
            "error_bound": found.error_bound,
        },
    )


def trace_runs(trace: Trace, timing: Timing = "sequential") -> Runs:
    """Return the path engine's table of runs of a trace."""
    times = timing == "overlap"
    return path_runs(
        trace.array("base"),
        trace.array("base_chunks"),
        trace.array("prompt_chunks"),
        trace.array("path_chunks"),
        timing=timing,
        t_start_us=trace.array("t_start_us") if times else None,
        t_end_us=trace.array("t_end_us") if times else None,
    )


def curve_of_runs(trace: Trace, runs: Runs) -> MissRatioCurve:
    """Return the curve of a trace's runs."""
    return MissRatioCurve.from_runs(
        runs,
        chunk_tokens=trace.meta.chunk_tokens,
        calls=len(trace),
        prompt_tokens=int(trace.array("prompt_tokens").sum(dtype=np.int64)),
        references=int(trace.array("prompt_chunks").sum(dtype=np.int64)),
        unique_chunks=int(_new_chunks(trace).sum(dtype=np.int64)),
    )


def curves_of_groups(trace: Trace, runs: Runs, column: str) -> dict[str, MissRatioCurve]:
    """Return the curve of each group of calls in the shared cache, by its name.

    `column` is one of GROUPS; calls whose value is null form the group "none".
    """
    from agentkv_trace.engine.groups import curves_by

    codes, names = group_codes(trace, column)
    curves = curves_by(
        runs,
        codes,
        chunk_tokens=trace.meta.chunk_tokens,
        prompt_tokens=trace.array("prompt_tokens"),
        prompt_chunks=trace.array("prompt_chunks"),
        new_chunks=_new_chunks(trace),
    )
    return {name: curve for name, curve in zip(names, curves, strict=False) if curve.calls}


def group_codes(trace: Trace, column: str) -> tuple[NDArray[np.integer], list[str]]:
    """Return the group of each call, int[calls], and the names of groups; null is "none"."""
    codes, names = trace.codes(column)
    if (codes < 0).any():
        return np.where(codes < 0, len(names), codes), [*names, "none"]
    return codes, names


def trace_next_call_reuse(trace: Trace) -> float | None:
    """Return the share of new chunks that the session's very next call reuses."""
    return next_call_reuse(
        trace.codes("session")[0],
        trace.array("base"),
        trace.array("base_chunks"),
        trace.array("prompt_chunks"),
        trace.array("path_chunks"),
    )


def _new_chunks(trace: Trace) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = np.subtract(
        trace.array("path_chunks"), trace.array("base_chunks"), dtype=np.int64
    )
    return counts
