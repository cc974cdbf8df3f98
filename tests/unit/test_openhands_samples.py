"""The sample logs of OpenHands can be made again and share shapes but no words with real ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.ingest.openhands import calls, paths
from agentkv_trace.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLES = Path(__file__).parents[2] / "sample_traces"
FOLDER = SAMPLES / "openhands"
LONG_LINE = 60
"""Shorter lines may be the few words that OpenHands itself puts around what tools give."""

Json = dict[str, Any]


def records(folder: Path) -> Iterator[tuple[str, Json]]:
    for path in sorted(folder.rglob("*.json")):
        record = json.loads(path.read_bytes())
        inner = record.get("observation") or record.get("action") or {}
        yield f"{record.get('kind', 'state')}/{inner.get('kind', '')}", record


def shapes(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the keys of each object, in their order, and the JSON type of everything else."""
    if isinstance(value, dict):
        keys = tuple(key for key in value if not key.startswith("task:"))
        yield path, keys
        for key in keys:
            yield from shapes(value[key], f"{path}.{key}")
    elif isinstance(value, list):
        yield path, "list"
        for inner in value:
            yield from shapes(inner, f"{path}[]")
    else:
        yield path, type(value).__name__


def all_shapes(folder: Path) -> set[tuple[str, Any]]:
    """Return the shapes of events and states, and those of actions and observations by kind."""
    found: set[tuple[str, Any]] = set()
    for _, record in records(folder):
        for key in ("action", "observation"):
            if isinstance(record.get(key), dict):
                found |= set(shapes(record[key], record[key]["kind"]))
                record[key] = None
        found |= set(shapes(record, record.get("kind", "state")))
    return found


def lines(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from (line for part in value.splitlines() if len(line := part.strip()) >= LONG_LINE)
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from lines(inner)


@pytest.fixture(scope="module")
def captured(shared: Path) -> Path:
    return shared / "captures/openhands"


def test_making_them_again_gives_the_same_bytes(tmp_path: Path) -> None:
    script = [sys.executable, str(SAMPLES / "make_openhands.py"), str(tmp_path)]
    subprocess.run(script, check=True, capture_output=True)
    again = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*.json")}
    assert again == {path.relative_to(FOLDER): path.read_bytes() for path in FOLDER.rglob("*.json")}
    assert sum(map(len, again.values())) < 1_000_000


def test_records_have_the_shapes_of_real_ones(captured: Path) -> None:
    # Completions vary with the server's answers and are left out.
    theirs = set().union(*map(all_shapes, captured.glob("*/logs/*/persist")))
    assert all_shapes(FOLDER / "conversations") - theirs == set()


def test_every_kind_of_real_event_has_a_sample(captured: Path) -> None:
    theirs = {kind for folder in captured.glob("*/logs/*/persist") for kind, _ in records(folder)}
    assert theirs == {kind for kind, _ in records(FOLDER / "conversations")}


def test_no_line_of_text_is_shared_with_real_logs(captured: Path) -> None:
    ours = {line for _, one in records(FOLDER) for line in lines(one)}
    theirs = {line for _, one in records(captured) for line in lines(one)}
    assert ours & theirs == set()
    assert len(ours) > 100


def test_they_are_read_as_the_readme_says() -> None:
    notes = Notes(strict=True)
    found = list(calls.read(paths.find(FOLDER), notes))
    counts = Counter(call.session[:8] for call in found if call.parent_session is None)
    table = (FOLDER / "README.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `(\w{8})` \| (\d+) \|", table, re.MULTILINE)
    assert {name: int(number) for name, number in told} == counts
    children = Counter(call.session for call in found if call.parent_session is not None)
    assert list(children.values()) == [5, 5]
    assert Counter(call.kind for call in found if call.kind != "turn") == {
        "compaction": 3,
        "fold": 3,
        "subagent": 2,
    }
    assert [call.usage_source for call in found].count("none") == 1
    assert not notes.skipped
