"""The trace file: Parquet in and out, checked on every read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from agentkv_trace.errors import InputError
from agentkv_trace.trace.call import FIDELITIES, KINDS, TIME_SOURCES, USAGE_SOURCES
from agentkv_trace.trace.layout import LAYOUT, Layout
from agentkv_trace.trace.meta import MAX_CHUNK_TOKENS, TraceMeta

if TYPE_CHECKING:
    import polars as pl

_KEY = b"agentkv_trace"
_WORD = pa.dictionary(pa.int32(), pa.string())
ROW_GROUP = 1 << 16
"""Calls per Parquet row group."""

COLUMNS = pa.schema(
    [
        pa.field("call", pa.int32(), nullable=False),
        pa.field("session", _WORD, nullable=False),
        pa.field("parent_session", _WORD),
        pa.field("agent", _WORD, nullable=False),
        pa.field("model", _WORD),
        pa.field("source", _WORD, nullable=False),
        pa.field("index", pa.int32(), nullable=False),
        pa.field("t_start_us", pa.int64(), nullable=False),
        pa.field("t_end_us", pa.int64(), nullable=False),
        pa.field("time_source", _WORD, nullable=False),
        pa.field("prompt_tokens", pa.int32(), nullable=False),
        pa.field("output_tokens", pa.int32(), nullable=False),
        pa.field("logged_prompt_tokens", pa.int32()),
        pa.field("logged_cached_tokens", pa.int32()),
        pa.field("usage_source", _WORD, nullable=False),
        pa.field("base", pa.int32(), nullable=False),
        pa.field("base_chunks", pa.int32(), nullable=False),
        pa.field("prompt_chunks", pa.int32(), nullable=False),
        pa.field("path_chunks", pa.int32(), nullable=False),
        pa.field("kind", _WORD, nullable=False),
        pa.field("fidelity", _WORD, nullable=False),
    ]
)
"""Every column but `new_chunks`, which is read only where keys are needed."""

_NEW_CHUNKS = pa.field("new_chunks", pa.list_(pa.uint64()), nullable=False)
_KEY_COUNT_RULE = "len(new_chunks) = path_chunks - base_chunks"
_VOCABULARY = {
    "time_source": TIME_SOURCES,
    "usage_source": USAGE_SOURCES,
    "kind": KINDS,
    "fidelity": FIDELITIES,
}


@dataclass(frozen=True, eq=False)
class Trace:
    """A trace in memory: one row per call, in order of start.

    `table` has the columns of COLUMNS. Keys stay in the file until `new_chunks` asks for
    them.
    """

    table: pa.Table
    meta: TraceMeta
    path: Path | None = None
    keys: tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]] | None = None
    parts: Layout | None = None

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def array(self, column: str) -> npt.NDArray[Any]:
        """Return an integer column as numpy (nulls as -1)."""
        values = self.table[column]
        # Nulls become NaN, and doubles hold an int32 exactly.
        found = values.to_numpy()
        return np.nan_to_num(found, nan=-1).astype(np.int32) if values.null_count else found  # type: ignore[no-any-return]

    def codes(self, column: str) -> tuple[npt.NDArray[np.int32], list[str]]:
        """Return a string column as int32[calls] codes (null as -1) and their names.

        Every name is in use, also where the trace is part of another.
        """
        values = self.table[column].unify_dictionaries().combine_chunks()
        codes = values.indices.to_numpy(zero_copy_only=False)
        if values.null_count:
            codes = np.nan_to_num(codes, nan=-1).astype(np.int32)
        names = values.dictionary.to_pylist()
        used = np.bincount(codes + 1, minlength=len(names) + 1)[1:] > 0
        if not used.all():
            number = np.append(np.cumsum(used, dtype=np.int32) - 1, np.int32(-1))
            codes = number[codes]
            names = [name for name, is_used in zip(names, used.tolist(), strict=True) if is_used]
        return codes, names

    def frame(self) -> pl.DataFrame:
        """Return the columns as a polars DataFrame."""
        import polars as pl

        frame = pl.from_arrow(self.table)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def new_chunks(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
        """Return int64[calls+1] offsets and the uint64 keys of all calls' new chunks."""
        if self.keys is not None:
            return self.keys
        assert self.path is not None
        try:
            lists = _open(self.path).read(columns=["new_chunks"])["new_chunks"]
        except (OSError, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{self.path}: damaged chunk keys ({reason}); ingest again") from None
        _demand(str(self.path), _lengths(lists) == self._key_counts(), _KEY_COUNT_RULE)
        keys = [piece.flatten().to_numpy() for piece in lists.chunks]
        offsets = np.concatenate([[0], np.cumsum(self._key_counts())])
        return offsets, np.concatenate(keys) if keys else np.empty(0, np.uint64)

    def layout(self) -> Layout | None:
        """Return the parts of the prompts, None where the trace was made without them.

        Raises InputError where the stored column is damaged.
        """
        if self.parts is not None or self.path is None:
            return self.parts
        file = _open(self.path)
        if LAYOUT.name not in file.schema_arrow.names:
            return None
        try:
            column = file.read(columns=[LAYOUT.name])[LAYOUT.name]
        except (OSError, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{self.path}: damaged layout ({reason}); ingest again") from None
        # Read once: a trace never changes.
        object.__setattr__(self, "parts", Layout.of_column(column, str(self.path)))
        return self.parts

    def coarsen(self, chunk_tokens: int) -> Trace:
        """Return the trace at a coarser chunk size, a multiple of its own.

        Since keys chain, the key of a coarse chunk is that of its last fine chunk.
        Raises InputError for any other size.
        """
        factor, rest = divmod(chunk_tokens, self.meta.chunk_tokens)
        if rest or not 1 <= factor <= MAX_CHUNK_TOKENS:
            raise InputError(
                f"--chunk-tokens {chunk_tokens}: must be a multiple of the trace's "
                f"{self.meta.chunk_tokens}"
            )
        if factor == 1:
            return self
        offsets, keys = self.new_chunks()
        base_chunks = self.array("base_chunks") // factor
        path_chunks = self.array("path_chunks") // factor
        counts = path_chunks.astype(np.int64) - base_chunks
        new_offsets = np.concatenate([[0], np.cumsum(counts)])
        # Position of each coarse chunk's last fine chunk among its row's keys.
        nth = np.arange(new_offsets[-1]) - np.repeat(new_offsets[:-1], counts)
        last = (np.repeat(base_chunks.astype(np.int64), counts) + nth + 1) * factor - 1
        take = last - np.repeat(self.array("base_chunks") - offsets[:-1], counts)
        columns = {
            "base": np.where(base_chunks > 0, self.array("base"), -1).astype(np.int32),
            "base_chunks": base_chunks,
            "prompt_chunks": self.array("prompt_chunks") // factor,
            "path_chunks": path_chunks,
        }
        table = self.table
        for name, values in columns.items():
            at = table.schema.get_field_index(name)
            table = table.set_column(at, COLUMNS.field(name), pa.array(values))
        meta = replace(self.meta, chunk_tokens=chunk_tokens)
        return Trace(table, meta, keys=(new_offsets, keys[take]), parts=self.layout())

    def _key_counts(self) -> npt.NDArray[np.int64]:
        counts = self.array("path_chunks").astype(np.int64) - self.array("base_chunks")
        return np.asarray(counts, np.int64)


def _open(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, page_checksum_verification=True)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, pa.ArrowException):
        raise InputError(
            f"{path}: not a Parquet file; make a trace with "
            "`agentkv-trace ingest LOGS -o trace.parquet`"
        ) from None


def read_trace(path: str | Path) -> Trace:
    """Read a trace and check its invariants.

    Raises InputError, naming the file and the first row that is wrong.
    """
    path = Path(path)
    file = _open(path)
    meta = TraceMeta.from_json((file.schema_arrow.metadata or {}).get(_KEY), str(path))
    missing = [
        name for name in [*COLUMNS.names, "new_chunks"] if name not in file.schema_arrow.names
    ]
    if missing:
        raise InputError(f"{path}: column {missing[0]} is missing; ingest again")
    try:
        table = file.read(columns=COLUMNS.names).select(COLUMNS.names)
        _check_nulls(table, str(path))
        if not table.schema.equals(COLUMNS):
            table = table.cast(COLUMNS)
    except (OSError, pa.ArrowException, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: damaged trace ({reason}); ingest again") from None
    trace = Trace(table, meta, path)
    _check(trace, str(path))
    _check_key_counts(trace, file)
    return trace


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace with its keys to `path`, as it is: the caller renames it into place."""
    offsets, keys = trace.new_chunks()
    schema = COLUMNS.append(_NEW_CHUNKS).with_metadata({_KEY: trace.meta.to_json()})
    words = [field.name for field in COLUMNS if field.type == _WORD]
    layout = trace.layout()
    column = None if layout is None else layout.column()
    if column is not None:
        schema = schema.append(LAYOUT)
        words += [f"{LAYOUT.name}.parts.list.element.{name}" for name in ("kind", "role")]
    with pq.ParquetWriter(
        path, schema, compression="zstd", use_dictionary=words, write_page_checksum=True
    ) as writer:
        for first in range(0, max(len(trace), 1), ROW_GROUP):
            last = min(first + ROW_GROUP, len(trace))
            rows = trace.table.slice(first, last - first)
            lists = pa.LargeListArray.from_arrays(
                pa.array(offsets[first : last + 1] - offsets[first]),
                pa.array(keys[offsets[first] : offsets[last]]),
            ).cast(_NEW_CHUNKS.type)
            rows = rows.append_column(_NEW_CHUNKS, lists)
            if column is not None:
                rows = rows.append_column(LAYOUT, column.slice(first, last - first))
            writer.write_table(rows.cast(schema))


def _check_nulls(table: pa.Table, where: str) -> None:
    for field in COLUMNS:
        if not field.nullable and table[field.name].null_count:
            import pyarrow.compute as pc

            row = pc.index(table[field.name].is_null(), True).as_py()
            raise InputError(f"{where}: row {row}: {field.name} is null; ingest again")


def _check(trace: Trace, where: str) -> None:
    """Check the invariants of the contract on all rows at once."""
    for column, words in _VOCABULARY.items():
        codes, names = trace.codes(column)
        wrong = [code for code, name in enumerate(names) if name not in words]
        _demand(where, ~np.isin(codes, wrong), f"{column} is one of {', '.join(words)}")
    a = {field.name: trace.array(field.name) for field in COLUMNS if field.type != _WORD}
    rows = np.arange(len(trace), dtype=np.int64)
    based = a["base"] >= 0
    base_path = np.where(
        based, a["path_chunks"][np.where(based, a["base"] % max(len(trace), 1), 0)], 0
    )
    _demand(where, a["call"] == rows, "call is the row number")
    _demand(where, a["index"] >= 0, "index >= 0")
    _demand(where, (a["base"] >= -1) & (a["base"] < rows), "-1 <= base < call")
    _demand(
        where,
        (a["base_chunks"] >= 0) & (a["base_chunks"] <= base_path),
        "base_chunks <= path_chunks of the base",
    )
    _demand(where, based == (a["base_chunks"] > 0), "base is -1 exactly where base_chunks is 0")
    _demand(where, a["base_chunks"] <= a["path_chunks"], "base_chunks <= path_chunks")
    _demand(where, a["prompt_tokens"] >= 0, "prompt_tokens >= 0")
    _demand(where, a["output_tokens"] >= 0, "output_tokens >= 0")
    _demand(
        where,
        a["prompt_chunks"] == a["prompt_tokens"] // trace.meta.chunk_tokens,
        "prompt_chunks = prompt_tokens // chunk_tokens",
    )
    _demand(where, a["prompt_chunks"] <= a["path_chunks"], "prompt_chunks <= path_chunks")
    _demand(where, a["t_start_us"] >= 0, "t_start_us >= 0")
    _demand(where, a["t_end_us"] >= a["t_start_us"], "t_end_us >= t_start_us")
    _demand(where, np.diff(a["t_start_us"], prepend=0) >= 0, "rows are sorted by t_start_us")
    _demand(
        where,
        a["logged_cached_tokens"] <= a["logged_prompt_tokens"],
        "logged_cached_tokens <= logged_prompt_tokens",
    )


def _demand(where: str, holds: npt.NDArray[np.bool_], rule: str) -> None:
    if not holds.all():
        row = int(np.argmin(holds))
        raise InputError(f"{where}: row {row}: must hold: {rule}; ingest again")


def _lengths(lists: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    import pyarrow.compute as pc

    return pc.list_value_length(lists).fill_null(-1).to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def _check_key_counts(trace: Trace, file: pq.ParquetFile) -> None:
    """Check the number of keys by the row groups' metadata, decoding only a wrong one."""
    expected = trace._key_counts()
    columns = [file.schema.column(i).path for i in range(len(file.schema))]
    leaf = next(i for i, path in enumerate(columns) if path.split(".")[0] == "new_chunks")
    first = 0
    for group in range(file.num_row_groups):
        meta = file.metadata.row_group(group)
        rows = slice(first, first + meta.num_rows)
        first += meta.num_rows
        # An empty list takes one entry of a Parquet leaf column.
        if meta.column(leaf).num_values == np.maximum(expected[rows], 1).sum():
            continue
        lengths = _lengths(file.read_row_group(group, columns=["new_chunks"])["new_chunks"])
        wrong = rows.start + int(np.argmax(lengths != expected[rows]))
        raise InputError(f"{trace.path}: row {wrong}: must hold: {_KEY_COUNT_RULE}; ingest again")
