"""The calls of a trace in the order that N agents would make them, as a trace.

Agents take up one session after the other, each call lasts as long as it did in the log and tool
times are kept: no GPU is needed to tell the order, so one curve serves all of them.
"""

# ruff: noqa: TID253
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from agentkv_trace._jit import kernel
from agentkv_trace.engine.prefix_tree import reordered
from agentkv_trace.replay.heap import _push, _remove
from agentkv_trace.replay.timeline import Timeline, plan
from agentkv_trace.trace.store import COLUMNS, Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agentkv_trace.replay.timeline import Plan

_US = 1_000_000


def replayed_trace(trace: Trace, agents: int, *, seed: int = 0) -> tuple[Trace, tuple[str, ...]]:
    """Return the trace as `agents` agents would make it, and what was assumed for it.

    Closed-loop, in the order of the trace's sessions; copies of sessions stand in where the trace
    has fewer than `agents` (`replay.timeline`). Chunks keep what they share; keys are new.
    O(calls log calls). Raises InputError for a number below 1 and for an empty trace.
    """
    found = plan(trace, Timeline(agents=agents, seed=seed))
    lasts = (trace.array("t_end_us") - trace.array("t_start_us"))[found.call] / _US
    starts, order = _starts(found, lasts)
    tree = found.tree
    row = found.row[order]
    base, base_chunks = reordered(tree["base"], tree["base_chunks"], tree["path_chunks"], row)
    start = (starts[order] * _US).astype(np.int64)
    columns: dict[str, Any] = {
        "call": np.arange(order.size),
        "t_start_us": start,
        "t_end_us": start + (lasts[order] * _US).astype(np.int64),
        "base": base,
        "base_chunks": base_chunks,
        "prompt_chunks": tree["prompt_chunks"][row],
        "path_chunks": tree["path_chunks"][row],
        "session": _sessions(trace, found, order),
    }
    table = trace.table.take(pa.array(found.call[order]))
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        column = values if isinstance(values, pa.Array) else pa.array(values)
        table = table.set_column(at, COLUMNS.field(name), column.cast(COLUMNS.field(name).type))
    counts = columns["path_chunks"].astype(np.int64) - base_chunks
    offsets = np.concatenate([[0], np.cumsum(counts)])
    # A chunk is new once, so that its place is a key.
    keys = offsets, np.arange(offsets[-1], dtype=np.uint64)
    return Trace(table, trace.meta, keys=keys), found.notes


def _sessions(trace: Trace, found: Plan, order: NDArray[np.int64]) -> pa.Array:
    """Return the session of each call; copies of a session are sessions of their own."""
    codes, names = trace.codes("session")
    replayed = found.session[order]
    known, first = np.unique(replayed, return_index=True)
    source = codes[found.call[order]][first]
    seen: dict[int, int] = {}
    words = []
    for code in source.tolist():
        seen[code] = seen.get(code, 0) + 1
        words.append(names[code] if seen[code] == 1 else f"{names[code]} (copy {seen[code]})")
    indices = pa.array(np.searchsorted(known, replayed).astype(np.int32))
    return pa.DictionaryArray.from_arrays(indices, pa.array(words, pa.string()))


def _starts(
    found: Plan, lasts: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return when each call starts, in seconds: float64[calls], and the calls in their order."""
    calls, families = found.call.size, found.release.size
    waits = np.bincount(found.edge_to, minlength=calls)
    roots = np.flatnonzero(waits == 0)
    by_source = np.argsort(found.edge_from, kind="stable")
    starts: tuple[NDArray[np.float64], NDArray[np.int64]] = _run(
        found.family.astype(np.int64),
        np.bincount(found.family, minlength=families),
        roots,
        np.searchsorted(found.family[roots], np.arange(families + 1)),
        waits,
        found.edge_to[by_source],
        np.searchsorted(found.edge_from[by_source], np.arange(calls + 1)),
        found.gap,
        lasts,
        min(found.agents, families),
    )
    return starts


@kernel
def _run(family, left, root, first_root, waits, later, first_later, gap, lasts, agents):  # type: ignore[no-untyped-def]
    calls = family.size
    starts = np.zeros(calls)
    order = np.empty(calls, np.int64)
    started = 0
    ready = np.zeros(calls)
    ended = np.zeros(left.size)
    # Events: a call below `calls` starts; any other is an agent that takes up a session.
    time = np.empty(calls + agents + 1)
    event = np.empty(calls + agents + 1, np.int64)
    size = 0
    for agent in range(agents):
        size = _push(time, event, size, 0.0, np.int64(calls + agent))
    begun = 0
    while size > 0:
        now = time[0]
        call = event[0]
        size = _remove(time, event, size, 0)
        if call >= calls:
            if begun < left.size:
                for at in range(first_root[begun], first_root[begun + 1]):
                    size = _push(time, event, size, now + gap[root[at]], root[at])
                begun += 1
            continue
        starts[call] = now
        order[started] = call
        started += 1
        end = now + lasts[call]
        for at in range(first_later[call], first_later[call + 1]):
            other = later[at]
            ready[other] = max(ready[other], end)
            waits[other] -= 1
            if waits[other] == 0:
                size = _push(time, event, size, ready[other] + gap[other], other)
        mine = family[call]
        ended[mine] = max(ended[mine], end)
        left[mine] -= 1
        if left[mine] == 0:
            size = _push(time, event, size, ended[mine], np.int64(calls))
    assert started == calls
    return starts, order
