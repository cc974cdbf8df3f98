"""How much of each prompt is its base's prefix, against the requests that were really sent."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.ingest.codex import calls, paths
from agentkv_trace.notes import Notes
from agentkv_trace.trace.build import TraceBuilder
from conftest import SHARED

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.store import Trace

CAPTURES = sorted(
    wire.parent
    for group in ("codex", "codex-versions")
    for wire in (SHARED / "captures" / group).glob("*/wire.jsonl.gz")
)
pytestmark = pytest.mark.skipif(
    not CAPTURES, reason="needs the captures in ../shared, which are not in this repo"
)

POINTS = 4.0
"""Bytes per token differ between JSON and prose, so shares by bytes are not those by tokens."""


def trace_of(folder: Path) -> Trace:
    with TraceBuilder() as builder:
        for call in calls.read(paths.find(folder), Notes(strict=True)):
            builder.add(call)
        return builder.finish({})


def shares_on_the_wire(folder: Path) -> dict[str | None, list[float]]:
    """Return, by thread, the share of each successful request that an earlier one had."""
    with gzip.open(folder / "wire.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    rows.sort(key=lambda row: row.get("t_start") or row["t_recv"])
    shares: dict[str | None, list[float]] = defaultdict(list)
    earlier: list[bytes] = []
    for row in rows:
        if "lcp_tokens" in row:
            share = row["lcp_tokens"] / row["prompt_tokens"]
        else:
            prompt = prompt_bytes(row["body"])
            share = max(shared_bytes(prompt, one) for one in [b"", *earlier]) / len(prompt)
            earlier.append(prompt)
        if row.get("status", 200) == 200 and not row.get("dropped"):
            thread = row.get("headers", {}).get("thread-id") or row["body"].get("prompt_cache_key")
            shares[thread].append(share)
    return shares


def prompt_bytes(body: Any) -> bytes:
    items = [{key: value for key, value in item.items() if key != "id"} for item in body["input"]]
    parts = [compact(body.get("tools", [])), body.get("instructions", ""), *map(compact, items)]
    return "".join(parts).encode()


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def shared_bytes(one: bytes, other: bytes) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@pytest.mark.parametrize("folder", CAPTURES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_share_of_each_prompt_that_is_its_bases_prefix(folder: Path) -> None:
    trace = trace_of(folder)
    wire = shares_on_the_wire(folder)
    base, base_chunks = trace.array("base"), trace.array("base_chunks")
    prompt_chunks, index = trace.array("prompt_chunks"), trace.array("index")
    worst = 0.0
    for call, session in enumerate(trace.frame()["session"].cast(str)):
        # Bare items name no thread on the wire; there is one session.
        theirs = (wire.get(session) or next(iter(wire.values())))[index[call]]
        chunks = int(prompt_chunks[call])
        # On the wire outputs of earlier calls do not count as shared until they are resent.
        of_base = int(prompt_chunks[base[call]]) if base[call] >= 0 else 0
        ours = min(int(base_chunks[call]), of_base, chunks) / chunks
        points = 100 * (ours - theirs)
        if index[call] == 0:
            # Part of a head that no log holds may be shared with another session.
            print(f"first call of {session}: {points:+.1f} points")  # noqa: T201
            continue
        worst = max(worst, abs(points))
        assert abs(points) <= POINTS + 100 / chunks, f"call {index[call]} of {session}"
    print(f"worst: {worst:.1f} points")  # noqa: T201
