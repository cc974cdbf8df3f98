"""The result of `mrc` and its renderings."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from agentkv_trace.report import ttl
from agentkv_trace.report.plot import plot
from agentkv_trace.report.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.engine.curve import MissRatioCurve
    from agentkv_trace.report.ttl import TtlHits
    from agentkv_trace.tiers.hit_curve import ReplayedCurve

    Curve: TypeAlias = MissRatioCurve | ReplayedCurve

SCHEMA = "agentkv-trace/mrc/1"
REPLAYED = ("sglang", "lmcache", "lmcache-server")
"""Engines whose curve is known at some capacities only."""

TABLE_ROWS = 20
"""Rows of the table where no capacity was asked for."""

MOST_GROUPS = 40
"""Groups in a table, the largest first; csv and json have all."""

GROUP_CAPACITIES = 3
"""Capacities at which groups are shown beside each other."""

_LEGEND = (
    "miss ratio: missed / all references to full prompt chunks",
    "prefix hits: hit / all prompt tokens, partial tails missed",
)


@dataclass(frozen=True, slots=True)
class MrcResult:
    """A curve and the capacities (in chunks) at which it is shown.

    `groups` are the curves of groups of calls inside the same cache, by the values of column
    `by`; `ttl` and `ttl_groups` are their hits in a cache that forgets by time.
    """

    curve: Curve
    capacities: tuple[int, ...]
    next_call_reuse: float | None
    model: str | None = None
    bytes_per_token: int | None = None
    by: str | None = None
    groups: dict[str, MissRatioCurve] = field(default_factory=dict)
    ttl: TtlHits | None = None
    ttl_groups: dict[str, TtlHits] = field(default_factory=dict)

    def points(self, curve: Curve | None = None) -> list[dict[str, Any]]:
        """Return the points of the JSON contract, of the whole or of one group."""
        curve = curve or self.curve
        miss = curve.miss_ratio(self.capacities)
        hit = curve.prefix_hit_ratio(self.capacities)
        return [
            {
                "capacity_chunks": capacity,
                "capacity_tokens": capacity * curve.chunk_tokens,
                "capacity_bytes": self._bytes(capacity * curve.chunk_tokens),
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
    groups = [
        {
            "name": name,
            **_counts(group),
            "points": result.points(group),
            **_ttl(result.ttl_groups.get(name)),
        }
        for name, group in result.groups.items()
    ]
    return {
        "schema": SCHEMA,
        "engine": curve.engine,
        "order": curve.order,
        "chunk_tokens": curve.chunk_tokens,
        **_counts(curve),
        "points": result.points(),
        "next_call_reuse": None if reuse is None else round(reuse, 9),
        "sampling": curve.sampling,
        **({"by": result.by, "groups": groups} if result.by else {}),
        **_ttl(result.ttl),
    }


def _ttl(hits: TtlHits | None) -> dict[str, Any]:
    return {} if hits is None else {"ttl": hits.to_dict()}


def _counts(curve: Curve) -> dict[str, int]:
    return {
        "calls": curve.calls,
        "prompt_tokens": curve.prompt_tokens,
        "references": curve.references,
        "unique_chunks": curve.unique_chunks,
        "cold_references": curve.cold_references,
    }


def to_json(result: MrcResult) -> str:
    """Return the JSON of `mrc`."""
    return json.dumps(to_dict(result), indent=2) + "\n"


def to_csv(result: MrcResult) -> str:
    """Return the points, one line each; with groups, a line per group and point.

    Times to live are lines too, with a column of their own and no capacity.
    """
    rows = [*result.points(), *_csv_rows(result.ttl)]
    if result.by:
        rows = [
            {result.by: name, **point}
            for name, group in result.groups.items()
            for point in [*result.points(group), *_csv_rows(result.ttl_groups.get(name))]
        ]
    text = io.StringIO()
    columns = [
        *([result.by] if result.by else []),
        "capacity_chunks",
        "capacity_tokens",
        "capacity_bytes",
        "miss_ratio",
        "prefix_hit_ratio",
        *(["ttl_seconds"] if result.ttl else []),
    ]
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _csv_rows(hits: TtlHits | None) -> list[dict[str, Any]]:
    return [] if hits is None else ttl.csv_rows(hits)


def to_markdown(result: MrcResult) -> str:
    """Return the points as a Markdown table."""
    parts = ["  \n".join(_facts(result))]
    for head, rows in _tables(result):
        lines = [head, ["---:"] * len(head), *rows]
        parts.append("\n".join("| " + " | ".join(map(_escaped, line)) + " |" for line in lines))
    return "\n\n".join([*parts, "  \n".join(_legend(result))]) + "\n"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")


def to_table(result: MrcResult, width: int = 80) -> str:
    """Return the points as plain columns; names of groups are cut to fit `width`."""
    parts = ["\n".join(_facts(result))]
    for head, rows in _tables(result):
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        if result.by and head[0] == result.by:
            widths[0] = max(8, min(widths[0], width - sum(widths[1:]) - 2 * len(widths[1:])))
        lines = [_line(line, widths) for line in [head, *rows]]
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, "\n".join(_legend(result))]) + "\n"


def _legend(result: MrcResult) -> tuple[str, ...]:
    return _LEGEND if result.ttl is None else (*_LEGEND, *ttl.legend(result.ttl))


def _shown(name: str) -> str:
    """Return a name from a log without what would move the cursor or break the line."""
    return "".join(each if each.isprintable() else "?" for each in name)


def _line(cells: list[str], widths: list[int]) -> str:
    shown = [
        cell if len(cell) <= w else cell[: w - 1] + "~"
        for cell, w in zip(cells, widths, strict=True)
    ]
    return "  ".join(cell.rjust(w) for cell, w in zip(shown, widths, strict=True))


def to_plot(
    result: MrcResult, *, width: int, unicode: bool, markers: Sequence[tuple[float, str]] = ()
) -> str:
    """Draw the miss ratio over the capacity in tokens."""
    curve = result.curve
    chunk = curve.chunk_tokens
    changes = [int(point) for point in curve.points() if point > 0] or [1]
    first, last = changes[0], changes[-1]
    # A replayed curve knows nothing below its first capacity.
    first = first if curve.engine in REPLAYED else max(first // 2, 1)
    drawing = plot(
        lambda xs: [float(curve.miss_ratio(int(x // chunk))) for x in xs],
        first * chunk,
        last * chunk * 1.25,
        title="Miss ratio of prompt chunks",
        x_label="cache capacity (tokens)",
        width=width,
        unicode=unicode,
        markers=markers,
    )
    return drawing + "\n"


def _tables(result: MrcResult) -> list[tuple[list[str], list[list[str]]]]:
    """Return the curve as head and rows, then its groups if there are any."""
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
    tables = [(head, rows)]
    if result.by:
        shown = _spread(result.capacities, GROUP_CAPACITIES)
        tokens = [format_tokens(capacity * result.curve.chunk_tokens) for capacity in shown]
        by_size = sorted(result.groups.items(), key=lambda group: -group[1].prompt_tokens)
        shown_groups = by_size[:MOST_GROUPS]
        group_rows = [
            [
                _shown(name),
                f"{group.calls:,}",
                format_tokens(group.prompt_tokens),
                *(f"{group.prefix_hit_ratio(capacity):.1%}" for capacity in shown),
                f"{group.ceiling:.1%}",
            ]
            for name, group in shown_groups
        ]
        if len(result.groups) > MOST_GROUPS:
            more = len(result.groups) - MOST_GROUPS
            group_rows.append([f"({more:,} more in csv, json)", *[""] * (len(group_rows[0]) - 1)])
        hits = [f"hits at {each}" for each in tokens]
        tables.append(([result.by, "calls", "prompts", *hits, "best"], group_rows))
    if result.ttl is not None:
        tables.append(ttl.table(result.ttl))
    if result.by and result.ttl_groups:
        largest = sorted(result.ttl_groups.items(), key=lambda group: -group[1].calls)
        named = {_shown(name): hits for name, hits in largest[:MOST_GROUPS]}
        tables.append(ttl.group_table(result.by, named))
    return tables


def _spread(values: tuple[int, ...], most: int) -> list[int]:
    """Return up to `most` of some values, evenly spread, the last among them."""
    if len(values) <= most:
        return list(values)
    return [values[round((i + 1) * (len(values) - 1) / most)] for i in range(most)]


def _facts(result: MrcResult) -> list[str]:
    curve = result.curve
    lines = [
        f"{curve.calls:,} calls, {format_tokens(curve.prompt_tokens)} prompt tokens, "
        f"chunks of {curve.chunk_tokens}",
        f"{curve.references:,} chunk references, {curve.unique_chunks:,} unique chunks "
        f"({format_tokens(curve.unique_chunks * curve.chunk_tokens)})",
        f"engine {curve.engine}, {curve.order}",
    ]
    if curve.sampling:
        lines.append(_sampling(curve.sampling))
    if result.next_call_reuse is not None:
        lines.append(
            f"reused by the session's next call: {result.next_call_reuse:.1%} of new chunks"
        )
    if result.ttl is not None:
        lines += ttl.facts(result.ttl)
    if result.model is not None:
        lines.append(f"bytes: {result.model}, {result.bytes_per_token:,.0f} B of KV per token")
    return lines


def _sampling(sampling: dict[str, Any]) -> str:
    return (
        f"sampled: rate {sampling['rate']:.3g}, {sampling['samples']:,} chunks, "
        f"seed {sampling['seed']}, expected error {sampling['expected_error']:.4f} "
        f"(below {sampling['error_bound']:.4f} in 95% of seeds)"
    )
