"""The path engine: exact LRU stack distances of whole calls, whatever their length.

Calls touch their path tail first and head last, so the head is the most recent. Keep for
each past row its *residual*, the part of its path that no later row has touched. A later row
shares a prefix with it, so the residual is one suffix `[start, length)`, and the LRU stack is
the list of residuals, latest row first, each from its head down.

A new row that shares `d` chunks with earlier ones takes them over from the deep end: the owner
of chunk `d - 1` is the latest row that touched it, its residual begins at `start`, and the
chunks `[start, d)` stand next to each other in the stack, below the residuals of all rows
later than the owner. That is one run of consecutive distances. The owner's residual now begins
at `d`, `up` remembers who took it, and the search goes on at the old `start` with the row that
took the chunks before. Runs per row are amortised logarithmic and about two in practice; sums
of residuals come from a Fenwick tree that grows with the rows, so each costs the logarithm of
how many rows ago the owner ran.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from agentkv_trace._jit import kernel
from agentkv_trace.engine.prefix_tree import next_call_reuse, overlap_rows, tree_columns
from agentkv_trace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

__all__ = ["Refreshes", "Runs", "next_call_reuse", "path_runs", "path_runs_of_each"]

Timing = Literal["sequential", "overlap"]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Refreshes:
    """Touches that no lookup read, and what is left on the stack; needed to follow writes.

    Touched chunks that were touched before but not looked up: outputs that an earlier path
    holds already, and with `overlap` the touch at a call's end. Columns as in `Runs`, in
    order of time; `after[i]` counts the rows of `Runs` that come before row i.
    """

    after: Int64
    call: Int32
    owner: Int32
    depth: Int32
    first_distance: Int64
    length: Int32
    left: Int32
    """int32[calls]: at the end of the trace, the first depth that no later call touched."""
    path_chunks: Int32
    """int32[calls]: where each call's path ends."""
    last_touch: Int64 | None
    """int64[calls]: the calls in order of their last touch; None where that is row order."""
    touched: int
    """Chunks touched over all calls, first touches included."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Stack distances of all prompt chunks that were touched before, run by run.

    Row i says: the prompt chunks `depth[i] .. depth[i] + length[i]` of call `call[i]` were
    touched last by call `owner[i]` and have the distances `first_distance[i]`,
    `first_distance[i] + 1`, ... Ordered by call, then depth; prompt chunks in no row were
    never touched before. Distances count the chunk itself: it hits in a tier of C chunks if
    its distance is at most C. They grow with the depth, so hits of a call are a prefix.
    """

    call: Int32
    owner: Int32
    depth: Int32
    first_distance: Int64
    length: Int32
    refreshes: Refreshes


@kernel
def _later(tree, owner, rows):  # type: ignore[no-untyped-def]
    """Sum the residuals of rows `owner + 1 .. rows`."""
    high = rows
    low = owner + 1
    total = np.int64(0)
    while high > low:
        total += tree[high]
        high &= high - 1
    while low > high:
        total -= tree[low]
        low &= low - 1
    return total


@kernel
def _advance(base, shared, limit, length, row, n, start, up, tree, table):  # type: ignore[no-untyped-def]
    """Find the runs of rows from `row` on while the table has room; return both ends.

    Rows touch `length` chunks; runs are split where the lookup ends, at `limit`.
    """
    run_row, run_owner, run_depth, run_length, run_first = table
    refreshes = 0
    while row < base.size:
        depth = shared[row]
        # A row has at most one run per chunk and earlier row, and one split.
        if n + min(depth, row) + 1 > run_first.size:
            break
        looked = limit[row]
        owner = base[row]
        begin = n
        while depth > 0:
            while start[owner] >= depth:
                taker = up[owner]
                # What the taker lost down to this depth or deeper, ask its own taker for.
                if start[taker] >= start[owner]:
                    taker = up[taker]
                    up[owner] = taker
                owner = taker
            head = start[owner]
            first = _later(tree, owner, row) + 1
            if looked < depth:
                top = max(looked, head)
                run_row[n] = row
                run_owner[n] = owner
                run_depth[n] = top
                run_first[n] = first + (top - head)
                run_length[n] = depth - top
                n += 1
                refreshes += 1
            if looked > head:
                run_row[n] = row
                run_owner[n] = owner
                run_depth[n] = head
                run_first[n] = first
                run_length[n] = min(looked, depth) - head
                n += 1
            node = owner + 1
            while node <= row:
                tree[node] -= depth - head
                node += node & -node
            start[owner] = depth
            depth = head
            taker = up[owner]
            up[owner] = row
            owner = taker
        low = begin
        high = n - 1
        while low < high:
            run_owner[low], run_owner[high] = run_owner[high], run_owner[low]
            run_depth[low], run_depth[high] = run_depth[high], run_depth[low]
            run_first[low], run_first[high] = run_first[high], run_first[low]
            run_length[low], run_length[high] = run_length[high], run_length[low]
            low += 1
            high -= 1
        node = row + 1
        total = np.int64(length[row])
        child = row
        while child > (node & row):
            total += tree[child]
            child &= child - 1
        tree[node] = total
        row += 1
    return row, n, refreshes


