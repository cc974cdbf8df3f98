"""The figures of replays as columns: a row per replay, or a row per figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentkv_trace.report.rows import Column
from agentkv_trace.report.units import format_bytes, format_ratio, format_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentkv_trace.report.replay_model import ReplayReport

MOST_ACROSS = 4
"""Up to so many replays stand side by side, a row per figure; more get a row each."""

MOMENTS = 20
"""Rows of a table over time."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a replay: its key, words, form and rank; `where` is the field it needs.

    A figure that needs a field is left out where that is zero in all replays.
    """

    key: str
    title: str
    form: Callable[[Any], str]
    rank: int = 3
    where: str | None = None


def duration(seconds: float) -> str:
    """Return seconds such as `340 ms`, `12.3 s`, `8.4 min` or `3.2 h`."""
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _one_decimal(number: float) -> str:
    return f"{number:.1f}"


def _rate(number: float) -> str:
    return f"{number:.2g}" if number < 10 else format_tokens(round(number))


def _spread(key: str, title: str, ranks: tuple[int, int, int, int]) -> tuple[Figure, ...]:
    parts = zip(("mean", "p50", "p95", "p99"), ranks, strict=True)
    return tuple(Figure(f"{key}_{part}", f"{title} {part}", duration, rank) for part, rank in parts)


FIGURES = (
    Figure("makespan_s", "makespan", duration, 0),
    Figure("calls_per_s", "calls/min", lambda rate: _rate(60 * rate), 1),
    Figure("prompt_tokens_per_s", "prompt tok/s", _rate, 4),
    Figure("output_tokens_per_s", "output tok/s", _rate, 4),
    *_spread("ttft_s", "TTFT", (4, 2, 0, 4)),
    *_spread("latency_s", "latency", (4, 3, 1, 4)),
    Figure("queued_s_p95", "queued p95", duration, 4),
    Figure("computed_tokens", "computed", format_tokens, 0),
    Figure("recomputed_tokens", "computed again", format_tokens, 3, "recomputed_tokens"),
    Figure("restored_tokens", "restored", format_tokens, 2, "host_bytes"),
    Figure("written_tokens", "written", format_tokens, 2, "host_bytes"),
    Figure("gpu_hit_ratio", "GPU hits", format_ratio, 0),
    Figure("host_hit_ratio", "host hits", format_ratio, 0, "host_bytes"),
    Figure("gpu_evicted_before_reuse", "GPU evicted unused", format_ratio, 3),
    Figure("host_evicted_before_reuse", "host evicted unused", format_ratio, 1, "host_bytes"),
    Figure("gpu_occupancy", "pool filled", format_ratio, 3),
    Figure("gpu_held", "pool held", format_ratio, 3),
    Figure("mean_live_tokens", "live context", lambda tokens: format_tokens(round(tokens)), 4),
    Figure("mean_running", "running", _one_decimal, 4),
    Figure("mean_queue", "queue", _one_decimal, 3),
    Figure("preemptions", "preempted", lambda number: f"{number:,}", 2, "preemptions"),
    Figure("rejected", "rejected", lambda number: f"{number:,}", 0, "rejected"),
    Figure("calls", "calls", lambda number: f"{number:,}", 4),
)

_OVER_TIME: tuple[tuple[str, str], ...] = (
    ("running", "running"),
    ("queue", "queue"),
    ("live_tokens", "live context"),
    ("held_chunks", "pool held"),
    ("resident_chunks", "pool filled"),
    ("host_chunks", "host filled"),
)


def labels(report: ReplayReport) -> list[Column]:
    """Return what tells the replays apart, a row each: at least one column."""
    runs = report.runs
    columns = []
    if len(report.gpus) > 1 or len(runs) == 1:
        columns.append(Column("GPU", tuple(report.gpus[run["gpu"]] for run in runs), numeric=False))
    if any(run["agents"] is not None for run in runs):
        columns.append(Column("agents", tuple(str(run["agents"]) for run in runs)))
    if any(run["host_bytes"] for run in runs) or not columns:
        columns.append(Column("host", tuple(host_size(run["host_bytes"]) for run in runs)))
    return columns


def host_size(size: int) -> str:
    """Return the words for a size of host tier."""
    return format_bytes(size) if size else "none"


def by_run(report: ReplayReport) -> list[Column]:
    """Return the replays as rows: labels, then figures."""
    columns = labels(report)
    for figure in _shown(report):
        cells = tuple(_cell(figure, run) for run in report.runs)
        columns.append(Column(figure.title, cells, figure.rank))
    return columns


def by_figure(report: ReplayReport) -> list[Column]:
    """Return the figures as rows: labels, then all figures, a column per replay."""
    head, figures = labels(report), [*_shown(report), *_zero(report)]
    titles = (*(column.title for column in head[1:]), *(figure.title for figure in figures))
    columns = [Column(head[0].title, titles, numeric=False)]
    for number, run in enumerate(report.runs):
        said = [column.cells[number] for column in head]
        cells = (*said[1:], *(_cell(figure, run) for figure in figures))
        columns.append(Column(said[0], cells))
    return columns


def over_time(report: ReplayReport, number: int) -> list[Column]:
    """Return one replay's samples over time, evenly spaced, hits between one row and the next."""
    series, run = report.series[number], report.runs[number]
    times = series["time_s"]
    if not times:
        return []
    picked = _picked(times)
    columns = [Column("time", tuple(duration(times[at]) for at in picked))]
    sizes = {
        "held_chunks": run["pool_tokens"] * run["replicas"],
        "resident_chunks": run["pool_tokens"] * run["replicas"],
        "host_chunks": run["host_tokens"] * run["replicas"],
    }
    chunk = {"host_chunks": report.options["host_chunk_tokens"]}
    for key, title in _OVER_TIME:
        values = [series[key][at] for at in picked]
        if key in sizes:
            if not sizes[key]:
                continue
            tokens = chunk.get(key, report.trace.chunk_tokens)
            cells = [format_ratio(value * tokens / sizes[key]) for value in values]
        elif key == "live_tokens":
            cells = [format_tokens(round(value)) for value in values]
        else:
            cells = [f"{value:.0f}" for value in values]
        columns.append(Column(title, tuple(cells)))
    for key, title in (("gpu_tokens", "GPU hits"), ("restored_tokens", "host hits")):
        if key == "gpu_tokens" or run["host_bytes"]:
            columns.append(Column(title, _between(series, key, picked)))
    return columns


