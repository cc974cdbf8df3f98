from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.trace.store import read_trace, write_trace
from made import trace

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "trace.parquet"
    write_trace(trace([1, 2], [1, 2, 3], [1, 9], sessions=["a", "a", "b"]), path)
    return path


def edited(path: Path, column: str, row: int, value: object) -> Path:
    """Return the trace with one value changed, as another program might write it."""
    table = pq.read_table(path)
    at = table.schema.get_field_index(column)
    field = table.schema.field(at)
    plain = table[column].cast(pa.string()) if pa.types.is_dictionary(field.type) else table[column]
    values = plain.to_pylist()
    values[row] = value
    array = pa.array(values, plain.type)
    table = table.set_column(at, pa.field(column, plain.type), array)
    out = path.with_name("edited.parquet")
    pq.write_table(table, out)
    return out


def test_a_trace_comes_back_as_it_was(stored: Path) -> None:
    made = trace([1, 2], [1, 2, 3], [1, 9], sessions=["a", "a", "b"])
    back = read_trace(stored)
    assert back.table.equals(made.table)
    assert back.meta == made.meta
    for one, other in zip(back.new_chunks(), made.new_chunks(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_empty_trace_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "empty.parquet"
    write_trace(trace(), path)
    back = read_trace(path)
    assert len(back) == 0
    assert back.new_chunks()[0].tolist() == [0]


def test_polars_reads_the_file_as_it_is(stored: Path) -> None:
    frame = pl.read_parquet(stored)
    assert frame["new_chunks"].dtype == pl.List(pl.UInt64)
    assert frame["new_chunks"].list.len().to_list() == [2, 1, 1]


@pytest.mark.parametrize(
    ("column", "row", "value", "rule"),
    [
        ("base", 1, 1, "-1 <= base < call"),
        ("base", 2, -2, "-1 <= base < call"),
        ("base_chunks", 1, 3, "base_chunks <= path_chunks of the base"),
        ("base", 1, -1, "base_chunks <= path_chunks of the base"),
        ("base_chunks", 2, 0, "base is -1 exactly where base_chunks is 0"),
        ("prompt_chunks", 0, 3, "prompt_chunks = prompt_tokens // chunk_tokens"),
        ("prompt_tokens", 2, -1, "prompt_tokens >= 0"),
        ("t_end_us", 1, 5, "t_end_us >= t_start_us"),
        ("t_start_us", 0, -5, "t_start_us >= 0"),
        ("t_start_us", 2, 1, "rows are sorted by t_start_us"),
        ("call", 1, 7, "call is the row number"),
        ("logged_cached_tokens", 1, 9, "logged_cached_tokens <= logged_prompt_tokens"),
        ("path_chunks", 2, 5, "len(new_chunks) = path_chunks - base_chunks"),
        ("new_chunks", 1, [1, 2], "len(new_chunks) = path_chunks - base_chunks"),
        ("kind", 1, "stroll", "kind is one of"),
        ("fidelity", 0, "hearsay", "fidelity is one of"),
    ],
)
def test_a_broken_invariant_names_its_row(
    stored: Path, column: str, row: int, value: object, rule: str
) -> None:
    path = edited(stored, column, row, value)
    with pytest.raises(InputError) as error:
        read_trace(path)
    assert str(error.value).startswith(f"{path}: row {row}: must hold: {rule}")


def test_lists_of_wrong_lengths_that_add_up_are_found_when_keys_are_read(stored: Path) -> None:
    path = edited(edited(stored, "new_chunks", 0, [1]), "new_chunks", 1, [2, 3])
    back = read_trace(path)
    with pytest.raises(InputError, match="row 0: must hold: len"):
        back.new_chunks()


def test_a_null_names_its_row(stored: Path) -> None:
    with pytest.raises(InputError, match="row 2: session is null"):
        read_trace(edited(stored, "session", 2, None))


def with_meta(path: Path, meta: bytes) -> Path:
    table = pq.read_table(path).replace_schema_metadata({b"agentkv_trace": meta})
    pq.write_table(table, path)
    return path


def test_a_newer_schema_is_refused(stored: Path) -> None:
    meta = json.loads(pq.read_schema(stored).metadata[b"agentkv_trace"])
    path = with_meta(stored, json.dumps(meta | {"schema": "agentkv-trace/trace/2"}).encode())
    with pytest.raises(InputError, match=r"newer agentkv-trace \(schema agentkv-trace/trace/2\)"):
        read_trace(path)


@pytest.mark.parametrize("meta", [b"", b"{}", b"[1]", b"\xff", b'{"schema": "other/1"}'])
def test_damaged_metadata_is_said(stored: Path, meta: bytes) -> None:
    with pytest.raises(InputError, match="damaged trace metadata"):
        read_trace(with_meta(stored, meta))


def test_a_parquet_file_of_others_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(path)
    with pytest.raises(InputError, match="not a trace of agentkv-trace"):
        read_trace(path)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"{}\n", b"PAR1" + b"\0" * 100 + b"PAR1"])
def test_what_is_no_parquet_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(data)
    with pytest.raises(InputError, match="not a Parquet file"):
        read_trace(path)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_trace(tmp_path / "none.parquet")


def test_a_missing_column_is_named(stored: Path) -> None:
    table = pq.read_table(stored).drop_columns(["kind"])
    pq.write_table(table, stored)
    with pytest.raises(InputError, match="column kind is missing"):
        read_trace(stored)


def test_damaged_pages_are_said(stored: Path) -> None:
    data = bytearray(stored.read_bytes())
    data[8:400] = b"\xff" * 392
    stored.write_bytes(bytes(data))
    with pytest.raises(InputError):
        read_trace(stored).new_chunks()


def test_the_file_holds_no_path_and_no_text(tmp_path: Path, stored: Path) -> None:
    assert str(tmp_path).encode() not in stored.read_bytes()
