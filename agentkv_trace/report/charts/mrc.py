"""The miss-ratio curve of `mrc` as a figure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentkv_trace.report.charts.axis import log_axis
from agentkv_trace.report.charts.figure import Figure, Mark, Series
from agentkv_trace.report.charts.figures import SHARE
from agentkv_trace.report.charts.svg import COLOURS, WIDE, draw
from agentkv_trace.report.mrc import REPLAYED
from agentkv_trace.report.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.report.mrc import MrcResult


def to_svg(result: MrcResult, marks: Sequence[Mark] = ()) -> str:
    """Return the curve, or the largest groups' curves, as an SVG file; marks are in tokens."""
    return draw(curve_figure(result, marks), WIDE, alone=True) + "\n"


def curve_figure(result: MrcResult, marks: Sequence[Mark] = ()) -> Figure:
    """Return the figure: one series, with the band of its sampling error, or one per group.

    At most as many groups as there are colours, those with most prompt tokens. The curve goes
    through every mark, unless its engine knows some capacities only.
    """
    curve = result.curve
    if marks and curve.engine not in REPLAYED:
        asked = (int(mark.value) // curve.chunk_tokens for mark in marks)
        result = replace(result, capacities=tuple(sorted({*result.capacities, *asked})))
    series = [_series("all calls", result.points(), curve.sampling)]
    if result.groups:
        largest = sorted(result.groups.items(), key=lambda each: -each[1].prompt_tokens)
        series = [_series(name, result.points(group), None) for name, group in largest[:COLOURS]]
    values = [x for each in series for x in each.x] + [mark.value for mark in marks]
    size = result.bytes_per_token
    return Figure(
        key="mrc",
        title="Miss ratio by cache capacity",
        words=f"{curve.calls:,} calls, {curve.references:,} references to chunks of "
        f"{curve.chunk_tokens} tokens; engine {curve.engine}, {curve.order}.",
        x=log_axis(
            "cache capacity (tokens)",
            values,
            under=None if size is None else lambda value: format_bytes(value * size),
        ),
        y=SHARE,
        series=tuple(series),
        marks=tuple(marks),
        empty="No call repeats what an earlier one had",
    )


def _series(name: str, points: Sequence[dict[str, Any]], sampling: dict[str, Any] | None) -> Series:
    shown = [point for point in points if point["capacity_tokens"] > 0]
    misses = [point["miss_ratio"] for point in shown]
    band = []
    if sampling:
        error = sampling["error_bound"]
        band = [(max(miss - error, 0.0), min(miss + error, 1.0)) for miss in misses]
    return Series(
        "".join(each if each.isprintable() else "?" for each in name),
        tuple(float(point["capacity_tokens"]) for point in shown),
        tuple(misses),
        band=tuple(band),
    )
