"""A check as JSON: exactly its fields, in their order."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkv_trace.check.model import CheckResult


def render(result: CheckResult) -> str:
    """Return the check as JSON text with a final newline."""
    return json.dumps(asdict(result), indent=2, ensure_ascii=False) + "\n"
