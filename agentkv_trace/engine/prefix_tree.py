"""The prefix tree behind a trace: which call was the first to hold each chunk.

Call s adds the chunks `[base_chunks[s], path_chunks[s])` to the tree, hanging below the call
that added chunk `base_chunks[s] - 1` of its path: its `parent`. Each path is then a chain of
such pieces. `jump` skips many of them at once (skew-binary), so that a fork far above costs a
logarithm of the chain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agentkv_trace._jit import kernel
from agentkv_trace.errors import InputError

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OverlapRows:
    """Two rows a call for the path engine, its start and its end, in order of time.

    A start row touches the prompt, an end row the whole path without a lookup
    (`prompt_chunks` 0). `by_end` holds the calls in order of their ends.
    """

    call: Int32
    base: Int32
    base_chunks: Int32
    prompt_chunks: Int32
    path_chunks: Int32
    by_end: Int64


def _column(name: str, values: ArrayLike, dtype: type) -> NDArray[np.int32]:
    """Return a column as a flat array of one type, or say what is wrong with it."""
    column = np.asarray(values)
    if column.ndim != 1:
        raise InputError(f"{name} has shape {column.shape}: give one value per call")
    if column.size and column.dtype.kind not in "iu":
        raise InputError(f"{name} holds {column.dtype}, not integers")
    if column.size and column.dtype != dtype:
        limits = np.iinfo(dtype)
        if int(column.min()) < limits.min or int(column.max()) > limits.max:
            raise InputError(f"{name} does not fit {limits.bits} bits")
    # Kernels compile once, for arrays that can be written; those from files often cannot.
    found: NDArray[np.int32] = np.ascontiguousarray(column, dtype)
    return found if found.flags.writeable else found.copy()


@kernel
def _first_bad(base, shared, prompt, path):  # type: ignore[no-untyped-def]
    for row in range(base.size):
        if not 0 <= prompt[row] <= path[row]:
            return row
        if not 0 <= shared[row] <= path[row]:
            return row
        if shared[row] > 0 and not (0 <= base[row] < row and shared[row] <= path[base[row]]):
            return row
    return -1


def tree_columns(
    base: ArrayLike, base_chunks: ArrayLike, prompt_chunks: ArrayLike, path_chunks: ArrayLike
) -> tuple[Int32, Int32, Int32, Int32]:
    """Return the four tree columns of a trace as int32[calls], checked.

    Raises:
        InputError: A column is no flat array of integers, lengths differ, or a row breaks
            `base < call`, `base_chunks <= path_chunks` (its own and its base's) or
            `prompt_chunks <= path_chunks`.
    """
    columns = (
        _column("base", base, np.int32),
        _column("base_chunks", base_chunks, np.int32),
        _column("prompt_chunks", prompt_chunks, np.int32),
        _column("path_chunks", path_chunks, np.int32),
    )
    if len({column.size for column in columns}) > 1:
        sizes = ", ".join(str(column.size) for column in columns)
        raise InputError(f"base, base_chunks, prompt_chunks, path_chunks differ in length: {sizes}")
    bad = _first_bad(*columns)
    if bad >= 0:
        values = ", ".join(str(column[bad]) for column in columns)
        raise InputError(
            f"call {bad} is no call of a trace: base, base_chunks, prompt_chunks, path_chunks are "
            f"{values}"
        )
    return columns


@kernel
def _parents(base, shared):  # type: ignore[no-untyped-def]
    calls = base.size
    parent = np.full(calls, -1, np.int32)
    jump = np.empty(calls, np.int32)
    level = np.zeros(calls, np.int32)
    for call in range(calls):
        depth = shared[call]
        if depth == 0:
            jump[call] = call
            continue
        above = _holder(base[call], depth, shared, parent, jump)
        far = jump[above]
        parent[call] = above
        level[call] = level[above] + 1
        even = level[above] - level[far] == level[far] - level[jump[far]]
        jump[call] = jump[far] if even else above
    return parent, jump


def parents(base: Int32, base_chunks: Int32) -> Int32:
    """Return the call below whose piece each call's own piece hangs, int32[calls] (-1: none).

    `base` and `base_chunks` are columns of a trace, int32[calls].
    """
    found: Int32 = _parents(base, base_chunks)[0]
    return found


@kernel
def _holder(call, depth, shared, parent, jump):  # type: ignore[no-untyped-def]
    """Return the call that added chunk `depth - 1` of this call's path."""
    while shared[call] >= depth:
        far = jump[call]
        call = far if shared[far] >= depth else parent[call]
    return call


@kernel
def _touch(row, call, depth, shared, parent, jump, reach, toucher):  # type: ignore[no-untyped-def]
    """Touch a call's path down to `depth`; return an earlier row, and how much it shares."""
    if depth == 0:
        return -1, 0
    piece = _holder(call, depth, shared, parent, jump)
    while reach[piece] == shared[piece]:
        reach[piece] = depth
        toucher[piece] = row
        depth = shared[piece]
        piece = parent[piece]
        if piece < 0:
            return -1, 0
    # All above a touched chunk is touched as well, so this piece is the deepest to be shared.
    earlier = toucher[piece]
    both = min(reach[piece], depth)
    if reach[piece] < depth:
        reach[piece] = depth
        toucher[piece] = row
    return earlier, both


@kernel
def _reordered(order, shared, path, parent, jump):  # type: ignore[no-untyped-def]
    base = np.empty(order.size, np.int32)
    base_chunks = np.empty(order.size, np.int32)
    reach = shared.copy()
    toucher = np.full(shared.size, -1, np.int32)
    for row in range(order.size):
        call = order[row]
        earlier, both = _touch(row, call, path[call], shared, parent, jump, reach, toucher)
        base[row] = earlier
        base_chunks[row] = both
    return base, base_chunks


def reordered(
    base: Int32, base_chunks: Int32, path_chunks: Int32, order: ArrayLike
) -> tuple[Int32, Int32]:
    """Return the columns `base` and `base_chunks` of some calls in another order.

    The first three are checked columns (`tree_columns`) and `order` the calls to keep, each once,
    in their new order, int64[kept]. A base is a row of the new order.
    """
    parent, jump = _parents(base, base_chunks)
    kept = np.ascontiguousarray(order, np.int64)
    found: tuple[Int32, Int32] = _reordered(kept, base_chunks, path_chunks, parent, jump)
    return found


@kernel
def _overlap(shared, prompt, path, parent, jump, t_start, t_end, by_end):  # type: ignore[no-untyped-def]
    calls = shared.size
    row_call = np.empty(2 * calls, np.int32)
    row_base = np.empty(2 * calls, np.int32)
    row_shared = np.empty(2 * calls, np.int32)
    row_prompt = np.empty(2 * calls, np.int32)
    row_path = np.empty(2 * calls, np.int32)
    reach = shared.copy()
    toucher = np.full(calls, -1, np.int32)
    row = 0
    ended = 0
    for call in range(calls + 1):
        while ended < calls:
            done = by_end[ended]
            if call < calls and (done >= call or t_end[done] > t_start[call]):
                break
            earlier, both = _touch(row, done, path[done], shared, parent, jump, reach, toucher)
            row_call[row] = done
            row_base[row] = earlier
            row_shared[row] = both
            row_prompt[row] = 0
            row_path[row] = path[done]
            row += 1
            ended += 1
        if call < calls:
            earlier, both = _touch(row, call, prompt[call], shared, parent, jump, reach, toucher)
            row_call[row] = call
            row_base[row] = earlier
            row_shared[row] = both
            row_prompt[row] = prompt[call]
            row_path[row] = prompt[call]
            row += 1
    return row_call, row_base, row_shared, row_prompt, row_path


def overlap_rows(
    base: Int32,
    base_chunks: Int32,
    prompt_chunks: Int32,
    path_chunks: Int32,
    t_start_us: ArrayLike,
    t_end_us: ArrayLike,
) -> OverlapRows:
    """Return the starts and ends of calls as rows, each with the row that shares most with it.

    The first four are checked columns (`tree_columns`), the times int64[calls]. The base of a
    row is the longest prefix among rows already touched, which the file's base need not be.

    Raises:
        InputError: Times have the wrong shape, starts descend, or a call ends before it starts.
    """
    start = _column("t_start_us", t_start_us, np.int64)
    end = _column("t_end_us", t_end_us, np.int64)
    if not start.size == end.size == base.size:
        raise InputError(
            f"t_start_us and t_end_us have {start.size} and {end.size} values for {base.size} calls"
        )
    if np.any(start[1:] < start[:-1]):
        row = int(np.argmax(start[1:] < start[:-1])) + 1
        raise InputError(f"call {row} starts before the call in the row above: sort by t_start_us")
    if np.any(end < start):
        raise InputError(f"call {int(np.argmax(end < start))} ends before it starts")
    by_end = np.argsort(end, kind="stable").astype(np.int64, copy=False)
    parent, jump = _parents(base, base_chunks)
    call, row_base, shared, prompt, path = _overlap(
        base_chunks, prompt_chunks, path_chunks, parent, jump, start, end, by_end
    )
    return OverlapRows(call, row_base, shared, prompt, path, by_end)


@kernel
def _next_call(session, sessions, shared, prompt, path, parent, jump):  # type: ignore[no-untyped-def]
    last = np.full(sessions, -1, np.int32)
    added = np.int64(0)
    reused = np.int64(0)
    for call in range(session.size):
        before = last[session[call]]
        last[session[call]] = call
        if before < 0:
            continue
        added += path[before] - shared[before]
        piece = call
        while parent[piece] > before:
            far = jump[piece]
            piece = far if far > before else parent[piece]
        if parent[piece] == before:
            reused += max(0, min(shared[piece], prompt[call]) - shared[before])
    return added, reused


def next_call_reuse(
    session: ArrayLike,
    base: ArrayLike,
    base_chunks: ArrayLike,
    prompt_chunks: ArrayLike,
    path_chunks: ArrayLike,
) -> float | None:
    """Return the share of newly added chunks that the session's very next call reads.

    Counts the chunks `base_chunks .. path_chunks` of calls that have a next call in their
    session (`session`: int codes from 0, one per call); reused are those in that call's
    prompt. None where no such call adds a chunk.

    Raises:
        InputError: A column has the wrong type or shape or breaks the rules of a trace.
    """
    parts = tree_columns(base, base_chunks, prompt_chunks, path_chunks)
    codes = _column("session", session, np.int64)
    if codes.size != parts[0].size:
        raise InputError(f"session has {codes.size} values for {parts[0].size} calls")
    if codes.size and (codes.min() < 0 or codes.max() >= codes.size):
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64, copy=False)
    parent, jump = _parents(parts[0], parts[1])
    sessions = int(codes.max()) + 1 if codes.size else 0
    added, reused = _next_call(codes, sessions, *parts[1:], parent, jump)
    return float(reused / added) if added else None
