"""The result of `mrc` and its renderings."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentkv_trace.report.plot import plot
from agentkv_trace.report.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.engine.curve import MissRatioCurve

SCHEMA = "agentkv-trace/mrc/1"
TABLE_ROWS = 20
"""Rows of the table where no capacity was asked for."""

_LEGEND = (
    "miss ratio: missed / all references to full prompt chunks\n"
    "prefix hits: hit / all prompt tokens, partial tails missed"
)


@dataclass(frozen=True, slots=True)
class MrcResult:
    """A curve and the capacities (in chunks) at which it is shown."""

    curve: MissRatioCurve
    capacities: tuple[int, ...]
    next_call_reuse: float | None
    model: str | None = None
    bytes_per_token: int | None = None

    def points(self) -> list[dict[str, Any]]:
        """Return the points of the JSON contract."""
        chunk = self.curve.chunk_tokens
        miss = self.curve.miss_ratio(self.capacities)
        hit = self.curve.prefix_hit_ratio(self.capacities)
        return [
            {
                "capacity_chunks": capacity,
                "capacity_tokens": capacity * chunk,
                "capacity_bytes": self._bytes(capacity * chunk),
                "miss_ratio": round(float(m), 9),
                "prefix_hit_ratio": round(float(h), 9),
            }
            for capacity, m, h in zip(self.capacities, miss, hit, strict=True)
        ]

    def _bytes(self, tokens: int) -> int | None:
        return None if self.bytes_per_token is None else round(tokens * self.bytes_per_token)


def to_dict(result: MrcResult) -> dict[str, Any]:
    """Return the JSON contract of `mrc` as a dict."""
    curve, reuse = result.curve, result.next_call_reuse
    return {
        "schema": SCHEMA,
        "engine": curve.engine,
        "order": curve.order,
        "chunk_tokens": curve.chunk_tokens,
        "calls": curve.calls,
        "prompt_tokens": curve.prompt_tokens,
        "references": curve.references,
        "unique_chunks": curve.unique_chunks,
        "cold_references": curve.cold_references,
        "points": result.points(),
        "next_call_reuse": None if reuse is None else round(reuse, 9),
        "sampling": curve.sampling,
    }


def to_json(result: MrcResult) -> str:
    """Return the JSON of `mrc`."""
    return json.dumps(to_dict(result), indent=2) + "\n"


def to_csv(result: MrcResult) -> str:
    """Return the points, one line each."""
    points = result.points()
    text = io.StringIO()
    columns = [
        "capacity_chunks",
        "capacity_tokens",
        "capacity_bytes",
        "miss_ratio",
        "prefix_hit_ratio",
    ]
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(points)
    return text.getvalue()


def to_markdown(result: MrcResult) -> str:
    """Return the points as a Markdown table."""
    head, rows = _cells(result)
    lines = [head, ["---:"] * len(head), *rows]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return "\n\n".join([_facts(result), table, _LEGEND]) + "\n"


def to_table(result: MrcResult) -> str:
    """Return the points as plain columns that fit 60."""
    head, rows = _cells(result)
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [
        "  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True))
        for line in [head, *rows]
    ]
    return "\n".join([_facts(result), "", *lines, "", _LEGEND]) + "\n"


def to_plot(
    result: MrcResult, *, width: int, unicode: bool, markers: Sequence[tuple[float, str]] = ()
) -> str:
    """Draw the miss ratio over the capacity in tokens."""
    curve = result.curve
    chunk = curve.chunk_tokens
    changes = curve.points()
    last = int(changes[-1]) if len(changes) else 1
    first = int(changes[1]) if len(changes) > 1 else 1
    drawing = plot(
        lambda xs: [float(curve.miss_ratio(int(x // chunk))) for x in xs],
        max(first // 2, 1) * chunk,
        last * chunk * 1.25,
        title="Miss ratio of prompt chunks",
        x_label="cache capacity (tokens)",
        width=width,
        unicode=unicode,
        markers=markers,
    )
    return drawing + "\n"


def _cells(result: MrcResult) -> tuple[list[str], list[list[str]]]:
    sized = result.bytes_per_token is not None
    head = ["tokens", "chunks", *(["bytes"] if sized else []), "miss ratio", "prefix hits"]
    rows = [
        [
            format_tokens(point["capacity_tokens"]),
            f"{point['capacity_chunks']:,}",
            *([format_bytes(point["capacity_bytes"])] if sized else []),
            f"{point['miss_ratio']:.2%}",
            f"{point['prefix_hit_ratio']:.2%}",
        ]
        for point in result.points()
    ]
    return head, rows


def _facts(result: MrcResult) -> str:
    curve = result.curve
    lines = [
        f"{curve.calls:,} calls, {format_tokens(curve.prompt_tokens)} prompt tokens, "
        f"chunks of {curve.chunk_tokens}",
        f"{curve.references:,} chunk references, {curve.unique_chunks:,} unique chunks "
        f"({format_tokens(curve.unique_chunks * curve.chunk_tokens)})",
        f"engine {curve.engine}, {curve.order}",
    ]
    if result.next_call_reuse is not None:
        lines.append(
            f"reused by the session's next call: {result.next_call_reuse:.1%} of new chunks"
        )
    if result.model is not None:
        lines.append(f"bytes: {result.model}, {result.bytes_per_token:,.0f} B of KV per token")
    return "\n".join(lines)
