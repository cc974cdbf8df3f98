"""From a trace and the report's cases to what the page shows beside the advice."""

# ruff: noqa: TID253
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agentkv_trace.report import detail_model as model
from agentkv_trace.report.timeline import timeline
from agentkv_trace.report.units import format_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from agentkv_trace.engine.curve import MissRatioCurve
    from agentkv_trace.engine.path_stack import Runs
    from agentkv_trace.report.case import Case
    from agentkv_trace.trace.store import Trace


def build_detail(
    trace: Trace,
    runs: Runs,
    curve: MissRatioCurve,
    cases: Sequence[tuple[Case, int]],
    *,
    recover: float,
    bytes_per_token: int,
    timed: bool,
) -> model.Detail:
    """Return the detail of a report.

    `runs` and `curve` are the path engine's of the trace; each case comes with a size of its host
    tier (bytes over all ranks); the first one's GPU alone gives `gpu_hit_ratio`.
    """
    distances, cold = _distances(curve)
    alone = cases[0][0].alone.gpu if cases else None
    return model.Detail(
        curve=_curve(curve, bytes_per_token),
        distances=distances,
        cold_share=cold,
        timeline=timeline(trace, runs, cases, recover, timed=timed),
        sessions=_groups(trace, "session", alone),
        models=_groups(trace, "model", alone),
        sources=_groups(trace, "source", alone),
        broken=_broken(trace),
        methods=_methods(recover),
    )


def _curve(curve: MissRatioCurve, bytes_per_token: int) -> tuple[model.CurvePoint, ...]:
    capacities = curve.points(model.POINTS)
    miss, hit = curve.miss_ratio(capacities), curve.prefix_hit_ratio(capacities)
    return tuple(
        model.CurvePoint(
            capacity_tokens=tokens,
            capacity_bytes=tokens * bytes_per_token,
            miss_ratio=m,
            prefix_hit_ratio=h,
        )
        for tokens, m, h in zip(
            (capacities * curve.chunk_tokens).tolist(), miss.tolist(), hit.tolist(), strict=True
        )
    )


def _distances(curve: MissRatioCurve) -> tuple[tuple[model.DistanceBin, ...], float]:
    """Return the distribution of stack distances in powers of two, and the share of cold ones."""
    if not curve.references:
        return (), 0.0
    last = int(curve.points()[-1]) if len(curve.points()) else 0
    edges = [0]
    while edges[-1] < last:
        edges.append(max(2 * edges[-1], 1))
    hits = 1 - np.asarray(curve.miss_ratio(np.array(edges)))
    chunk = curve.chunk_tokens
    bins = [
        model.DistanceBin(above_tokens=low * chunk, to_tokens=high * chunk, share=float(share))
        for low, high, share in zip(edges[:-1], edges[1:], np.diff(hits), strict=True)
    ]
    while bins and bins[0].share == 0:
        bins.pop(0)
    return tuple(bins), curve.cold_references / curve.references


def _groups(trace: Trace, column: str, alone: NDArray[np.int64] | None) -> model.Groups:
    from agentkv_trace.engine.mrc import group_codes

    if not len(trace):
        return model.Groups(total=0, rows=(), others=None)
    codes, names = group_codes(trace, column)
    chunk = trace.meta.chunk_tokens
    kinds, words = trace.codes("kind")
    shared = np.minimum(trace.array("base_chunks"), trace.array("prompt_chunks"))
    columns = {
        "calls": np.ones(codes.size),
        "prompt": trace.array("prompt_tokens"),
        "output": np.maximum(trace.array("output_tokens"), 0),
        "reused": shared.astype(np.int64) * chunk,
        "gpu": np.zeros(codes.size) if alone is None else alone,
        "folds": kinds == words.index("fold") if "fold" in words else np.zeros(codes.size),
    }
    sums = {
        key: np.bincount(codes, values, len(names)).astype(np.int64)
        for key, values in columns.items()
    }
    order = np.lexsort((np.arange(len(names)), -sums["prompt"]))
    order = order[sums["calls"][order] > 0]
    first = np.zeros(len(names), np.int64)
    first[codes[::-1]] = np.arange(codes.size)[::-1]
    told = {
        name: trace.codes(name) if column == "session" else None
        for name in ("agent", "model", "kind")
    }

    def row(at: int) -> model.GroupRow:
        call = first[at]
        return _row(
            names[at],
            {key: int(values[at]) for key, values in sums.items()},
            {name: _word(codes, call) for name, codes in told.items()},
            known=alone is not None,
        )

    rest = order[model.ROWS :]
    others = None
    if rest.size:
        summed = {key: int(values[rest].sum()) for key, values in sums.items()}
        nobody = dict.fromkeys(told)
        others = _row(f"{rest.size:,} others", summed, nobody, known=alone is not None)
    return model.Groups(
        total=int(order.size),
        rows=tuple(row(int(at)) for at in order[: model.ROWS]),
        others=others,
    )


def _word(column: tuple[NDArray[np.int32], list[str]] | None, call: int) -> str | None:
    if column is None:
        return None
    codes, words = column
    return words[codes[call]] if codes[call] >= 0 else None


def _row(
    name: str, sums: dict[str, int], told: dict[str, str | None], *, known: bool
) -> model.GroupRow:
    prompt = max(sums["prompt"], 1)
    return model.GroupRow(
        name=name,
        agent=told["agent"],
        model=told["model"],
        kind=told["kind"],
        calls=sums["calls"],
        prompt_tokens=sums["prompt"],
        output_tokens=sums["output"],
        hit_ratio=sums["reused"] / prompt,
        gpu_hit_ratio=sums["gpu"] / prompt if known else None,
        folds=sums["folds"],
    )


def _broken(trace: Trace) -> tuple[model.BrokenPrefix, ...]:
    from agentkv_trace.advise.break_causes import mark_patterns, top_causes
    from agentkv_trace.advise.break_words import CAUSES
    from agentkv_trace.advise.breaks import find_breaks
    from agentkv_trace.report.breaks.build import words_of

    breaks = find_breaks(trace)
    mark_patterns(trace, breaks)
    total = int(trace.array("prompt_tokens").sum(dtype=np.int64))
    return tuple(
        model.BrokenPrefix(
            cause=words_of(found.kind, found.cause),
            fix=CAUSES[found.cause].fix if found.cause else None,
            calls=len(found.members),
            sessions=found.sessions,
            lost_tokens=found.lost_tokens,
            lost_share=found.lost_tokens / total if total else 0.0,
        )
        for found in top_causes(trace, breaks)
    )


def _methods(recover: float) -> tuple[str, ...]:
    return (
        "Miss ratio: missed of all references to full chunks of prompts, by exact stack distances "
        "(Mattson 1970) of whole calls, tail touched first.",
        "Live context: the last prompt of every session between its first call's start and its "
        "last call's end; the most in each bucket.",
        "Working set of a bucket: the smallest LRU cache with "
        f"{format_ratio(recover)} of the hits that its calls can have.",
        "Hit ratio over time: of the calls that start in a bucket, on the GPU's pool and the "
        "judged host tier together.",
        "Thrashing over time: buckets whose working set is above both capacities and where more "
        "than twice the compulsory prefill is computed; written tokens go to the host tier.",
        "Reuse of a session, model or source: the share of its prompt tokens that an earlier call "
        "of the trace had processed; lost where the GPU alone hits less.",
        "Broken prefixes: calls whose prompt leaves their session's last path early; lost is what "
        "of that path was not reused.",
    )
