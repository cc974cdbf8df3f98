"""Gateways and tracers: damaged, odd, compressed and large logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from agentkv_trace.ingest import reading
from agentkv_trace.ingest.gateways import paths
from gateway_logs import generation, lines, payload, read, spans, spend, user

if TYPE_CHECKING:
    from pathlib import Path


def test_a_document_in_one_line_may_be_longer_than_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_LINE", 3000)
    listed = [generation(n, [user("a" * 900)]) for n in range(4)]
    path = lines(tmp_path, "one.json", {"trace": {"id": "t1"}, "observations": listed})
    found, _ = read(path)
    assert len(found) == 4
    long, short = (payload(n, [user("a" * size)]) for n, size in ((1, 9000), (2, 9)))
    found, notes = read(lines(tmp_path, "two.jsonl", long, short), strict=False)
    assert len(found) == 1
    assert notes.skipped == {"line too long": 1}


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_compressed_logs(codec: str, tmp_path: Path) -> None:
    plain = lines(tmp_path, "plain", payload(1, [user("a")]), payload(2, [user("b")]))
    path = tmp_path / f"log.jsonl.{ {'gzip': 'gz', 'zstd': 'zst'}[codec] }"
    with pa.CompressedOutputStream(str(path), codec) as file:
        file.write(plain.read_bytes())
    assert paths.find(tmp_path) == [path]
    found, _ = read(path)
    assert len(found) == 2


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\0" * 99, b"[1, 2]", b"null", b"words\n", b"\xff\xfe"]
)
def test_other_content_loses_no_other_file(tmp_path: Path, data: bytes) -> None:
    bad = tmp_path / "bad.json"
    bad.write_bytes(data)
    good = lines(tmp_path, "good.jsonl", payload(1, [user("a")]))
    found, _ = read(bad, tmp_path / "missing.json", good, strict=False)
    assert len(found) == 1


def test_torn_and_damaged_lines(tmp_path: Path) -> None:
    path = lines(tmp_path, "log.jsonl", *(payload(n, [user(f"a{n}")]) for n in range(4)))
    rows = path.read_bytes().split(b"\n")
    path.write_bytes(
        b"\n".join([rows[0][:80] + rows[1], b"\0" * 30, b"[7]", *rows[2:4], rows[0][:60]])
    )
    found, notes = read(path, strict=False)
    assert len(found) == 3
    assert notes.skipped.total() == 4


@pytest.mark.parametrize(
    "record",
    [
        payload(1, [7, None], metadata=3, model_parameters="x", response=[1], startTime="never"),
        spend(1, metadata="{", proxy_server_request=7, messages=5),
        generation(1, "a", usageDetails=[1], startTime=None, endTime={}),
        spans({"attributes": 7}, {"spanId": 3}, 5),  # type: ignore[arg-type]
        {"resourceSpans": [None, {"scopeSpans": [7]}]},
        {"observations": [None, {"observations": []}]},
        {"request": {"url": 7, "body": []}},
    ],
)
def test_odd_fields_are_taken_as_missing(tmp_path: Path, record: Any) -> None:
    good = payload(9, [user("a")])
    odd = lines(tmp_path, "odd.jsonl", record)
    found, _ = read(odd, lines(tmp_path, "good.jsonl", good), strict=False)
    assert len(found) >= 1
