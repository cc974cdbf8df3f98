"""Claude Code's sample transcripts can be made again, add up, and hold no words of real ones."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from agentkv_trace.ingest.claude import calls, paths
from agentkv_trace.ingest.claude.relation import AGREES, COMPACTED, EXPIRED
from agentkv_trace.notes import Notes
from agentkv_trace.trace.build import TraceBuilder

SAMPLES = Path(__file__).parents[2] / "sample_traces"
LONG = 40


def kept(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_the_same_code_makes_the_same_transcripts(tmp_path: Path) -> None:
    command = [sys.executable, str(SAMPLES / "make_claude.py"), str(tmp_path)]
    subprocess.run(command, check=True)
    files = kept(SAMPLES / "claude")
    assert kept(tmp_path) == files
    assert sum(map(len, files.values())) < 1_000_000


def test_the_caches_record_agrees_but_for_a_pause_and_compactions() -> None:
    notes = Notes(strict=True)
    found = list(calls.read(paths.find(SAMPLES / "claude"), notes))
    kinds = Counter(call.kind for call in found)
    assert kinds == {"turn": 116, "resume": 2, "fold": 2, "compaction": 2, "subagent": 2}
    verdicts = {name: n for name, n in notes.counts.items() if name.startswith("cache reads")}
    assert verdicts == {
        f"cache reads {AGREES}": 112,
        f"cache reads {COMPACTED}": 2,
        f"cache reads {EXPIRED}": 1,
    }


def test_rebuilt_prompts_are_as_long_as_the_usage_says() -> None:
    with TraceBuilder() as builder:
        for call in calls.read(paths.find(SAMPLES / "claude"), Notes()):
            builder.add(call)
        trace = builder.finish({})
    frame = trace.frame()
    logged = frame["logged_prompt_tokens"]
    known = logged.is_not_null()
    off = (frame["prompt_tokens"] - logged).abs().filter(known) / logged.filter(known)
    assert off.max() < 0.03


def test_the_readme_gives_the_true_figures() -> None:
    readme = (SAMPLES / "README.md").read_text(encoding="utf-8")
    row = re.compile(r"^\| (?:session|agent) (`.*?) \| ([\d, ]+) \| ([\d,]+) to ([\d,]+) \|", re.M)
    prompts: dict[str, list[int]] = {}
    for call in calls.read(paths.find(SAMPLES / "claude"), Notes()):
        known = prompts.setdefault(call.session.removeprefix("a"), [])
        known += [call.logged_prompt_tokens] if call.logged_prompt_tokens is not None else []
    told: set[str] = set()
    for names, counts, least, most in row.findall(readme):
        starts = [name.removeprefix("a") for name in re.findall(r"`(\w+)\.\.`", names)]
        found = [key for start in starts for key in prompts if key.startswith(start)]
        assert ", ".join(str(len(prompts[key])) for key in found) == counts
        sizes = [size for key in found for size in prompts[key]]
        assert (f"{min(sizes):,}", f"{max(sizes):,}") == (least, most)
        told |= set(found)
    assert told == set(prompts)


def test_no_words_of_real_transcripts(shared: Path) -> None:
    real = long_lines((shared / "captures" / "claude").rglob("*.jsonl"))
    made = long_lines((SAMPLES / "claude").rglob("*.jsonl"))
    assert len(made) > 1000
    assert not real & made


def long_lines(files: object) -> set[str]:
    found: set[str] = set()
    for path in files:  # type: ignore[attr-defined]
        for line in path.read_text(errors="replace").replace("\\n", "\n").split("\n"):
            for part in line.split('"'):
                if len(part) >= LONG and not part.startswith("{"):
                    found.add(part)
    return found
