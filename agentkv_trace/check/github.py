"""A check as workflow commands of GitHub: an annotation for each failed gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.check.text import summary

if TYPE_CHECKING:
    from agentkv_trace.check.model import CheckResult

MOST = 10
"""Annotations of one kind that a step shows; the summary page holds all findings."""


def render(result: CheckResult, *, source: str = "TRACE") -> str:
    """Return one command a line, then the verdict."""
    lines = []
    for finding in result.failed[:MOST]:
        text = finding.message
        if finding.cause:
            text += f"\ncause: {finding.cause}"
        text += f"\nnext: agentkv-trace explain {source}"
        title = _property(f"agentkv-trace: {finding.rule}")
        lines.append(f"::error title={title}::{_data(text)}")
    lines.append(summary(result))
    return "\n".join(lines) + "\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
