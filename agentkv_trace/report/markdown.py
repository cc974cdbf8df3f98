"""A report as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.report import rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agentkv_trace.report.model import Report
    from agentkv_trace.report.rows import Column


def render(report: Report) -> str:
    """Return the report as Markdown text with a final newline."""
    parts = [
        "# Host memory for the KV cache",
        _list(f"**{finding.summary}**" for finding in report.gpus),
        _list(f"{label}: {text}" for label, text in rows.facts(report)),
        _table(rows.gpu_columns(report)),
    ]
    sizes = rows.size_columns(report)
    if sizes:
        parts += ["## Hits by size of host memory (* recommended)", _table(sizes)]
    warnings = rows.notes(report)
    if warnings:
        parts += ["## Mind", _list(warnings)]
    parts += ["## Assumptions", _list(report.assumptions)]
    return "\n\n".join(parts) + "\n"


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
