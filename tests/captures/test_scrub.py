"""Scrubbed logs against their originals: every sample and every capture, by the traces they give.

A database's size in bytes is the one count that may differ: tables that no reader needs are gone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from agentkv_trace.ingest.scrub.rules import Form
from conftest import REPO, SHARED
from scrubbing import Logs, assert_same_trace, kept_words, trace_of, words, words_in_place

if TYPE_CHECKING:
    from pathlib import Path

AGENTS = ("codex", "opencode", "openhands", "claude")
SAMPLES = [f"{name}:{REPO / 'sample_traces' / name}" for name in AGENTS]
GROUPS = {
    "codex": "codex",
    "codex-versions": "codex",
    "opencode": "opencode",
    "opencode-versions": "opencode",
    "openhands": "openhands",
    "mini-swe": "mini-swe",
    "claude": "claude",
}
"""Folders of captures, and whose logs are in them."""
CAPTURES = [
    f"{source}:{wire.parent}"
    for group, source in GROUPS.items()
    for wire in sorted((SHARED / "captures" / group).glob("*/wire.jsonl.gz"))
]
WIRES = [
    f"requests:{SHARED / 'captures' / agent / scenario / 'wire.jsonl.gz'}"
    for agent in ("claude", "codex", "opencode", "openhands")
    for scenario in ("compaction", "subagents")
    if CAPTURES
]
"""What was sent, as request logs of all APIs."""


@pytest.fixture(
    params=SAMPLES + CAPTURES + WIRES,
    ids=lambda name: "/".join(name.removesuffix("/wire.jsonl.gz").split("/")[-2:]),
)
def logs(request: pytest.FixtureRequest) -> Logs:
    return Logs(request.param)


def test_a_scrubbed_log_gives_the_same_trace(logs: Logs, tmp_path: Path) -> None:
    logs.scrubbed(tmp_path / "out")
    after = trace_of(f"{logs.source.name}:{tmp_path / 'out'}")
    assert_same_trace(trace_of(logs.name), after)


def test_and_scrubbed_again_gives_it_still(logs: Logs, tmp_path: Path) -> None:
    logs.scrubbed(tmp_path / "once")
    once = Logs(f"{logs.source.name}:{tmp_path / 'once'}")
    once.scrubbed(tmp_path / "twice", "another seed")
    twice = trace_of(f"{logs.source.name}:{tmp_path / 'twice'}")
    assert_same_trace(trace_of(once.name), twice)


def test_no_word_survives_but_those_in_the_table(logs: Logs, tmp_path: Path) -> None:
    found = logs.scrubbed(tmp_path / "one")
    kept = kept_words(logs, [original for original, _ in found])
    for (name, before), (_, after) in found:
        assert len(before) == len(after), name
        assert words_in_place(before, after) <= kept, name
    # Elsewhere a word may come up by chance, which is another word for another seed.
    other = logs.scrubbed(tmp_path / "other", "another seed")
    originals = {word for (_, data), _ in found for word in words(data)}
    survivors = originals - kept
    for copies in (found, other):
        survivors &= {word for _, (_, data) in copies for word in words(data)}
    assert survivors == set()


def test_nor_in_the_names_of_files(logs: Logs, tmp_path: Path) -> None:
    logs.scrubbed(tmp_path / "out")
    known = {
        b"sessions", b"rollout", b"jsonl", b"trace", b"manifest", b"json", b"payloads",
        b"opencode", b"storage", b"session", b"message", b"part", b"events", b"event",
        b"base", b"state", b"subagents", b"completions", b"conversations", b"model", b"lab",
        b"openai", b"tide", b"wire", b"traj", b"meta",
    }  # fmt: skip
    for path, copy in logs.copies.items():
        # Models and numbers stay in the names of completions.
        name = re.sub(r"-[0-9a-f]{4}\.json$", ".json", str(copy.relative_to(tmp_path / "out")))
        assert words(str(path).encode()) & words(name.encode()) <= known


def test_what_a_database_leaves_out_is_in_no_page_of_the_copy(logs: Logs, tmp_path: Path) -> None:
    databases = [each for each in logs.members[logs.source] if each.form is Form.database]
    if not databases:
        pytest.skip("has no database")
    found = logs.scrubbed(tmp_path / "out")
    kept = kept_words(logs, [original for original, _ in found])
    kept |= {b"SQLite", b"format", b"CREATE", b"TABLE", b"INDEX", b"table", b"index"}
    for path in (tmp_path / "out").rglob("*.db"):
        columns = {word for (name, _), _ in found for word in words(name)}
        originals = {word for (_, data), _ in found for word in words(data)}
        inside = {word for word in words(path.read_bytes()) if len(word) > 4}
        assert inside & originals <= kept | columns
