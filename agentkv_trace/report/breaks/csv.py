"""An explanation's breaks as CSV, one row each."""

from __future__ import annotations

import csv
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkv_trace.report.breaks.model import Explanation

_COLUMNS = (
    "session",
    "index",
    "agent",
    "model",
    "break_class",
    "cause",
    "token",
    "chunk",
    "place",
    "lost_tokens",
    "reused_tokens",
    "waited_s",
)


def render(found: Explanation) -> str:
    """Return the breaks as CSV text with a header; a column of seconds for each GPU."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_COLUMNS, *(f"cost_s_{gpu.gpu}" for gpu in found.gpus)])
    for one in found.breaks:
        values = [getattr(one, column) for column in _COLUMNS]
        writer.writerow(["" if value is None else value for value in [*values, *one.cost_s]])
    return out.getvalue()
