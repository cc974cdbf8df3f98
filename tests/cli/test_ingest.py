from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pytest

from agentkv_trace.cli.app import main
from agentkv_trace.trace.store import read_trace
from conftest import REPO

if TYPE_CHECKING:
    from pathlib import Path

SAMPLES = REPO / "sample_traces" / "codex"
LOG = min(SAMPLES.rglob("*.jsonl"), key=lambda path: path.stat().st_size)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "trace.parquet"


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


def test_the_samples_become_a_trace(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ingest", str(SAMPLES), "-o", str(out), "--verify"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith(f"Wrote {out}. Next: agentkv-trace mrc {out}\n")
    assert len(read_trace(out)) == 220


def test_files_that_no_source_knows_are_named(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    shutil.copy(LOG, folder)
    for number in range(5):
        (folder / f"note {number}.txt").write_text("dear diary")
    assert main(["ingest", str(folder), "-o", str(out)]) == 0
    said = capsys.readouterr().err
    assert said.count("no log that we know (it begins with text that is not JSON)") == 3
    assert "left out: 2 more files" in said
    assert "diary" not in said


def test_neither_the_order_of_names_nor_the_number_of_jobs_matters(tmp_path: Path) -> None:
    logs = sorted(map(str, SAMPLES.rglob("*.jsonl")))
    for name, given in (("a", logs), ("b", logs[::-1]), ("c", [*logs, str(SAMPLES)])):
        assert main(["ingest", *given, "-o", str(tmp_path / name), "-q"]) == 0
    assert main(["ingest", *logs[::-1], "-o", str(tmp_path / "d"), "-q", "--jobs", "3"]) == 0
    first, *others = [(tmp_path / name).read_bytes() for name in "abcd"]
    assert all(other == first for other in others)


def test_globs_prefixes_compression_and_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd.name").write_bytes(zstd(LOG.read_bytes()))
    names = {
        "compressed": str(tmp_path / "odd.name"),
        "glob": f"{LOG.parent}/*{LOG.name[-20:]}",
        "prefix": f"codex:{LOG}",
        "stdin": "-",
        "plain": str(LOG),
    }
    rows = {}
    for case, name in names.items():
        with LOG.open("rb") as file:
            monkeypatch.setattr("sys.stdin", type("", (), {"buffer": file}))
            assert main(["ingest", name, "-o", str(tmp_path / case), "-q"]) == 0
        rows[case] = read_trace(tmp_path / case).table.to_pydict()
    assert all(row == rows["plain"] for row in rows.values())


def test_without_names_the_agents_folders_are_read(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CODEX_HOME", str(SAMPLES))
    assert main(["ingest", "-o", str(out), "-q"]) == 0
    assert len(read_trace(out)) == 220


def test_without_logs_it_says_what_to_name(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "none"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert main(["ingest", "-o", str(out)]) == 2
    assert "no agents' logs on this machine" in capsys.readouterr().err


BAD = {
    "empty.jsonl": (b"", "empty file"),
    "nul.jsonl": (b"\0" * 4096 + b"\n", "not a log that we know"),
    "text.jsonl": (b"hello\n", "text that is not JSON"),
    "other.jsonl": (b'{"a": 1}\n', "JSON of another shape"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_line_and_exit_2(
    name: str, tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, message = BAD[name]
    (tmp_path / name).write_bytes(data)
    assert main(["ingest", str(tmp_path / name), "-o", str(out)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"agentkv-trace: {tmp_path / name}: ")
    assert message in said
    assert said.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == [tmp_path / name]


def test_a_folder_without_logs(
    tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ingest", str(tmp_path), "-o", str(out)]) == 2
    assert f"{tmp_path}: no logs below this folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"", None),
        (b"\0" * 4096 + b"\n", "line of NUL bytes"),
        (b"\xff\xfe{\n", "damaged line"),
        (zstd(LOG.read_bytes())[:-1000], "compressed file breaks off"),
        (b'{"timestamp":"2026-10-05T08:00:14.603Z","type":"session_me\n', "damaged line"),
    ],
    ids=["empty", "nul", "utf8", "zst", "torn"],
)
def test_a_good_session_beside_a_bad_one_is_read(
    bad: bytes, reason: str | None, tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "sessions"
    logs.mkdir()
    shutil.copy(LOG, logs)
    alone = tmp_path / "alone.parquet"
    assert main(["ingest", str(logs), "-o", str(alone), "-q"]) == 0
    name = "rollout-2026-10-05T09-00-00-01a10b4a-0000-7000-8000-000000000000.jsonl"
    (logs / (name + ".zst" * bad.startswith(b"(\xb5"))).write_bytes(bad)
    assert main(["ingest", str(logs), "-o", str(out)]) == 0
    assert len(read_trace(out)) >= len(read_trace(alone))
    said = capsys.readouterr().err
    assert "2 files" in said
    if reason:
        assert f"skipped: 1 x {reason} ({logs / name}" in said
        skipped = json.loads(pl.read_parquet_metadata(out)["agentkv_trace"])["sources"]["codex"]
        assert skipped["skipped"] == {reason: 1}
        assert main(["ingest", str(logs), "-o", str(out), "--strict", "--force"]) == 2
        assert reason in capsys.readouterr().err


def test_a_very_long_line_is_skipped_without_being_held(
    tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / LOG.name
    head, rest = LOG.read_bytes().split(b"\n", 1)
    with log.open("wb") as file:
        file.write(head + b"\n")
        # A hole in the file: 200 MiB that take no disk.
        file.seek(200 << 20, 1)
        file.write(b"x\n" + rest)
    assert main(["ingest", str(log), "-o", str(out)]) == 0
    assert f"skipped: 1 x line too long ({log}:2)" in capsys.readouterr().err
    assert main(["ingest", str(LOG), "-o", str(tmp_path / "whole"), "-q"]) == 0
    assert read_trace(out).table.to_pydict() == read_trace(tmp_path / "whole").table.to_pydict()


def test_nothing_but_a_very_long_line(
    tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "rollout-x.jsonl"
    with log.open("wb") as file:
        file.write(
            b'{"timestamp":"2026-10-05T08:00:14.603Z","type":"session_meta","payload":{"id":"'
        )
        file.seek(200 << 20, 1)
        file.write(b'"}}\n')
    assert main(["ingest", str(log), "-o", str(out)]) == 2
    said = capsys.readouterr().err
    assert "line too long" in said
    assert said.count("\n") == 1
    assert not out.exists()


def test_a_salted_trace_has_other_keys_and_the_same_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    curves, keys = [], []
    for number, salt in enumerate([[], ["--salt", "secret"]]):
        out = tmp_path / f"{number}.parquet"
        assert main(["ingest", str(LOG), *salt, "-o", str(out), "-q"]) == 0
        assert main(["mrc", str(out), "--format", "json"]) == 0
        curves.append(capsys.readouterr().out)
        keys.append(set(read_trace(out).new_chunks()[1].tolist()))
    assert curves[0] == curves[1]
    assert keys[0].isdisjoint(keys[1])


def test_no_word_of_a_prompt_is_in_the_trace(out: Path) -> None:
    assert main(["ingest", str(LOG), "-o", str(out), "-q"]) == 0
    words = {w for line in LOG.read_text().split("\n") for w in line.split() if len(w) > 12}
    stored = out.read_bytes().decode("latin-1")
    assert len(words) > 100
    assert not [word for word in words if word in stored]


def test_request_logs_beside_an_agents_own_are_not_counted_twice(tmp_path: Path, out: Path) -> None:
    shutil.copy(LOG, tmp_path)
    body = {"model": "m", "messages": [{"role": "user", "content": "high tide?"}]}
    record = {"body": body, "usage": {"prompt_tokens": 9, "completion_tokens": 1}}
    requests = tmp_path / "requests.jsonl"
    requests.write_text(json.dumps(record) + "\n")
    assert main(["ingest", str(tmp_path), "-o", str(out), "-q"]) == 0
    assert set(read_trace(out).frame()["source"].cast(str)) == {"codex"}
    assert main(["ingest", str(requests), "-o", str(out), "-q", "--force"]) == 0
    assert len(read_trace(out)) == 1
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(requests, alone)
    assert main(["ingest", str(alone), "-o", str(out), "-q", "--force"]) == 0
    assert len(read_trace(out)) == 1


def test_several_jobs_count_and_fail_like_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkv_trace.ingest.parallel.BATCH_BYTES", 1)
    logs = tmp_path / "sessions"
    shutil.copytree(SAMPLES, logs)
    bad = (
        logs / "sessions" / "rollout-2026-10-05T09-00-00-01a10b4a-0000-7000-8000-000000000000.jsonl"
    )
    bad.write_bytes(b"\0" * 99 + b"\n")
    said = []
    for jobs in ("1", "3"):
        out = tmp_path / jobs
        assert main(["ingest", str(logs), "-o", str(out), "--jobs", jobs]) == 0
        said.append(capsys.readouterr().err.replace(str(out), "OUT"))
    assert said[0] == said[1]
    assert "skipped: 1 x line of NUL bytes" in said[0]
    assert (tmp_path / "1").read_bytes() == (tmp_path / "3").read_bytes()
    words = ["ingest", str(logs), "-o", str(tmp_path / "s"), "--jobs", "3", "--strict"]
    assert main(words) == 2
    assert "line of NUL bytes" in capsys.readouterr().err


def test_one_bad_name_loses_no_other(
    tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty, odd = tmp_path / "empty.jsonl", tmp_path / "odd.bin"
    empty.touch()
    odd.write_bytes(b"\x7fELF\0")
    names = [str(LOG), str(empty), str(odd), str(tmp_path / "none*")]
    assert main(["ingest", *names, "-o", str(out)]) == 0
    said = capsys.readouterr().err
    assert f"skipped: {empty}: empty file" in said
    assert f"skipped: {odd}: not a log that we know" in said
    assert f"skipped: {tmp_path / 'none*'}: no file matches" in said
    assert main(["ingest", *names, "-o", str(out), "--force", "--strict"]) == 2
    assert main(["ingest", *names[1:], "-o", str(out), "--force"]) == 2


def test_a_pipe_is_not_waited_for(
    tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert main(["ingest", str(tmp_path / "pipe"), "-o", str(out)]) == 2
    assert "pipe it in and name it -" in capsys.readouterr().err


def test_options_for_logs_are_not_ignored_on_traces(
    tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ingest", str(LOG), "-o", str(out), "-q"]) == 0
    words = ["ingest", str(out), "-o", str(tmp_path / "again.parquet")]
    for extra, message in (
        (["--salt", "s"], "a trace's keys are made"),
        (["--salt", ""], "must not be empty"),
        (["--bytes-per-token", "3"], "only for logs"),
        (["--chunk-tokens", "24"], "must be a multiple of the trace's 16"),
        (["--chunk-tokens", "9999999999999999"], "must be a multiple of the trace's 16"),
    ):
        assert main([*words, *extra]) == 2
        assert message in capsys.readouterr().err
    assert main([*words, "--chunk-tokens", "64", "-q"]) == 0
    assert read_trace(tmp_path / "again.parquet").meta.chunk_tokens == 64


def test_traces_of_two_salts_do_not_merge(
    tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for salt in "ab":
        assert main(["ingest", str(LOG), "--salt", salt, "-o", str(tmp_path / salt), "-q"]) == 0
    assert main(["ingest", str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(out)]) == 2
    assert "traces do not merge: salt is" in capsys.readouterr().err


def test_two_parts_of_a_foreign_trace_merge_whole(tmp_path: Path, out: Path) -> None:
    rows = [
        {"timestamp": 1000 * n, "input_length": 1024, "output_length": 5, "hash_ids": [0, n]}
        for n in range(1, 7)
    ]
    for name, part in (("a", rows[:3]), ("b", rows[3:])):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in part))
        words = ["ingest", f"mooncake:{tmp_path / name}", "-o", str(tmp_path / f"{name}.parquet")]
        assert main([*words, "-q"]) == 0
    parts = [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]
    assert main(["ingest", *parts, parts[0], "-o", str(out), "-q"]) == 0
    assert len(read_trace(out)) == 6


def test_damaged_keys_are_found_by_their_checksum(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ingest", str(SAMPLES), "-o", str(out), "-q"]) == 0
    data = bytearray(out.read_bytes())
    data[20_000:20_400] = b"\xff" * 400
    out.write_bytes(bytes(data))
    assert main(["mrc", str(out), "--engine", "chunk"]) == 2
    assert "ingest again" in capsys.readouterr().err
