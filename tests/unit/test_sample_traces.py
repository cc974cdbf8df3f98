"""The sample logs can be made again, add up, and share shapes but no words with real ones."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SAMPLES = Path(__file__).parents[2] / "sample_traces"
LOGS = sorted((SAMPLES / "codex").rglob("*.jsonl"))
LONG_LINE = 40
BOOKKEEPING = ("id", "internal_chat_message_metadata_passthrough")

Json = dict[str, Any]
Shape = tuple[str, str, Any]


def records(paths: Iterable[Path]) -> Iterator[Json]:
    for path in paths:
        with path.open(encoding="utf-8", newline="\n") as lines:
            yield from map(json.loads, lines)


def kind(record: Json) -> str:
    payload = record["payload"]
    item = payload.get("item", {})
    names = (record["type"], payload.get("type"), payload.get("role"), item.get("type"))
    return "/".join(name for name in names if name)


def shapes(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys of each object, in their order, and the JSON type of everything else."""
    if isinstance(value, dict):
        # Keys that are paths or ids are data, not shape.
        keys = ["*" if re.search(r"/|[0-9a-f]{8}-", key) else key for key in value]
        yield path, tuple(keys)
        for key, inner in zip(keys, value.values(), strict=True):
            yield from shapes(inner, f"{path}.{key}")
    elif isinstance(value, list):
        yield path, "list"
        for inner in value:
            yield from shapes(inner, f"{path}[]")
    else:
        yield path, type(value).__name__


def all_shapes(found: Iterable[Json]) -> set[Shape]:
    return {(kind(record), *shape) for record in found for shape in shapes(record)}


def long_lines(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from (line for part in value.splitlines() if len(line := part.strip()) >= LONG_LINE)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from long_lines(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from long_lines(inner)


def contained(needles: set[str], haystacks: set[str]) -> set[str]:
    """Return the needles that are part of a haystack."""
    by_start: dict[str, list[str]] = {}
    for needle in needles:
        by_start.setdefault(needle[:LONG_LINE], []).append(needle)
    found = set()
    for line in haystacks:
        for begin in range(len(line) - LONG_LINE + 1):
            for needle in by_start.get(line[begin : begin + LONG_LINE], ()):
                if line.startswith(needle, begin):
                    found.add(needle)
    return found


@pytest.fixture(scope="module")
def captured(shared: Path) -> list[Path]:
    return sorted((shared / "captures/codex").glob("*/logs/**/*.jsonl"))


def test_making_them_again_gives_the_same_bytes(tmp_path: Path) -> None:
    script = [sys.executable, str(SAMPLES / "make_codex.py"), str(tmp_path)]
    subprocess.run(script, check=True, capture_output=True)
    again = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*.jsonl")}
    assert again == {path.relative_to(SAMPLES / "codex"): path.read_bytes() for path in LOGS}


def test_records_have_the_shapes_of_real_ones(captured: list[Path]) -> None:
    assert all_shapes(records(LOGS)) - all_shapes(records(captured)) == set()


def test_every_kind_of_real_record_has_a_sample(captured: list[Path]) -> None:
    assert {kind(r) for r in records(captured)} == {kind(r) for r in records(LOGS)}


def test_no_line_of_text_is_shared_with_real_logs(shared: Path, captured: list[Path]) -> None:
    captured = captured + sorted((shared / "captures/codex-versions").rglob("rollout-*.jsonl"))
    ours = {line for record in records(LOGS) for line in long_lines(record)}
    theirs = {line for record in records(captured) for line in long_lines(record)}
    assert contained(theirs, ours) == set()
    assert contained(ours, theirs) == set()


def test_a_shared_line_would_be_found() -> None:
    line = "a line that is long enough to be looked for"
    assert contained({line}, {f"some words, then {line}, then more"}) == {line}
    assert contained({line}, {line[:-1]}) == set()


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem[8:27])
def test_lines_are_numbered_and_in_order_of_time(path: Path) -> None:
    found = list(records([path]))
    assert [record["ordinal"] for record in found] == list(range(len(found)))
    stamps = [record["timestamp"] for record in found]
    assert stamps == sorted(stamps)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem[8:27])
def test_usage_adds_up(path: Path) -> None:
    total: dict[str, int] = {}
    for record in records([path]):
        if record["type"] == "token_usage_record":
            usage = record["payload"]["usage"]
            total = {key: total.get(key, 0) + value for key, value in usage.items()}
            assert record["payload"]["thread_token_usage"] == total
            assert usage["cached_input_tokens"] % 128 == 0
            assert usage["cached_input_tokens"] <= usage["input_tokens"]
            assert usage["reasoning_output_tokens"] < usage["output_tokens"]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem[8:27])
def test_prompts_are_the_items_before_them_and_one_constant_head(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SAMPLES))
    from codex_session import BYTES_PER_TOKEN

    def size(item: Json) -> int:
        sent = {key: value for key, value in item.items() if key not in BOOKKEEPING}
        text = json.dumps(sent, separators=(",", ":"), ensure_ascii=False)
        return math.ceil(len(text.encode()) / BYTES_PER_TOKEN)

    heads: dict[bool, set[int]] = {False: set(), True: set()}
    visible: dict[int, int] = {}
    outputs: dict[int, int] = {}
    notes = 0
    for record in records([path]):
        payload = record["payload"]
        if record["type"] == "response_item":
            meta = record["metadata"]
            place, prompt_end = meta["history_sequence"], meta["sampled_through_sequence"]
            if meta.get("compaction_output"):
                notes = size(payload)
            else:
                visible[place] = size(payload)
                outputs[place] = prompt_end
        elif record["type"] == "compacted":
            places = [meta["history_sequence"] for meta in payload["replacement_history_metadata"]]
            sizes = map(size, payload["replacement_history"])
            visible, outputs = dict(zip(places, sizes, strict=True)), dict.fromkeys(places, 0)
        elif record["type"] == "token_usage_record":
            end = max(visible) if notes else max(outputs.values())
            prompt = sum(tokens for place, tokens in visible.items() if place <= end)
            output = notes or sum(tokens for place, tokens in visible.items() if place > end)
            heads[bool(notes)].add(payload["usage"]["input_tokens"] - prompt)
            assert payload["usage"]["output_tokens"] == output
            notes = 0
    assert len(heads[False]) == 1
    assert len(heads[True]) <= 1


def test_the_readme_gives_the_true_figures() -> None:
    readme = (SAMPLES / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`\d.*?) \| ([\d, ]+) \| ([\d,]+) to ([\d,]+) \|", readme, re.MULTILINE)
    told: set[str] = set()
    for names, calls, least, most in rows:
        starts = re.findall(r"[\d-]{8}", names)
        paths = [path for start in starts for path in LOGS if f"T{start}-" in path.name]
        prompts = [
            [
                record["payload"]["usage"]["input_tokens"]
                for record in records([path])
                if record["type"] == "token_usage_record"
            ]
            for path in paths
        ]
        assert ", ".join(str(len(tokens)) for tokens in prompts) == calls
        assert f"{min(map(min, prompts)):,}" == least
        assert f"{max(map(max, prompts)):,}" == most
        told |= {path.name for path in paths}
    assert told == {path.name for path in LOGS}
