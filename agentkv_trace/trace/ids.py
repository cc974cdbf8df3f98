"""From the chunk ids of another tool's trace to a trace: chains ids, finds bases, sorts rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from agentkv_trace._jit import kernel
from agentkv_trace.errors import InputError
from agentkv_trace.trace.call import KINDS, TIME_SOURCES
from agentkv_trace.trace.chunks import keyed, salt_check
from agentkv_trace.trace.meta import TraceMeta
from agentkv_trace.trace.store import COLUMNS, Trace
from agentkv_trace.trace.tree import link, new_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

Int64 = npt.NDArray[np.int64]

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ROUND_1 = np.uint64(0x9E3779B1)
_ROUND_2 = np.uint64(0x85EBCA77)
_ROUND_3 = np.uint64(0xC2B2AE3D)
_ROUND_4 = np.uint64(0x27D4EB2F)
_INT32_MAX = 2**31 - 1


@kernel
def _half_round(half, factor):  # type: ignore[no-untyped-def]
    # 32 bits times 32 bits: the product fits 64, with or without the compiler.
    product = (half ^ (factor >> np.uint64(7))) * factor
    return (product ^ (product >> _HALF)) & _LOW


@kernel
def _mixed(word):  # type: ignore[no-untyped-def]
    """Scramble 64 bits without loss (a Feistel network), so that different words stay different."""
    left = word >> _HALF
    right = word & _LOW
    left ^= _half_round(right, _ROUND_1)
    right ^= _half_round(left, _ROUND_2)
    left ^= _half_round(right, _ROUND_3)
    right ^= _half_round(left, _ROUND_4)
    return (left << _HALF) | right


@kernel
def _chain(ids, first, scope, row_call, row_offsets, keys):  # type: ignore[no-untyped-def]
    """Fill in each row's keys: a key is the mix of the key before it and the chunk's id."""
    for row in range(row_call.size):
        call = row_call[row]
        key = _mixed(scope[call])
        at = first[call] - row_offsets[row]
        for out in range(row_offsets[row], row_offsets[row + 1]):
            key = _mixed(key ^ ids[at + out])
            keys[out] = key


@kernel
def _shared_with(before, offsets, keys, shared):  # type: ignore[no-untyped-def]
    """Fill in how many leading chunks each row shares with the row `before` it (-1: none)."""
    for row in range(before.size):
        other = before[row]
        if other < 0:
            continue
        low = np.int64(0)
        high = min(offsets[row + 1] - offsets[row], offsets[other + 1] - offsets[other])
        # Equal keys mean equal whole prefixes, so the last equal one can be searched by halves.
        while low < high:
            middle = (low + high + 1) >> 1
            if keys[offsets[row] + middle - 1] == keys[offsets[other] + middle - 1]:
                low = middle
            else:
                high = middle - 1
        shared[row] = low


def trace_from_ids(
    *,
    session: Sequence[str],
    t_start_us: npt.ArrayLike,
    prompt_tokens: npt.ArrayLike,
    output_tokens: npt.ArrayLike,
    ids: npt.ArrayLike,
    offsets: npt.ArrayLike,
    chunk_tokens: int,
    source: str = "foreign",
    agent: str | Sequence[str] = "unknown",
    model: str | Sequence[str | None] | None = None,
    parent_session: Sequence[str | None] | None = None,
    index: npt.ArrayLike | None = None,
    t_end_us: npt.ArrayLike | None = None,
    scope: npt.ArrayLike | None = None,
    kind: Sequence[str] | None = None,
    time_source: str | Sequence[str] = "logged",
    sources: dict[str, Any] | None = None,
    salt: bytes | None = None,
) -> Trace:
    """Make a trace of calls whose prompts are known as ids of chunks.

    Columns have one value per call, in any order of calls. `ids[offsets[i]:offsets[i+1]]` are the
    chunk ids of call i's prompt, head first (uint64): one per full chunk of `chunk_tokens` tokens,
    and one more at most for a partial last chunk, which is dropped. Equal ids behind equal
    prefixes are equal chunks; ids need not be chained. Calls with different `scope` (uint64)
    share nothing.

    Times are UTC microseconds. Without `index` the calls of a session are counted by time; with
    it, starts are clamped so that they do not descend within a session. A call of `kind` `turn`
    that does not resend all full chunks of its session's last prompt becomes a `fold`. With
    `salt`, keys tell nothing to those who do not have it.

    Raises InputError where columns differ in length, ids do not fit the prompt's length, or a
    time or a length is negative.
    """
    calls = len(session)
    if chunk_tokens < 1:
        raise InputError(f"chunk_tokens is {chunk_tokens}: give a number of tokens above 0")
    start = _integers("t_start_us", t_start_us, calls)
    end = start if t_end_us is None else _integers("t_end_us", t_end_us, calls)
    prompt = _integers("prompt_tokens", prompt_tokens, calls)
    output = _integers("output_tokens", output_tokens, calls)
    flat = np.ascontiguousarray(ids, np.uint64)
    first = _offsets(offsets, calls, flat.size)
    chunks = prompt // chunk_tokens
    _fits(np.diff(first), prompt, chunk_tokens)
    scopes = np.zeros(calls, np.uint64) if scope is None else np.ascontiguousarray(scope, np.uint64)

    names = pa.array(session, pa.string()).dictionary_encode()
    code = names.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    if index is None:
        nth = _count_by_time(code, start)
    else:
        nth = _integers("index", index, calls)
        start = _clamped(start, code, nth)
    rank = np.empty(len(names.dictionary), np.int64)
    rank[pc.sort_indices(names.dictionary).to_numpy()] = np.arange(rank.size)
    row_call = np.lexsort((nth, rank[code], start)).astype(np.int64)

    row_offsets = np.concatenate([[0], np.cumsum(chunks[row_call])]).astype(np.int64)
    keys = np.empty(row_offsets[-1], np.uint64)
    _chain(flat, first, scopes, row_call, row_offsets, keys)
    before = _row_before(code[row_call])
    known_chunks = np.zeros(calls, np.int32)
    _shared_with(before, row_offsets, keys, known_chunks)
    known = np.where(known_chunks > 0, before, -1).astype(np.int32)
    # What the session's last call has is known already: hash only what is behind it.
    own_offsets, own = new_keys(np.zeros(calls, np.int32), row_offsets, keys, known_chunks)
    base, base_chunks = link(known, known_chunks, own_offsets, own)
    new_offsets, new = new_keys(known_chunks, own_offsets, own, base_chunks)
    if salt is not None:
        new = np.array(keyed(new.tolist(), salt), np.uint64)

    row_chunks = chunks[row_call]
    folded = (before >= 0) & (known_chunks < row_chunks[before])
    kinds = _words("turn" if kind is None else kind, calls, KINDS).take(row_call)
    kinds = pc.if_else(pa.array(folded & _is(kinds, "turn")), "fold", kinds.cast(pa.string()))
    none = pa.nulls(calls, pa.int32())
    columns = {
        "call": np.arange(calls),
        "session": names.take(row_call),
        "parent_session": _words(parent_session, calls).take(row_call),
        "agent": _words(agent, calls).take(row_call),
        "model": _words(model, calls).take(row_call),
        "source": _words(source, calls),
        "index": nth[row_call],
        "t_start_us": start[row_call],
        "t_end_us": np.maximum(end, start)[row_call],
        "time_source": _words(time_source, calls, TIME_SOURCES).take(row_call),
        "prompt_tokens": prompt[row_call],
        "output_tokens": output[row_call],
        "logged_prompt_tokens": none,
        "logged_cached_tokens": none,
        "usage_source": _words("none", calls),
        "base": base,
        "base_chunks": base_chunks,
        "prompt_chunks": row_chunks,
        "path_chunks": row_chunks,
        "kind": kinds,
        "fidelity": _words("exact", calls),
    }
    table = pa.table([_column(columns[field.name], field.type) for field in COLUMNS], COLUMNS)
    meta = TraceMeta(
        chunk_tokens,
        {"name": "foreign"},
        salt_check=None if salt is None else salt_check(salt),
        sources=sources or {},
    )
    return Trace(table, meta, keys=(new_offsets, new))


def _integers(name: str, values: npt.ArrayLike, calls: int) -> Int64:
    column = np.asarray(values)
    if column.ndim != 1 or (column.size and column.dtype.kind not in "iu"):
        raise InputError(f"{name} must be one row of integers, not {column.dtype}{column.shape}")
    if column.size != calls:
        raise InputError(f"{name} has {column.size} values for {calls} calls")
    column = np.ascontiguousarray(column, np.int64)
    if column.size and column.min() < 0:
        raise InputError(f"call {int(np.argmin(column))}: {name} is negative")
    if not name.startswith("t_") and column.size and column.max() > _INT32_MAX:
        raise InputError(f"call {int(np.argmax(column))}: {name} does not fit 32 bits")
    return column


def _offsets(values: npt.ArrayLike, calls: int, size: int) -> Int64:
    offsets = np.ascontiguousarray(values, np.int64)
    if offsets.shape != (calls + 1,):
        raise InputError(f"offsets has shape {offsets.shape} for {calls} calls: one more is needed")
    if offsets[0] != 0 or offsets[-1] != size or (np.diff(offsets) < 0).any():
        raise InputError(f"offsets must rise from 0 to the number of ids, {size}")
    return offsets


def fits(counts: Int64, prompt_tokens: Int64, chunk_tokens: int) -> npt.NDArray[np.bool_]:
    """Tell which calls have one id per full chunk, with or without one for a partial last chunk."""
    full = prompt_tokens // chunk_tokens
    return (counts == full) | (counts == -(-prompt_tokens // chunk_tokens))  # type: ignore[no-any-return]


def _fits(counts: Int64, prompt_tokens: Int64, chunk_tokens: int) -> None:
    good = fits(counts, prompt_tokens, chunk_tokens)
    if not good.all():
        call = int(np.argmin(good))
        raise InputError(
            f"call {call} has {counts[call]} chunk ids, but its {prompt_tokens[call]} prompt "
            f"tokens make {prompt_tokens[call] // chunk_tokens} chunks of {chunk_tokens} tokens"
        )


def _count_by_time(code: Int64, start: Int64) -> Int64:
    """Return the number of each call in its session, by start, ties as given."""
    order = np.lexsort((start, code))
    first = np.flatnonzero(np.diff(code[order], prepend=-1))
    counts = np.diff(np.append(first, code.size))
    nth = np.empty(code.size, np.int64)
    nth[order] = np.arange(code.size) - np.repeat(first, counts)
    return nth


def _clamped(start: Int64, code: Int64, nth: Int64) -> Int64:
    """Return starts that do not descend within a session."""
    order = np.lexsort((nth, code))
    times, sessions = start[order], code[order]
    wrong = (sessions[1:] == sessions[:-1]) & (times[1:] < times[:-1])
    for session in np.unique(sessions[1:][wrong]):
        rows = slice(*np.searchsorted(sessions, [session, session + 1]))
        times[rows] = np.maximum.accumulate(times[rows])
    clamped = np.empty_like(start)
    clamped[order] = times
    return clamped


def _row_before(code: Int64) -> Int64:
    """Return the row before each row in its session, -1 for the first."""
    order = np.argsort(code, kind="stable")
    before = np.full(code.size, -1, np.int64)
    same = code[order[1:]] == code[order[:-1]]
    before[order[1:]] = np.where(same, order[:-1], -1)
    return before


def _words(
    values: str | Sequence[str | None] | None, calls: int, known: tuple[str, ...] = ()
) -> pa.Array:
    """Return a column of words, of known ones only where some are given."""
    if values is None or isinstance(values, str):
        indices = pa.array(np.zeros(calls, np.int32), mask=np.full(calls, values is None))
        return pa.DictionaryArray.from_arrays(indices, pa.array([values or ""]))
    if len(values) != calls:
        raise InputError(f"a column has {len(values)} values for {calls} calls")
    words = pa.array(values, pa.string()).dictionary_encode()
    wrong = set(words.dictionary.to_pylist()).difference(known) if known else ()
    if wrong:
        raise InputError(f"{min(wrong)!r} is none of {', '.join(known)}")
    return words


def _is(words: pa.Array, word: str) -> npt.NDArray[np.bool_]:
    return pc.equal(words.cast(pa.string()), word).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _column(values: Any, kind: pa.DataType) -> pa.Array:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return array.cast(kind)
