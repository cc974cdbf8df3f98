"""A curve as a Parquet file: its corners as rows, its totals as metadata."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from agentkv_trace.engine.cumulative import Cumulative
from agentkv_trace.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.engine.curve import MissRatioCurve

SCHEMA = "agentkv-trace/curve/1"
_KEY = b"agentkv_trace"
_FIELDS = (
    "chunk_tokens",
    "calls",
    "prompt_tokens",
    "references",
    "unique_chunks",
    "engine",
    "order",
    "sampling",
)


def write_curve(curve: MissRatioCurve, path: str | Path) -> None:
    """Write a curve to `path`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    meta = {"schema": SCHEMA} | {name: getattr(curve, name) for name in _FIELDS}
    table = pa.table(curve.to_numpy()).replace_schema_metadata({_KEY: json.dumps(meta)})
    pq.write_table(table, path, compression="zstd")


def read_curve(path: str | Path) -> MissRatioCurve:
    """Read a curve that `write_curve` wrote.

    Raises:
        InputError: The file cannot be read or is no curve of ours.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from agentkv_trace.engine.curve import MissRatioCurve

    try:
        table = pq.read_table(path)
        meta = json.loads((table.schema.metadata or {})[_KEY])
        if meta["schema"] != SCHEMA:
            raise InputError(f"{path}: holds {meta['schema']}, not {SCHEMA}")
        x, hits, prefix = (
            table[name].to_numpy() for name in ("capacity_chunks", "chunk_hits", "prefix_hits")
        )
        fields = {name: meta[name] for name in _FIELDS}
    except (OSError, pa.ArrowInvalid, KeyError, ValueError, TypeError) as error:
        raise InputError(
            f"{path}: no curve written by to_parquet ({type(error).__name__})"
        ) from error
    chunk_hits = Cumulative.of_corners(x, hits)
    same = bool((hits == prefix).all())
    prefix_hits = chunk_hits if same else Cumulative.of_corners(x, prefix)
    return MissRatioCurve(**fields, chunk_hits=chunk_hits, prefix_hits=prefix_hits)
