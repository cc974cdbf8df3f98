"""A check for people: every gate on a line, and for failed ones the cause and what to type."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkv_trace.check.model import CheckResult

MIN_WIDTH = 40


def render(result: CheckResult, *, width: int = 80, source: str = "TRACE") -> str:
    """Return the check as text of `width` columns; `source` is what to name to `explain`."""
    width = max(width, MIN_WIDTH)
    lines: list[str] = []
    told: str | None = None
    for finding in result.findings:
        mark = "ok  " if finding.passed else "FAIL"
        lines += _wrapped(f"{mark} {finding.message} [{finding.rule}]", width, "     ")
        if finding.cause:
            cause = "the same" if finding.cause == told else finding.cause
            lines += _wrapped(f"     cause: {cause}", width, "       ")
            told = finding.cause
    for note in result.notes:
        lines += _wrapped(f"note {note}", width, "     ")
    if result.failed:
        lines.append(f"next: agentkv-trace explain {source}")
    lines.append(summary(result))
    return "\n".join(lines) + "\n"


def summary(result: CheckResult) -> str:
    """Return the verdict in one line."""
    total, failed = len(result.findings), len(result.failed)
    calls = f"{result.calls:,} calls of {result.sessions:,} sessions"
    if failed:
        return f"{failed} of {total} gates failed on {calls}"
    return f"all {total} gates passed on {calls}"


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)
