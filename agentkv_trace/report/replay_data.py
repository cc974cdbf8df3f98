"""Replays as data: JSON, and flat rows for CSV and Parquet."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentkv_trace.report.replay_model import ReplayReport

_DIGITS = 9
_LABELS = ("gpu", "agents", "host_bytes")


def to_json(report: ReplayReport) -> str:
    """Return the report as JSON text with a final newline."""
    plain = asdict(report)
    ordered = {"schema": plain.pop("schema"), **plain}
    return json.dumps(_rounded(ordered), indent=2, ensure_ascii=False) + "\n"


def to_csv(report: ReplayReport) -> str:
    """Return one line per replay, or per sample where there are samples, with a header line."""
    out = StringIO()
    lines = flat(report)
    writer = csv.DictWriter(out, list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(_rounded(lines))
    return out.getvalue()


def flat(report: ReplayReport) -> list[dict[str, Any]]:
    """Return a row per replay; with samples over time one per sample, labelled, instead."""
    if not report.series:
        return list(report.runs)
    lines = []
    for run, series in zip(report.runs, report.series, strict=True):
        label = {name: run[name] for name in _LABELS}
        lines += [
            label | dict(zip(series, values, strict=True))
            for values in zip(*series.values(), strict=True)
        ]
    return lines


def _rounded(value: Any) -> Any:
    """Return the value with floats cut to the digits that mean something."""
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return value
