"""The figures of a report, from its result alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.report.charts.axis import Axis, log_axis
from agentkv_trace.report.charts.figure import Figure, Lane, Mark, Series
from agentkv_trace.report.units import format_bytes, format_ratio, format_seconds, format_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.report.detail_model import Detail, GpuOverTime, Timeline
    from agentkv_trace.report.model import GpuFinding, OnsetFacts, Report

_FLAT = 0.99
SHARE = Axis("", 0.0, 1.0, lambda value: f"{100 * value:.0f}%")


def figures(report: Report) -> list[Figure]:
    """Return the charts of a report with detail, in the order of the page."""
    detail = report.detail
    if detail is None:
        return []
    found = [curve(report, detail), context(report, detail), hits_over_time(report, detail)]
    if any(finding.onsets for finding in report.gpus):
        found.append(agents(report))
    return [*found, distances(detail)]


def curve(report: Report, detail: Detail) -> Figure:
    """Return the miss-ratio curve with each GPU's pool and the tier to buy."""
    per_token = report.model.kv_bytes_per_token_all_ranks
    places: dict[int, list[str]] = {}
    for finding in report.gpus:
        if finding.pool:
            places.setdefault(finding.pool.tokens * report.options.dp, []).append(
                f"{finding.name} pool"
            )
        if finding.judged:
            size = format_bytes(finding.judged.total_bytes)
            places.setdefault(finding.judged.holds_tokens, []).append(f"{size} host")
    # The same tier of two GPUs is named once.
    marks = [
        Mark(", ".join(dict.fromkeys(names)), tokens) for tokens, names in places.items() if tokens
    ]
    points = [point for point in detail.curve if point.capacity_tokens > 0]
    # The axis begins where the curve begins to fall.
    flat = [n for n, point in enumerate(points) if point.miss_ratio > _FLAT]
    points = points[max(len(flat) - 1, 0) :]
    values = [*(point.capacity_tokens for point in points), *(mark.value for mark in marks)]
    x = log_axis("cache capacity (tokens)", values, under=lambda v: format_bytes(v * per_token))
    # Nothing more hits beyond the last point.
    ends = (x.high,) if points and points[-1].capacity_tokens < x.high else ()
    lasts = (points[-1].miss_ratio,) if ends else ()
    return Figure(
        key="curve",
        title="Miss ratio by cache capacity",
        words="How many references to chunks of prompts miss in an LRU cache of each capacity.",
        x=x,
        y=SHARE,
        series=(
            Series(
                "miss ratio",
                tuple(float(point.capacity_tokens) for point in points) + ends,
                tuple(point.miss_ratio for point in points) + lasts,
            ),
        ),
        marks=tuple(marks),
        head=("Capacity", f"Memory ({report.model.name})", "Miss ratio", "Prefix hits"),
        rows=tuple(
            (
                f"{format_tokens(point.capacity_tokens)} tokens",
                format_bytes(point.capacity_bytes),
                f"{point.miss_ratio:.2%}",
                f"{point.prefix_hit_ratio:.2%}",
            )
            for point in points
        ),
        empty="No call repeats what an earlier one had",
    )


def context(report: Report, detail: Detail) -> Figure:
    """Return live context and working set over time with the capacities and what thrashes."""
    line = detail.timeline
    levels: dict[int, list[str]] = {}
    for found, finding in _pairs(report, line):
        levels.setdefault(found.pool_tokens, []).append(f"{finding.name} pool")
        if found.host_tokens:
            levels.setdefault(found.host_tokens, []).append(
                f"{format_bytes(found.host_bytes)} host"
            )
    marks = tuple(
        Mark(", ".join(dict.fromkeys(names)), tokens, level=True)
        for tokens, names in sorted(levels.items())
    )
    times = _times(line)
    live = tuple(float(value) or None for value in line.live_tokens)
    working = tuple(None if value is None else float(value) for value in line.working_set_tokens)
    values = [value for value in (*live, *working) if value] + [mark.value for mark in marks]
    return Figure(
        key="context",
        title="Live context and working set over time",
        words="Tokens of context that sessions hold, and the cache that their reuse needs, beside "
        "the capacities; strips show where the tiers of a GPU thrash.",
        x=_clock(line),
        y=log_axis("tokens", values),
        series=(
            _steps("live context", line, live),
            _steps("working set", line, working),
        ),
        marks=marks,
        lanes=tuple(
            Lane(
                f"{_tiers(found, finding)}: {_thrashing(found.thrashes)}",
                _stretches(found.thrashes, line),
            )
            for found, finding in _pairs(report, line)
        ),
        head=(
            "From",
            "Live context",
            "Sessions",
            "Working set",
            "Prompt tokens",
            *(f"{_tiers(found, finding)} thrashes" for found, finding in _pairs(report, line)),
        ),
        rows=tuple(
            (
                _clock(line).form(at),
                format_tokens(line.live_tokens[n]),
                f"{line.agents[n]:,}",
                _tokens(line.working_set_tokens[n]),
                format_tokens(line.prompt_tokens[n]),
                *("yes" if found.thrashes[n] else "no" for found, _ in _pairs(report, line)),
            )
            for n, at in enumerate(times)
        ),
        empty="No calls",
    )


def hits_over_time(report: Report, detail: Detail) -> Figure:
    """Return the hit ratio over time on each GPU with its judged tier."""
    line = detail.timeline
    pairs = _pairs(report, line)
    return Figure(
        key="hits",
        title="Hits over time",
        words="Share of prompt tokens found on the GPU or its host tier, by bucket of time.",
        x=_clock(line),
        y=SHARE,
        series=tuple(
            _steps(_tiers(found, finding), line, found.hit_ratio) for found, finding in pairs
        ),
        head=("From", *(_tiers(found, finding) for found, finding in pairs)),
        rows=tuple(
            (_clock(line).form(at), *(_share(found.hit_ratio[n]) for found, _ in pairs))
            for n, at in enumerate(_times(line))
        ),
        empty="No calls",
    )


