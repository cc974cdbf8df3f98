"""The fixed call lists and what the real engines hit on them."""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentkv_trace.tiers.stream import CallStream, call_stream

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"
# Without the compiler only the lists of a few thousand references finish.
SMALL = 5_000


@dataclass(frozen=True)
class CallList:
    stream: CallStream
    output_tokens: np.ndarray


@cache
def read_list(name: str) -> CallList:
    with gzip.open(GOLDEN / f"{name}.requests.jsonl.gz") as lines:
        calls = [json.loads(line) for line in lines]
    paths = [call["ids"] for call in calls]
    stream = call_stream(
        np.array([chunk for path in paths for chunk in path], dtype=np.uint64),
        np.cumsum([0, *map(len, paths)]),
        [call["prompt_tokens"] for call in calls],
        calls[0]["block_tokens"],
    )
    return CallList(stream, np.array([call["output_tokens"] for call in calls]))


def results(engine: str) -> list[Any]:
    """Return one parameter per list with a result of this engine; one that skips if none."""
    # Not a glob of every JSON: "vllm" must not match "vllm_offload".
    files = sorted(f for s in ("json", "json.gz") for f in GOLDEN.glob(f"*.{engine}.{s}"))
    if not files:
        reason = "needs the golden data in ../shared, which is not in this repo"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason))]
    return [pytest.param(file, id=file.name.partition(".")[0]) for file in files]


def read(file: Path) -> tuple[CallList, dict[str, Any]]:
    name = file.name.partition(".")[0]
    data = file.read_bytes()
    calls = read_list(name)
    if len(calls.stream.ids) > SMALL and _without_compiler():
        pytest.skip(f"{len(calls.stream.ids)} references take minutes without the compiler")
    return calls, json.loads(gzip.decompress(data) if file.suffix == ".gz" else data)


def first_calls(calls: CallList, count: int) -> CallList:
    """Return the list's first calls, as a list of its own."""
    stream = calls.stream
    if count == stream.calls:
        return calls
    end = stream.offsets[count]
    head = call_stream(
        stream.ids[:end],
        stream.offsets[: count + 1],
        stream.prompt_tokens[:count],
        stream.chunk_tokens,
    )
    return CallList(head, calls.output_tokens[:count])


def sizes_and_hits(result: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the capacities, int64[k], and the hits in chunks of each call, int64[k, calls]."""
    points = result["capacities"]
    hits = np.array([point["per_request_hits"] for point in points])
    assert (hits % result["block_tokens"] == 0).all()
    return np.array([p["usable_blocks"] for p in points]), hits // result["block_tokens"]


def points_off(calls: CallList, model: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Return how far a model's hit ratio is off per capacity, in points: float[k]."""
    tokens = (model - real).sum(axis=-1) * calls.stream.chunk_tokens
    return 100 * tokens / calls.stream.prompt_tokens.sum()


def report(title: str, lines: list[str]) -> None:
    """Show figures beside the verdict; they appear with -s or where a test fails."""
    sys.stdout.write("\n".join([f"\n{title}", *lines, ""]))


def _without_compiler() -> bool:
    import numba

    return bool(numba.config.DISABLE_JIT)
