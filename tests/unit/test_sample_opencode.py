"""OpenCode's sample logs can be made again, add up, and hold no words of real ones."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkv_trace.ingest.opencode import calls, paths
from agentkv_trace.notes import Notes
from opencode_logs import spelled

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLES = Path(__file__).parents[2] / "sample_traces"
HEADS = {"opencode": 6840, "opencode:general": 6020}
LONG = 40


def test_the_same_code_makes_the_same_logs(tmp_path: Path) -> None:
    command = [sys.executable, str(SAMPLES / "make_opencode.py"), str(tmp_path)]
    subprocess.run(command, check=True)
    kept = {path.name: path.read_bytes() for path in (SAMPLES / "opencode").iterdir()}
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept
    assert sum(map(len, kept.values())) < 1_000_000


def test_usage_follows_from_the_prompts() -> None:
    notes = Notes()
    found = list(calls.read(paths.find(SAMPLES / "opencode"), notes))
    assert not notes.skipped
    for call in found:
        if call.kind == "compaction":
            continue
        sizes = [
            math.ceil(
                len(json.dumps(one, ensure_ascii=False, separators=(",", ":")).encode()) / 3.1
            )
            for one in spelled(call.prompt)
        ]
        assert call.logged_prompt_tokens == HEADS[call.agent] + sum(sizes)
    kinds = Counter(call.kind for call in found)
    assert kinds == {"turn": 67, "fold": 3, "compaction": 2, "subagent": 2}


def test_sub_agents_work_at_the_same_time() -> None:
    found = list(calls.read(paths.find(SAMPLES / "opencode"), Notes()))
    spans: dict[str, list[int]] = {}
    for call in found:
        if call.parent_session:
            spans.setdefault(call.session, []).extend((call.start_us, call.end_us))
    one, other = spans.values()
    assert max(min(one), min(other)) < min(max(one), max(other))


def test_no_words_of_real_logs(shared: Path) -> None:
    real: set[str] = set()
    for path in (shared / "captures" / "opencode").glob("*/exports/*.json"):
        real |= set(long_lines(path.read_text(errors="replace")))
    made: set[str] = set()
    for path in (SAMPLES / "opencode").iterdir():
        made |= set(long_lines(path.read_text()))
    assert len(made) > 1000
    assert not real & made


def compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def long_lines(text: Any) -> Iterator[str]:
    """Yield what stands on a line of a text inside JSON, if it is long."""
    for line in text.replace("\\n", "\n").split("\n"):
        if len(line := line.strip()) >= LONG and not line.startswith(('"snapshot"', '"id"')):
            yield line
