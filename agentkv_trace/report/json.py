"""A report as JSON: exactly its fields, in their order."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentkv_trace.report.model import Report


def as_dict(report: Report) -> dict[str, Any]:
    """Return the report as plain dicts, lists, strings and numbers."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(report)))
    return plain


def render(report: Report) -> str:
    """Return the report as JSON text with a final newline."""
    return json.dumps(asdict(report), indent=2, ensure_ascii=False) + "\n"
