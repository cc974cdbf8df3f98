"""A report as CSV: one row per GPU and size of host memory; size 0 is the GPU alone."""

from __future__ import annotations

import csv
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkv_trace.report.model import Report

_COLUMNS = (
    "gpu",
    "outcome",
    "kv_pool_tokens",
    "host_total_bytes",
    "host_per_rank_bytes",
    "host_holds_tokens",
    "hit_ratio",
    "recovered",
    "recommended",
)


def render(report: Report) -> str:
    """Return the report as CSV text with a header line; a GPU that is too small has no sizes."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for finding in report.gpus:
        pool = finding.pool
        if pool is None:
            writer.writerow([finding.gpu, finding.outcome, *[""] * (len(_COLUMNS) - 2)])
            continue
        head = [finding.gpu, finding.outcome, pool.tokens]
        alone = finding.outcome == "nothing_to_gain"
        writer.writerow([*head, 0, 0, 0, finding.gpu_hit_ratio, 0.0, _flag(alone)])
        for size in finding.host_sizes:
            writer.writerow(
                [
                    *head,
                    size.total_bytes,
                    size.per_rank_bytes,
                    size.holds_tokens,
                    size.hit_ratio,
                    size.recovered,
                    _flag(size == finding.host),
                ]
            )
    return out.getvalue()


def _flag(value: bool) -> str:
    return "yes" if value else "no"