def _picked(times: Sequence[float]) -> list[int]:
    """Return the last sample up to each of some evenly spaced moments."""
    picked: list[int] = []
    at = 0
    for moment in range(1, MOMENTS + 1):
        until = times[0] + (times[-1] - times[0]) * moment / MOMENTS
        while at + 1 < len(times) and (times[at + 1] <= until or moment == MOMENTS):
            at += 1
        if not picked or picked[-1] != at:
            picked.append(at)
    return picked


def _between(series: dict[str, list[float]], key: str, picked: Sequence[int]) -> tuple[str, ...]:
    """Return the hit ratio of the calls taken up between one row and the next."""
    cells, hits, prompts = [], 0.0, 0.0
    for at in picked:
        more, total = series[key][at] - hits, series["prompt_tokens"][at] - prompts
        cells.append(format_ratio(more / total) if total > 0 else "-")
        hits, prompts = series[key][at], series["prompt_tokens"][at]
    return tuple(cells)


def _shown(report: ReplayReport) -> list[Figure]:
    return [
        figure
        for figure in FIGURES
        if figure.where is None or any(run[figure.where] for run in report.runs)
    ]


def _zero(report: ReplayReport) -> list[Figure]:
    """Return what is worth saying also where it did not happen."""
    shown = _shown(report)
    return [
        figure
        for figure in FIGURES
        if figure.key in ("preemptions", "rejected") and figure not in shown
    ]


def _cell(figure: Figure, run: dict[str, Any]) -> str:
    value = run[figure.key]
    return "-" if value is None else figure.form(value)
