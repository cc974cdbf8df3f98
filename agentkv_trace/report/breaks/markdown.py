"""An explanation as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.report.breaks import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.report.breaks.model import Explanation

_NUMERIC = {"call", "lost", "reused", "parts at"}


def render(found: Explanation) -> str:
    """Return the explanation as Markdown text with a final newline."""
    parts = ["# Lost prefix reuse", "\n".join(f"- {line}" for line in words.summary(found))]
    if not found.layout:
        parts.append(words.NO_LAYOUT)
    if found.causes:
        parts.append("## Causes")
        for cause in found.causes:
            lines = [f"- **{escape(cause.words)}**: {escape(words.cause_facts(found, cause))}"]
            if cause.fix:
                lines.append(f"  - do: {escape(cause.fix)}")
            lines.append(f"  - see: {escape(words.examples(cause))}")
            parts.append("\n".join(lines))
    if found.breaks:
        titles, rows = words.cells(found)
        numeric = _NUMERIC | {gpu.name for gpu in found.gpus}
        parts += ["## Calls", table(titles, rows, numeric)]
        parts.append("\n".join(f"- {sentence}" for sentence in words.MEANING))
    return "\n\n".join(parts) + "\n"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], numeric: set[str]) -> str:
    """Return a Markdown table; columns whose title is in `numeric` are set to the right."""
    lines = [titles, ["--:" if title in numeric else "---" for title in titles]]
    lines += [[escape(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escape(text: str) -> str:
    """Return text that Markdown shows as it is, in a table cell too."""
    for sign in "\\`*_[]|":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.replace("<", "&lt;").replace(">", "&gt;").split())
