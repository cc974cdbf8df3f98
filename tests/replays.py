"""Small traces and settings for tests of replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from agentkv_trace.replay.setting import Setting, Speed, ideal
from agentkv_trace.tiers.backends import BACKENDS
from agentkv_trace.trace.ids import trace_from_ids
from agentkv_trace.trace.meta import TraceMeta
from agentkv_trace.trace.store import COLUMNS, Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

CHUNK = 16
STEPS = Speed(step_s=1.0)
"""Every step takes a second, whatever it does."""


def trace_of(
    paths: Sequence[Sequence[int]],
    *,
    sessions: Sequence[str] | None = None,
    starts: Sequence[int] | None = None,
    ends: Sequence[int] | None = None,
    parents: Sequence[str | None] | None = None,
    outputs: Sequence[int] | int = 1,
    tail: int = 0,
    **fields: Any,
) -> Trace:
    """Return a trace of prompts given as chunk ids, one call each; times in seconds."""
    count = len(paths)
    start = np.arange(count) * 10 if starts is None else np.array(starts)
    end = start if ends is None else np.array(ends)
    return trace_from_ids(
        session=["one"] * count if sessions is None else list(sessions),
        parent_session=None if parents is None else list(parents),
        t_start_us=start.astype(np.int64) * 1_000_000,
        t_end_us=end.astype(np.int64) * 1_000_000,
        prompt_tokens=[len(path) * CHUNK + tail for path in paths],
        output_tokens=np.broadcast_to(outputs, count).copy(),
        ids=np.array([chunk for path in paths for chunk in path], np.uint64),
        offsets=np.cumsum([0, *map(len, paths)]),
        chunk_tokens=CHUNK,
        **fields,
    )


def trace_of_columns(tree: dict[str, Any], session: Any, output: int = 1) -> Trace:
    """Return a trace of tree columns alone, a second apart: it has no keys."""
    count = len(session)

    def same(word: str) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([word]))

    codes = np.asarray(session, np.int32)
    names = [f"session {code}" for code in range(int(codes.max(initial=-1)) + 1)]
    start = np.arange(count, dtype=np.int64) * 1_000_000
    none = pa.nulls(count, pa.int32())
    columns = {
        "call": np.arange(count),
        "session": pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(names, pa.string())),
        "parent_session": pa.nulls(count, pa.dictionary(pa.int32(), pa.string())),
        "agent": same("made"),
        "model": same("made"),
        "source": same("made"),
        "index": np.zeros(count, np.int32),
        "t_start_us": start,
        "t_end_us": start + 500_000,
        "time_source": same("logged"),
        "prompt_tokens": tree["prompt_chunks"].astype(np.int64) * CHUNK,
        "output_tokens": np.full(count, output),
        "logged_prompt_tokens": none,
        "logged_cached_tokens": none,
        "usage_source": same("none"),
        **tree,
        "kind": same("turn"),
        "fidelity": same("exact"),
    }
    arrays = [
        columns[field.name]
        if isinstance(columns[field.name], pa.Array)
        else pa.array(columns[field.name]).cast(field.type)
        for field in COLUMNS
    ]
    return Trace(pa.table(arrays, COLUMNS), TraceMeta(CHUNK, {"name": "foreign"}))


def pool(chunks: int | None, **rules: Any) -> Setting:
    """Return plain LRU tiers of so many chunks, with some rules changed."""
    from dataclasses import replace

    tokens = None if chunks is None else chunks * CHUNK
    return replace(ideal(tokens), **rules)


def every_backend(pool_chunks: int, host_chunks: int, **rules: Any) -> list[Setting]:
    """Return a setting for each backend with a host tier, in the trace's chunks."""
    return [
        Setting(
            backend=backend,
            pool_tokens=pool_chunks * CHUNK,
            host_chunks=host_chunks,
            host_chunk_tokens=CHUNK,
            **rules,
        )
        for backend in BACKENDS.values()
    ]
