"""A report as CSV: one row per GPU and size of host memory; size 0 is the GPU alone."""

from __future__ import annotations

import csv
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkv_trace.report.model import GpuFinding, HostSize, Report

_COLUMNS = (
    "gpu",
    "gpu_verdict",
    "kv_pool_tokens",
    "host_total_bytes",
    "host_per_rank_bytes",
    "host_holds_tokens",
    "hit_ratio",
    "recovered",
    "restored_tokens",
    "computed_tokens",
    "written_tokens",
    "evicted_share",
    "thrashes",
    "saved_s_least",
    "saved_s_mid",
    "saved_s_most",
    "verdict",
    "recommended",
    "onset_agents",
    "onset_max_agents",
)


def render(report: Report) -> str:
    """Return the report as CSV text with a header line; a GPU that is too small has no sizes."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for finding in report.gpus:
        if finding.pool is None or finding.alone is None:
            writer.writerow([finding.gpu, finding.verdict, *[""] * (len(_COLUMNS) - 2)])
            continue
        head = [finding.gpu, finding.verdict, finding.pool.tokens]
        bought = finding.host.total_bytes if finding.host else 0
        if finding.verdict in ("neutral", "costs"):
            bought = 0
        for size in (finding.alone, *finding.host_sizes):
            flag = _flag(size.total_bytes == bought)
            writer.writerow([*head, *_cells(size), flag, *_onset(size, finding)])
    return out.getvalue()


def _cells(size: HostSize) -> list[object]:
    return [
        size.total_bytes,
        size.per_rank_bytes,
        size.holds_tokens,
        size.hit_ratio,
        size.recovered,
        size.restored_tokens,
        size.computed_tokens,
        size.written_tokens,
        size.evicted_share,
        _flag(size.thrashes),
        *(size.saved_s or (None, None, None)),
        size.verdict,
    ]


def _onset(size: HostSize, finding: GpuFinding) -> tuple[int | None, int | None]:
    """Return from how many agents the size thrashes, and up to how many were replayed."""
    for onset in finding.onsets:
        if onset.host_bytes == size.total_bytes:
            return onset.agents, onset.max_agents
    return None, None


def _flag(value: bool) -> str:
    return "yes" if value else "no"
