"""A report for the terminal: plain words first, then all GPUs side by side."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from agentkv_trace.report import columns, explain, rows
from agentkv_trace.report.sparkline import over_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.report.model import Report
    from agentkv_trace.report.rows import Column

MIN_WIDTH = 40
"""Narrower terminals get lines of this width."""

_STYLES = {
    "pays": "bold green",
    "neutral": "bold",
    "costs": "bold red",
    "depends": "bold yellow",
    "does_not_fit": "bold red",
}


def render(
    report: Report,
    *,
    width: int = 80,
    color: bool = False,
    explained: bool = False,
    unicode: bool = False,
) -> str:
    """Return the report as text for a terminal of `width` columns, with a final newline.

    Wider terminals get more columns of the tables; `color` adds ANSI styles, never the only
    carrier of a meaning; `explained` adds the arithmetic for one GPU. Without `unicode` all is
    ASCII.
    """
    width = max(width, MIN_WIDTH)
    lines: list[Text] = []
    for finding in report.gpus:
        name = finding.summary.partition(":")[0]
        said = _wrapped(finding.summary, width)
        said[0].stylize(_STYLES[finding.verdict], 0, len(name) + 1)
        lines += said
    lines.append(Text())
    for label, text in rows.facts(report):
        lines += _wrapped(f"{label}: {text}", width)
    for table in columns.fitted(rows.gpu_columns(report), width):
        lines += [Text(), *_table(table, width)]
    deep = rows.in_depth(report)
    if deep:
        lines += _titled(
            f"{deep.name} by size of host memory (* judged)",
            rows.depth_columns(report, deep),
            width,
        )
    sizes = rows.size_columns(report)
    if sizes:
        lines += _titled("Hits by size of host memory (* judged)", sizes, width)
    drawn = over_time(report, width, unicode=unicode)
    if drawn:
        lines += [Text(), *map(Text, drawn)]
    lines.append(Text())
    for warning in rows.pressure(report):
        lines += _wrapped(f"Thrash: {warning}", width)
    for onset in rows.onsets(report):
        lines += _wrapped(f"Prefill doubles: {onset}", width)
    for setting in rows.settings(report):
        lines += _wrapped(f"Set: {setting}", width)
    for note in rows.notes(report):
        lines += _wrapped(f"Mind: {note}", width)
    if explained:
        lines += [Text(), *_explained(report, width), Text()]
    for assumption in report.assumptions:
        lines += _wrapped(f"- {assumption}", width, "dim")
    return _styled(lines, color)


def _titled(title: str, shown: Sequence[Column], width: int) -> list[Text]:
    lines = [Text(), *_wrapped(title, width)]
    for number, table in enumerate(columns.fitted(shown, width)):
        lines += [*([Text()] if number else []), *_table(table, width)]
    return lines


def _explained(report: Report, width: int) -> list[Text]:
    lines: list[Text] = []
    for title, steps in explain.arithmetic(report):
        lines += _wrapped(title, width, "bold")
        for step in steps:
            lines += [Text("  ") + line for line in _wrapped(step, width - 2)]
    return lines


def _styled(lines: Sequence[Text], color: bool) -> str:
    out = StringIO()
    console = Console(
        file=out,
        # Lines are already broken; a console as wide as the longest leaves them so.
        width=max(line.cell_len for line in lines) + 1,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
        markup=False,
        highlight=False,
        emoji=False,
    )
    for line in lines:
        line.rstrip()
        console.print(line)
    return out.getvalue()


def _wrapped(text: str, width: int, style: str = "") -> list[Text]:
    return [Text(line, style) for line in columns.wrapped(text, width)]


def _table(shown: Sequence[Column], width: int) -> list[Text]:
    head, body = columns.set_lines(shown, width)
    return [Text(line, "bold") for line in head] + [Text(line) for line in body]
