"""A report as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.report import explain, rows
from agentkv_trace.report.rows import Column
from agentkv_trace.report.sparkline import over_time
from agentkv_trace.report.units import format_ratio, format_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agentkv_trace.report.detail_model import Groups
    from agentkv_trace.report.model import Report


_WIDTH = 100
"""Of lines of code in a comment on a pull request."""

_SESSIONS = 10
"""Sessions in the table; the page and JSON have more."""
_NAME = 60
"""Characters of a session's name at most."""


def render(report: Report, *, explained: bool = False) -> str:
    """Return the report as Markdown text with a final newline, with its arithmetic if wanted."""
    parts = [
        "# Host memory for the KV cache",
        _list(f"**{finding.summary}**" for finding in report.gpus),
        _list(f"{label}: {text}" for label, text in rows.facts(report)),
        _table(rows.gpu_columns(report)),
    ]
    deep = rows.in_depth(report)
    if deep:
        columns = rows.depth_columns(report, deep)
        parts += [f"## {deep.name} by size of host memory (* judged)", _table(columns)]
    sizes = rows.size_columns(report)
    if sizes:
        parts += ["## Hits by size of host memory (* judged)", _table(sizes)]
    drawn = over_time(report, _WIDTH, unicode=True)
    if drawn:
        parts += [f"## {drawn[0]}", "\n".join(["```", *drawn[1:], "```"])]
    if report.detail and report.detail.sessions.rows:
        parts += ["## Largest sessions", _table(_sessions(report.detail.sessions))]
    if report.detail and report.detail.broken:
        broken = (
            f"{each.cause}: {format_tokens(each.lost_tokens)} tokens, "
            f"{format_ratio(each.lost_share)} of prompts, in {each.calls:,} calls"
            for each in report.detail.broken
        )
        parts += ["## Where prefixes broke", _list(broken)]
    said = rows.pressure(report)
    if said:
        parts += ["## Thrashing", _list(said)]
    onsets = rows.onsets(report)
    if onsets:
        parts += ["## Prefill doubles", _list(onsets)]
    settings = rows.settings(report)
    if settings:
        parts += ["## To set", _list(settings)]
    warnings = rows.notes(report)
    if warnings:
        parts += ["## Mind", _list(warnings)]
    if explained:
        for title, steps in explain.arithmetic(report):
            parts += [f"## {_escape(title)}", _list(steps)]
    parts += ["## Assumptions", _list(report.assumptions)]
    return "\n\n".join(parts) + "\n"


def _sessions(groups: Groups) -> list[Column]:
    """Return the largest sessions, one row each."""
    found = groups.rows[:_SESSIONS]
    columns = [
        Column("Session", tuple(_shown(row.name) for row in found), numeric=False),
        Column("Calls", tuple(f"{row.calls:,}" for row in found)),
        Column("Prompt tokens", tuple(format_tokens(row.prompt_tokens) for row in found)),
        Column("Reuse", tuple(format_ratio(row.hit_ratio) for row in found)),
        Column("Folds", tuple(f"{row.folds:,}" for row in found)),
    ]
    if all(row.gpu_hit_ratio is not None for row in found):
        alone = tuple(format_ratio(row.gpu_hit_ratio or 0.0) for row in found)
        columns.insert(4, Column("Hits on the first GPU alone", alone))
    return columns


def _shown(name: str) -> str:
    """Return a name as code, cut where it is long; what would end or hide it as a mark."""
    plain = "".join(each if each.isprintable() and each != "`" else "\ufffd" for each in name)
    return f"`{plain if len(plain) <= _NAME else plain[: _NAME - 3] + '...'}`"


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_escape(line)}" for line in lines)


def _table(columns: Sequence[Column]) -> str:
    lines = [
        [column.title for column in columns],
        ["--:" if column.numeric else "---" for column in columns],
        *(list(cells) for cells in zip(*(column.cells for column in columns), strict=True)),
    ]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return _escape(text).replace("|", "\\|").replace("* ", "\\* ")


def _escape(text: str) -> str:
    return text.replace("<", "&lt;").replace(">", "&gt;")
