"""An explanation as JSON: exactly its fields, in their order."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkv_trace.report.breaks.model import Explanation


def render(found: Explanation) -> str:
    """Return the explanation as JSON text with a final newline."""
    return json.dumps(asdict(found), indent=2, ensure_ascii=False) + "\n"
