"""A check as Markdown, for a job's summary page or a comment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.check.text import summary
from agentkv_trace.check.values import in_words
from agentkv_trace.report.breaks.markdown import escape, table

if TYPE_CHECKING:
    from agentkv_trace.check.model import CheckResult, Finding


def render(result: CheckResult, *, source: str = "TRACE") -> str:
    """Return the check as Markdown text with a final newline."""
    verdict = "passed" if result.passed else "failed"
    parts = [f"## agentkv-trace check: {verdict}", f"{summary(result)}."]
    rows = [_row(finding) for finding in result.findings]
    titles = ["gate", "figure", "value", "limit", "baseline", "result"]
    parts.append(table(titles, rows, {"value", "limit", "baseline"}))
    failed = [finding for finding in result.failed if finding.cause]
    if failed:
        causes = dict.fromkeys(part for one in failed for part in (one.cause or "").split("; "))
        parts += ["### Causes", "\n".join(f"- {escape(cause)}" for cause in causes)]
    if result.failed:
        parts.append(f"Next: `agentkv-trace explain {source}`")
    if result.notes:
        parts.append("\n".join(f"- {escape(note)}" for note in result.notes))
    return "\n\n".join(parts) + "\n"


def _row(finding: Finding) -> list[str]:
    before = "" if finding.baseline is None else in_words(finding.baseline, finding.unit)
    return [
        finding.rule,
        finding.message.partition(": ")[0],
        in_words(finding.value, finding.unit),
        in_words(finding.limit, finding.unit),
        before,
        "ok" if finding.passed else "failed",
    ]