def agents(report: Report) -> Figure:
    """Return the hit ratio by number of agents, replayed, with the onset of thrashing."""
    series: list[Series] = []
    marks: dict[int, list[str]] = {}
    rows: list[tuple[str, ...]] = []
    most = 1
    for finding in report.gpus:
        for onset in finding.onsets:
            name = _tiers(onset, finding)
            most = max(most, onset.max_agents)
            series.append(
                Series(
                    name,
                    tuple(float(point.agents) for point in onset.points),
                    tuple(point.hit_ratio for point in onset.points),
                )
            )
            if onset.agents is not None:
                marks.setdefault(onset.agents, []).append(name)
            for point in onset.points:
                times = point.computed_tokens / max(onset.compulsory_tokens, 1)
                thrashes = "yes" if times > onset.factor else "no"
                rows.append(
                    (
                        name,
                        f"{point.agents}",
                        format_ratio(point.gpu_hit_ratio),
                        format_ratio(point.hit_ratio),
                        f"{times:.2f}",
                        thrashes,
                    )
                )
    return Figure(
        key="agents",
        title="Hits by number of agents",
        words="Share of prompt tokens that hit when so many agents at a time serve the same "
        "sessions, replayed; a mark stands where prefill is twice what is needed.",
        x=Axis("agents", 1, max(most, 2), lambda value: f"{value:.0f}", log=True),
        y=SHARE,
        series=tuple(series),
        marks=tuple(
            Mark(f"prefill doubles: {', '.join(names)}", number) for number, names in marks.items()
        ),
        head=("Tiers", "Agents", "GPU hits", "All hits", "Prefill / needed", "Thrashes"),
        rows=tuple(rows),
    )


def distances(detail: Detail) -> Figure:
    """Return the distribution of stack distances."""
    bins = detail.distances
    x = log_axis("stack distance (tokens)", [edge for each in bins for edge in
                                             (each.above_tokens, each.to_tokens)])  # fmt: skip
    highest = max((each.share for each in bins), default=0.0)
    y = Axis("", 0.0, max(highest * 1.1, 0.01), lambda value: f"{100 * value:.0f}%")
    cold = format_ratio(detail.cold_share)
    return Figure(
        key="distances",
        title="How far back reuse lies",
        words="Share of references to chunks by stack distance, the distinct tokens touched since "
        f"the last touch. Beside them {cold} are cold: never touched before.",
        x=x,
        y=y,
        series=(
            Series(
                "references",
                tuple(float(each.to_tokens) for each in bins),
                tuple(each.share for each in bins),
                "bars",
            ),
        ),
        head=("Above", "Up to", "Share of references"),
        rows=(
            *(
                (
                    f"{format_tokens(each.above_tokens)} tokens",
                    f"{format_tokens(each.to_tokens)} tokens",
                    f"{each.share:.2%}",
                )
                for each in bins
            ),
            ("never touched before", "", f"{detail.cold_share:.2%}"),
        ),
        empty="No call repeats what an earlier one had",
    )


def _pairs(report: Report, line: Timeline) -> Sequence[tuple[GpuOverTime, GpuFinding]]:
    found = {finding.gpu: finding for finding in report.gpus}
    return [(each, found[each.gpu]) for each in line.gpus]


def _steps(name: str, line: Timeline, values: tuple[float | None, ...]) -> Series:
    """Return a step line over the buckets, the last one's whole length included."""
    return Series(name, (*_times(line), line.end_s), (*values, *values[-1:]), "step")


def _times(line: Timeline) -> tuple[float, ...]:
    count = len(line.live_tokens)
    return tuple(line.end_s * n / count for n in range(count))


def _clock(line: Timeline) -> Axis:
    if line.by == "call":
        return Axis("calls", 0.0, max(line.end_s, 1.0), lambda value: f"{value:,.0f}")
    label = "time since the first call"
    if line.longest_pause_s:
        label += f", pauses cut to {format_seconds(line.longest_pause_s)}"
    return Axis(label, 0.0, max(line.end_s, 1e-3), _moment, time=True)


def _moment(seconds: float) -> str:
    """Return a time since the start such as `40 s`, `1:30 min`, `2:05 h` or `3 d 4 h`."""
    whole = round(seconds)
    if seconds < 10 and whole != seconds:
        return f"{seconds:.3g} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    if whole < 86_400:
        return f"{whole // 3600}:{whole % 3600 // 60:02} h"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def _stretches(flags: Sequence[bool], line: Timeline) -> tuple[tuple[float, float], ...]:
    width = line.end_s / max(len(flags), 1)
    found: list[tuple[float, float]] = []
    for n, flag in enumerate(flags):
        if flag and found and abs(found[-1][1] - n * width) < width / 2:
            found[-1] = found[-1][0], (n + 1) * width
        elif flag:
            found.append((n * width, (n + 1) * width))
    return tuple(found)


def _thrashing(flags: Sequence[bool]) -> str:
    share = sum(flags) / max(len(flags), 1)
    return f"thrashes {share:.0%} of the time" if any(flags) else "no thrashing"


def _tiers(found: GpuOverTime | OnsetFacts, finding: GpuFinding) -> str:
    if not found.host_bytes:
        return f"{finding.name} alone"
    return f"{finding.name} + {format_bytes(found.host_bytes)} host"


def _share(value: float | None) -> str:
    return "-" if value is None else format_ratio(value)


def _tokens(value: int | None) -> str:
    return "-" if value is None else format_tokens(value)
