"""How much of each prompt is its base's prefix, against the requests that were really sent."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.ingest.registry import SOURCES
from agentkv_trace.notes import Notes
from agentkv_trace.trace.build import TraceBuilder
from agentkv_trace.trace.tokenizers import load
from conftest import SHARED

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.store import Trace

READERS = {source.name: source for source in SOURCES}
CAPTURES = sorted(
    wire.parent
    # Captures of other OpenCode versions do not tell title requests from calls.
    for group in (*READERS, "codex-versions")
    for wire in (SHARED / "captures" / group).glob("*/wire.jsonl.gz")
)
pytestmark = pytest.mark.skipif(
    not CAPTURES, reason="needs the captures in ../shared, which are not in this repo"
)

POINTS = {"bytes": 4.0, "o200k": 2.0}
"""Bytes per token differ between JSON and prose, so shares by bytes are not those by tokens."""

SHORT_TOKENS = {"mini-swe": 2000}
"""Prompts below this are mostly one text, whose bytes per token are not the trace's: printed only.

Of mini-swe-agent's first prompts, 800 tokens of prose, the shares are up to 6.4 points off.
"""

SESSION_HEADERS = (
    "thread-id",
    "x-session-id",
    "x-litellm-session-id",
    "x-claude-code-agent-id",
    "x-claude-code-session-id",
)


def trace_of(folder: Path, tokenizer: str) -> Trace:
    group = folder.parent.name
    source = READERS.get(group) or READERS[group.partition("-")[0]]
    with TraceBuilder(load(tokenizer)) as builder:
        for call in source.calls.read(source.paths.find(folder), Notes()):
            builder.add(call)
        return builder.finish({})


def shares_on_the_wire(folder: Path) -> dict[str, list[float | None]]:
    """Return, by session, the share of each successful request that an earlier one had.

    None where an earlier one was a failed try of the same request, which is in no log, and for
    a compaction that a new process begins with: of its other tools no log tells.
    """
    with gzip.open(folder / "wire.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    rows.sort(key=lambda row: row.get("t_start") or row["t_recv"])
    shares: dict[str, list[float | None]] = defaultdict(list)
    earlier: list[bytes] = []
    failed: list[Any] = []
    tools: dict[str, Any] = {}
    for row in rows:
        if "lcp_tokens" in row:
            share = row["lcp_tokens"] / row["prompt_tokens"]
        else:
            prompt = prompt_bytes(row["body"])
            share = max(shared_bytes(prompt, one) for one in [b"", *earlier]) / len(prompt)
            earlier.append(prompt)
        if row.get("status", 200) != 200 or row.get("dropped"):
            failed.append(row["body"])
        elif row.get("kind") != "title":
            session, sent = session_of(row), row["body"].get("tools")
            unseen = row.get("kind") == "compact" and sent and sent != tools.get(session, sent)
            tools[session] = sent
            shares[session].append(None if unseen or row["body"] in failed else share)
    return shares


def session_of(row: Any) -> str:
    headers = {name.lower(): value for name, value in row.get("headers", {}).items()}
    found = next((headers[name] for name in SESSION_HEADERS if name in headers), None)
    return plain(found or row["body"].get("prompt_cache_key") or row.get("session") or "")


def plain(session: str) -> str:
    return session.replace("-", "")


def prompt_bytes(body: Any) -> bytes:
    items = body["input"] if "input" in body else body["messages"]
    items = [{key: value for key, value in item.items() if key != "id"} for item in items]
    parts = [compact(body.get("tools", [])), body.get("instructions", ""), *map(compact, items)]
    return "".join(parts).encode()


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def shared_bytes(one: bytes, other: bytes) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@pytest.mark.parametrize("tokenizer", POINTS)
@pytest.mark.parametrize("folder", CAPTURES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_share_of_each_prompt_that_is_its_bases_prefix(folder: Path, tokenizer: str) -> None:
    if tokenizer != "bytes":
        pytest.importorskip("bpe_openai")
        if folder.parent.name.endswith("-versions"):
            pytest.skip("no shares by tokens were measured for this capture")
    trace = trace_of(folder, tokenizer)
    wire = shares_on_the_wire(folder)
    base, base_chunks = trace.array("base"), trace.array("base_chunks")
    prompt_chunks, index = trace.array("prompt_chunks"), trace.array("index")
    worst = 0.0
    for call, session in enumerate(trace.frame()["session"].cast(str)):
        # Some logs name no session on the wire; there is one.
        theirs = (wire.get(plain(session)) or next(iter(wire.values())))[index[call]]
        chunks = int(prompt_chunks[call])
        # On the wire outputs of earlier calls do not count as shared until they are resent.
        of_base = int(prompt_chunks[base[call]]) if base[call] >= 0 else 0
        ours = min(int(base_chunks[call]), of_base, chunks) / chunks
        if theirs is None:
            continue
        points = 100 * (ours - theirs)
        if tokenizer == "bytes" and 16 * chunks < SHORT_TOKENS.get(folder.parent.name, 0):
            print(f"short prompt {index[call]} of {session}: {points:+.1f} points")  # noqa: T201
            continue
        if index[call] == 0:
            # Part of a head that no log holds may be shared with another session.
            print(f"first call of {session}: {points:+.1f} points")  # noqa: T201
            continue
        worst = max(worst, abs(points))
        assert abs(points) <= POINTS[tokenizer] + 100 / chunks, f"call {index[call]} of {session}"
    print(f"worst: {worst:.1f} points")  # noqa: T201
