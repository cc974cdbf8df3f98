"""The trace over time in a few lines of text."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from agentkv_trace.report.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.report.model import Report

_BLOCKS, _SIGNS = "▁▂▃▄▅▆▇█", ".:-=+*#@"
T = TypeVar("T")
_MOST = 100
"""Columns of a line at most; wider ones are no easier to read."""


def sparkline(values: Sequence[float | None], width: int, *, unicode: bool) -> str:
    """Return values from 0 up as one sign each, the largest as the highest; None as a blank.

    More values than `width` are drawn together, the largest of each group.
    """
    levels = _BLOCKS if unicode else _SIGNS
    groups = _grouped(values, width)
    known = [[value for value in group if value is not None] for group in groups]
    top = max((value for group in known for value in group), default=0.0)
    signs = []
    for group in known:
        level = max(group) / top if group and top else 0.0
        signs.append(levels[min(int(level * len(levels)), len(levels) - 1)] if group else " ")
    return "".join(signs)


def over_time(report: Report, width: int, *, unicode: bool) -> list[str]:
    """Return live context, working set and what thrashes over time, one line each."""
    if report.detail is None or len(report.detail.timeline.live_tokens) < 2:
        return []
    line = report.detail.timeline
    shown = [("Live context", line.live_tokens), ("Working set", line.working_set_tokens)]
    lines = []
    peaks = [f"up to {format_tokens(max(v or 0 for v in values))}" for _, values in shown]
    names = {finding.gpu: finding.name for finding in report.gpus}
    lanes = [
        (f"{names[each.gpu]} {_tier(each.host_bytes)}", each.thrashes)
        for each in line.gpus
        if any(each.thrashes)
    ]
    label = max(len(name) for name, _ in (*shown, *lanes))
    room = min(width - label - 4 - max(map(len, peaks)), _MOST)
    if room < 8:
        return []
    for (name, values), peak in zip(shown, peaks, strict=True):
        drawn = sparkline(values, room, unicode=unicode)
        lines.append(f"{name:<{label}}  {drawn}  {peak}")
    for name, flags in lanes:
        marks = "".join("!" if any(group) else "." for group in _grouped(flags, room))
        lines.append(f"{name:<{label}}  {marks}  ! thrashes")
    unit = "time" if line.by == "time" else "order of calls"
    return [f"Tokens over {unit}", *(each[:width].rstrip() for each in lines)]


def _tier(host_bytes: int) -> str:
    return f"+ {format_bytes(host_bytes)}" if host_bytes else "alone"


def _grouped(values: Sequence[T], width: int) -> list[Sequence[T]]:
    count = min(len(values), width)
    edges = [n * len(values) // count for n in range(count + 1)] if count else []
    return [values[low:high] for low, high in pairwise(edges)]
