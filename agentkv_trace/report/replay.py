"""The renderings of `replay`: table, Markdown, JSON, CSV."""

from __future__ import annotations

import csv
import json
import textwrap
from dataclasses import asdict
from io import StringIO
from typing import TYPE_CHECKING, Any

from agentkv_trace.report.units import format_bytes, format_ratio, format_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentkv_trace.report.replay_model import ReplayReport

_DIGITS = 9


def to_json(report: ReplayReport) -> str:
    """Return the report as JSON text with a final newline."""
    plain = asdict(report)
    ordered = {"schema": plain.pop("schema"), **plain}
    return json.dumps(_rounded(ordered), indent=2, ensure_ascii=False) + "\n"


def to_csv(report: ReplayReport) -> str:
    """Return one line per replay, with a header line."""
    out = StringIO()
    columns = list(report.runs[0]) if report.runs else []
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_rounded(list(report.runs)))
    return out.getvalue()


def to_table(report: ReplayReport, width: int = 80) -> str:
    """Return the replays as plain columns, a line each, then findings and assumptions."""
    lines = [line for fact in _facts(report) for line in _wrapped(fact, width)]
    for table in _fitted(_columns(report), width):
        lines += ["", *table]
    said = _findings(report)
    if said:
        lines.append("")
        lines += [line for one in said for line in _wrapped(one, width)]
    lines.append("")
    lines += [line for note in report.notes for line in _wrapped(f"Mind: {note}", width)]
    lines += [line for one in report.assumptions for line in _wrapped(f"- {one}", width)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def to_markdown(report: ReplayReport) -> str:
    """Return the report as Markdown with a final newline."""
    columns = _columns(report)
    head = [title for title, _ in columns]
    body = zip(*(cells for _, cells in columns), strict=True)
    table = [head, ["--:"] * len(head), *map(list, body)]
    parts = [
        "# Replay",
        "\n".join(f"- {fact}" for fact in _facts(report)),
        "\n".join("| " + " | ".join(_escaped(cell) for cell in line) + " |" for line in table),
    ]
    for title, said in (
        ("Found", _findings(report)),
        ("Mind", list(report.notes)),
        ("Assumptions", list(report.assumptions)),
    ):
        if said:
            parts.append(f"## {title}\n\n" + "\n".join(f"- {_escaped(one)}" for one in said))
    return "\n\n".join(parts) + "\n"


def _facts(report: ReplayReport) -> list[str]:
    trace, timeline = report.trace, report.timeline
    sessions = "session" if trace.families == 1 else "sessions"
    lines = [
        f"Trace: {trace.calls:,} calls in {trace.families:,} {sessions}, "
        f"{format_tokens(trace.prompt_tokens)} tokens of prompts",
        f"Model: {report.model}",
        f"Timeline: {timeline['kind']}, {timeline['order']} order, seed {timeline['seed']}",
    ]
    backend = report.options.get("backend_name")
    return [*lines, f"Backend: {backend}"] if backend else lines


def _columns(report: ReplayReport) -> list[tuple[str, list[str]]]:
    """Return the columns that say something: labels that differ, and the figures."""
    runs = report.runs
    shown: list[tuple[str, str, Callable[[Any], str]]] = [
        ("gpu", "GPU", str),
        ("agents", "agents", str),
        ("host_bytes", "host", lambda size: format_bytes(size) if size else "none"),
        ("makespan_s", "makespan", _duration),
        ("calls_per_s", "calls/min", lambda rate: f"{60 * rate:.1f}"),
        ("ttft_s_p50", "TTFT p50", _duration),
        ("ttft_s_p95", "TTFT p95", _duration),
        ("latency_s_p95", "latency p95", _duration),
        ("computed_tokens", "computed", format_tokens),
        ("restored_tokens", "restored", format_tokens),
        ("written_tokens", "written", format_tokens),
        ("gpu_hit_ratio", "GPU hits", format_ratio),
        ("host_hit_ratio", "host hits", format_ratio),
        ("host_evicted_before_reuse", "evicted unused", format_ratio),
        ("gpu_occupancy", "pool", format_ratio),
        ("mean_queue", "queue", lambda number: f"{number:.1f}"),
        ("preemptions", "preempted", str),
        ("rejected", "rejected", str),
    ]
    columns = []
    for key, title, form in shown:
        values = [run.get(key) for run in runs]
        if key in ("restored_tokens", "written_tokens", "preemptions", "rejected") and not any(
            values
        ):
            continue
        if all(value is None for value in values):
            continue
        columns.append((title, ["-" if value is None else form(value) for value in values]))
    return columns


def _findings(report: ReplayReport) -> list[str]:
    said = []
    for onset in report.onsets:
        host = f", host {format_bytes(onset.host_bytes)}" if onset.host_bytes else ", GPU alone"
        said.append(f"{onset.gpu}{host}: {onset.words}")
    for cap in report.caps:
        host = f", host {format_bytes(cap.host_bytes)}" if cap.host_bytes else ", GPU alone"
        said.append(
            f"{cap.gpu}{host}: fastest with {cap.agents} sessions at a time, "
            f"{_duration(cap.makespan_s)} instead of {_duration(cap.without_s)}"
        )
    return said


def _fitted(columns: Sequence[tuple[str, list[str]]], width: int) -> list[list[str]]:
    """Return tables that fit; further ones repeat the first three columns."""
    keys, tables = list(columns[:3]), []
    current = list(keys)
    for column in columns[3:]:
        if len(current) > len(keys) and _width([*current, column]) > width:
            tables.append(current)
            current = list(keys)
        current.append(column)
    tables.append(current)
    return [_lines(table) for table in tables]


def _width(columns: Sequence[tuple[str, list[str]]]) -> int:
    return sum(_column_width(column) for column in columns) + 2 * (len(columns) - 1)


def _column_width(column: tuple[str, list[str]]) -> int:
    return max(len(cell) for cell in (column[0], *column[1]))


def _lines(columns: Sequence[tuple[str, list[str]]]) -> list[str]:
    widths = [_column_width(column) for column in columns]
    lines = [[title for title, _ in columns]]
    lines += [list(cells) for cells in zip(*(cells for _, cells in columns), strict=True)]
    return [
        "  ".join(cell.rjust(size) for cell, size in zip(line, widths, strict=True))
        for line in lines
    ]


def _duration(seconds: float) -> str:
    """Return seconds such as `340 ms`, `12.3 s`, `8.4 min` or `3.2 h`."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")


def _rounded(value: Any) -> Any:
    """Return the value with floats cut to the digits that mean something."""
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return value