def _runs(
    base: Int32, shared: Int32, limit: Int32, length: Int32
) -> tuple[tuple[Any, ...], int, Int32]:
    """Return the columns of all runs by row, how many are refreshes, and what is left of rows."""
    rows = base.size
    start = np.zeros(rows, np.int32)
    up = np.full(rows, -1, np.int32)
    tree = np.zeros(rows + 1, np.int64)
    row = n = refreshes = 0
    # Memory that is never touched costs nothing, so begin with more than is usual.
    table = _grown((), rows * 5 // 2 + 64, 0)
    while True:
        row, n, more = _advance(base, shared, limit, length, row, n, start, up, tree, table)
        refreshes += more
        if row == rows:
            return tuple(column[:n] for column in table), refreshes, start
        table = _grown(table, n + n // 2 + min(int(shared[row]), row) + 64, n)


def _grown(table: tuple[Any, ...], size: int, used: int) -> tuple[Any, ...]:
    """Return a larger table of runs: row, owner, depth, length, first distance."""
    wider: tuple[Any, ...] = tuple(np.empty(size, np.int32) for _ in range(4))
    wider = (*wider, np.empty(size, np.int64))
    for old, new in zip(table, wider, strict=False):
        new[:used] = old[:used]
    return wider


def path_runs(
    base: ArrayLike,
    base_chunks: ArrayLike,
    prompt_chunks: ArrayLike,
    path_chunks: ArrayLike,
    *,
    timing: Timing = "sequential",
    t_start_us: ArrayLike | None = None,
    t_end_us: ArrayLike | None = None,
) -> Runs:
    """Return the stack distances of a trace's prompt chunks, in order of the calls.

    The columns are those of the trace, int32[calls]; memory and time depend on the number of
    calls only (time O(calls log calls)), never on how many chunks they hold.

    `timing="sequential"` lets each call look up its prompt and touch its whole path at once,
    in row order. `timing="overlap"` needs the times, int64[calls] with starts ascending: a
    call looks up and touches its prompt at its start and touches its whole path at its end.
    At equal times ends come before starts, then row order (a call that ends as it starts
    still starts first).

    Raises:
        InputError: A column has the wrong type or shape or breaks the rules of a trace.
    """
    parts = tree_columns(base, base_chunks, prompt_chunks, path_chunks)
    base, base_chunks, prompt_chunks, path_chunks = parts
    if timing == "sequential":
        return _pack(_runs(base, base_chunks, prompt_chunks, path_chunks), prompt_chunks, parts[3])
    if timing != "overlap":
        raise InputError(f"timing is {timing!r}: use 'sequential' or 'overlap'")
    if t_start_us is None or t_end_us is None:
        raise InputError("timing 'overlap' needs t_start_us and t_end_us")
    rows = overlap_rows(*parts, t_start_us, t_end_us)
    found = _runs(rows.base, rows.base_chunks, rows.prompt_chunks, rows.path_chunks)
    return _pack(found, rows.prompt_chunks, parts[3], rows.call, rows.by_end)


def _pack(
    found: tuple[Any, ...],
    limit: Int32,
    path_chunks: Int32,
    call_of: Int32 | None = None,
    by_end: Int64 | None = None,
) -> Runs:
    """Turn the kernel's rows into runs of lookups and refreshes, by call."""
    (row, owner, depth, length, first), refreshes, left = found
    touched = int(path_chunks.sum(dtype=np.int64))
    looked = slice(None)
    other: Any = slice(0, 0)
    after = np.empty(0, np.int64)
    if refreshes:
        looked = depth < limit[row]
        other = ~looked
        after = np.cumsum(looked, dtype=np.int64)[other]
    if call_of is not None:
        touched += int(limit.sum(dtype=np.int64))
        # The touch at its end took the whole path again, so a call's last row holds what is left.
        last = np.empty(path_chunks.size, np.int32)
        last[call_of] = np.arange(call_of.size, dtype=np.int32)
        left = left[last]
        row, owner = call_of[row], call_of[owner]
    rest = Refreshes(
        after,
        row[other],
        owner[other],
        depth[other],
        first[other],
        length[other],
        left,
        path_chunks,
        by_end,
        touched,
    )
    return Runs(row[looked], owner[looked], depth[looked], first[looked], length[looked], rest)


def path_runs_of_each(
    traces: Sequence[Mapping[str, Any]], *, workers: int | None = None
) -> list[Runs]:
    """Return `path_runs(**trace)` of each of several independent traces, a thread per core.

    The kernels release the interpreter's lock, so the traces run side by side.
    """
    workers = workers or os.cpu_count() or 1
    with ThreadPoolExecutor(max_workers=max(1, min(workers, len(traces)))) as pool:
        return list(pool.map(lambda trace: path_runs(**trace), traces))
