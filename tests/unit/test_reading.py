"""Bytes to lines to objects: whatever a log file looks like."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.ingest import reading
from agentkv_trace.notes import Notes
from codex_logs import zstd

if TYPE_CHECKING:
    from pathlib import Path

STARTS = (b'{"timestamp":',)


def write(folder: Path, data: bytes, name: str = "log.jsonl") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def lines(path: Path, notes: Notes | None = None) -> list[tuple[int, bytes]]:
    return list(reading.lines(path, notes or Notes(strict=True)))


def objects(path: Path, notes: Notes) -> list[object]:
    return [value for _, value in reading.objects(path, notes, STARTS)]


def test_lines_end_at_line_feeds_only(tmp_path: Path) -> None:
    odd = '{"a":"one\u2028two\u2029three\x85four\x0bfive"}'.encode()
    assert lines(write(tmp_path, odd + b"\n{}\n")) == [(1, odd), (2, b"{}")]


def test_byte_order_mark_carriage_returns_and_empty_lines_are_dropped(tmp_path: Path) -> None:
    path = write(tmp_path, b'\xef\xbb\xbf{"a":1}\r\n\r\n\n{"b":2}\r\n  \n{"c":3}')
    assert lines(path) == [(1, b'{"a":1}'), (4, b'{"b":2}'), (6, b'{"c":3}')]


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    assert lines(write(tmp_path, b"")) == []


def test_lines_longer_than_a_read_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_CHUNK", 7)
    long = b"x" * 100
    path = write(tmp_path, long + b"\nab\n\n" + long)
    assert lines(path) == [(1, long), (2, b"ab"), (4, long)]


def test_a_line_of_200_mb_is_skipped_without_being_held(tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / "log.jsonl"
    with path.open("wb") as file:
        file.write(b'{"a":1}\n')
        file.truncate(200 << 20)  # a hole: zeros that take no disk
        file.seek(0, 2)
        file.write(b'\n{"b":2}\n')
    notes = Notes()
    tracemalloc.start()
    try:
        assert objects(path, notes) == [{"a": 1}, {"b": 2}]
        assert tracemalloc.get_traced_memory()[1] < reading.MAX_LINE + (8 << 20)
    finally:
        tracemalloc.stop()
    assert notes.skipped == {"line too long": 1}
    assert notes.examples["line too long"] == [f"{path}:2"]


def test_a_last_line_that_is_too_long_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_LINE", 10)
    notes = Notes()
    assert lines(write(tmp_path, b"0123456789\n01234567890"), notes) == [(1, b"0123456789")]
    assert notes.skipped == {"line too long": 1}


def test_compressed_files_are_told_by_their_magic_number(tmp_path: Path) -> None:
    path = write(tmp_path, zstd(b'{"a":1}\n{"b":2}\n'), "odd.name")
    assert lines(path) == [(1, b'{"a":1}'), (2, b'{"b":2}')]


def test_gzip_is_read_too_and_may_break_off(tmp_path: Path) -> None:
    data = gzip.compress(b'{"a":1}\n') + gzip.compress(b'{"b":2}\n')
    assert lines(write(tmp_path, data)) == [(1, b'{"a":1}'), (2, b'{"b":2}')]
    notes = Notes()
    whole = gzip.compress(b"".join(b'{"n":%d}\n' % (n * 7919**3 % 10**9) for n in range(99_999)))
    found = lines(write(tmp_path, whole[: len(whole) // 2]), notes)
    assert len(found) > 30_000
    assert notes.skipped == {"compressed file breaks off": 1}


def test_frames_written_one_after_the_other_are_one_file(tmp_path: Path) -> None:
    path = write(tmp_path, zstd(b'{"a":1}\n{"b"') + zstd(b":2}\n"))
    assert lines(path) == [(1, b'{"a":1}'), (2, b'{"b":2}')]


def test_a_cut_compressed_file_gives_all_lines_before_the_cut(tmp_path: Path) -> None:
    whole = [b'{"n":%d,"x":"%d"}' % (n, n * 7919**3 % 10**9) for n in range(60_000)]
    data = zstd(b"\n".join(whole))
    path = write(tmp_path, data[: len(data) * 2 // 3])
    notes = Notes()
    found = [line for _, line in reading.lines(path, notes)]
    # Only the block in which the cut lies is lost: 128 KiB, some 5,000 of these lines.
    assert found[:-1] == whole[: len(found) - 1]
    assert len(found) > len(whole) * 2 // 3 - 6_000
    assert notes.skipped == {"compressed file breaks off": 1}


@pytest.mark.parametrize("size", [4, 9])
def test_a_compressed_file_cut_in_its_header_gives_nothing(tmp_path: Path, size: int) -> None:
    notes = Notes()
    assert lines(write(tmp_path, zstd(b'{"a":1}\n')[:size]), notes) == []
    assert notes.skipped == {"compressed file breaks off": 1}


def test_what_follows_a_frame_and_is_none_is_counted(tmp_path: Path) -> None:
    notes = Notes()
    path = write(tmp_path, zstd(b'{"a":1}\n') + b"no frame at all")
    assert objects(path, notes) == [{"a": 1}]
    assert notes.skipped == {"compressed file breaks off": 1}


def test_progress_counts_bytes_on_disk(tmp_path: Path) -> None:
    data = b'{"a":1}\n' * 10_000
    for path in (write(tmp_path, data), write(tmp_path, zstd(data), "log.zst")):
        seen: list[int] = []
        notes = Notes(strict=True)
        assert len(list(reading.objects(path, notes, on_bytes=seen.append))) == 10_000
        assert sum(seen) == notes.counts["bytes"] == path.stat().st_size
        assert notes.counts["lines"] == 10_000


FULL = b'{"timestamp":"t","type":"x","payload":{"say":"hello"}}'
RECORD = {"timestamp": "t", "type": "x", "payload": {"say": "hello"}}


@pytest.mark.parametrize(
    ("line", "found", "reason"),
    [
        (FULL, [RECORD], None),
        (FULL[:30], [], "damaged line"),
        (FULL[:30] + FULL, [RECORD], "damaged line"),
        (FULL + FULL[:30], [RECORD], "damaged line"),
        (FULL + FULL, [RECORD, RECORD], None),
        (b"\0" * 40 + FULL, [RECORD], None),
        (b"\0" * 500, [], "line of NUL bytes"),
        (FULL.replace(b"hello", b"\xff\xfe"), [], "damaged line"),
        (b'{"a":"\xff"' + FULL, [RECORD], "damaged line"),
        (b"[1,2]", [], "line is no JSON object"),
        (b"12", [], "line is no JSON object"),
        (b"not json", [], "damaged line"),
        (b'{"a":' * 5000, [], "damaged line"),
    ],
)
def test_damaged_lines_give_what_is_whole(
    tmp_path: Path, line: bytes, found: list[object], reason: str | None
) -> None:
    path = write(tmp_path, FULL + b"\n" + line + b"\n" + FULL + b"\n")
    notes = Notes()
    assert objects(path, notes) == [RECORD, *found, RECORD]
    assert notes.skipped == ({} if reason is None else {reason: 1})
    if reason is not None:
        with pytest.raises(InputError, match=rf"log.jsonl:2: {reason}"):
            objects(path, Notes(strict=True))


def test_a_start_inside_a_string_does_not_cut_a_whole_record(tmp_path: Path) -> None:
    line = b'{"timestamp":"t","say":"{\\"timestamp\\":1}"}'
    notes = Notes(strict=True)
    assert objects(write(tmp_path, line), notes) == [{"timestamp": "t", "say": '{"timestamp":1}'}]
