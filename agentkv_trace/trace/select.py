"""Some calls of some traces as a trace of their own: merging and filtering."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agentkv_trace.errors import InputError
from agentkv_trace.trace.layout import select_rows
from agentkv_trace.trace.store import COLUMNS, Trace
from agentkv_trace.trace.tree import link, new_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.trace.meta import TraceMeta

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which calls to keep: those that meet every condition given.

    Times are UTC microseconds, compared with a call's start; `until` is exclusive. The others
    are shell patterns of which one must match.
    """

    since_us: int | None = None
    until_us: int | None = None
    sessions: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    def mask(self, trace: Trace) -> Mask:
        """Return bool[calls]: the calls to keep."""
        start = trace.array("t_start_us")
        keep = np.ones(len(trace), bool)
        if self.since_us is not None:
            keep &= start >= self.since_us
        if self.until_us is not None:
            keep &= start < self.until_us
        for column, patterns in (
            ("session", self.sessions),
            ("agent", self.agents),
            ("model", self.models),
        ):
            if patterns:
                keep &= _matching(trace, column, patterns)
        return keep


def _matching(trace: Trace, column: str, patterns: tuple[str, ...]) -> Mask:
    codes, names = trace.codes(column)
    wanted = [any(fnmatchcase(name, pattern) for pattern in patterns) for name in names]
    # A null has the code -1, which takes the last entry: it matches nothing.
    return np.array([*wanted, False], bool)[codes]


def parse_time(text: str, now: datetime | None = None) -> int:
    """Read a time as UTC microseconds: ISO 8601 (UTC where no zone is given), or `7d`, `12h` ago.

    Raises InputError.
    """
    unit = {"d": "days", "h": "hours", "m": "minutes"}.get(text[-1:])
    try:
        if unit and text[:-1].isdecimal():
            when = (now or datetime.now(UTC)) - timedelta(**{unit: int(text[:-1])})
        else:
            when = datetime.fromisoformat(text)
            when = when.replace(tzinfo=UTC) if when.tzinfo is None else when
        return round(when.timestamp() * 1e6)
    except (ValueError, OverflowError):
        raise InputError(
            f"time {text!r}: write it like 2026-11-30, 2026-11-30T08:00 or 7d"
        ) from None


def select(trace: Trace, keep: Mask) -> Trace:
    """Return the calls of a trace where `keep` (bool[calls]) holds, with bases among themselves."""
    return trace if keep.all() else _joined([trace], [keep], trace.meta)


def merge(traces: Sequence[Trace]) -> Trace:
    """Return the calls of several traces as one, in order of start; a call in two counts once.

    Raises InputError unless all were made with the same chunks, tokenizer and salting.
    """
    first = traces[0].meta
    for other in traces[1:]:
        for what, one, two in (
            ("chunk size", first.chunk_tokens, other.meta.chunk_tokens),
            ("tokenizer", _pinned(first), _pinned(other.meta)),
            ("salt", first.salt_check, other.meta.salt_check),
        ):
            if one != two:
                raise InputError(
                    f"traces do not merge: {what} is {one} in one and {two} in another; "
                    "ingest their logs together, or with the same options"
                )
    seen: set[tuple[object, ...]] = set()
    masks = [_unseen(trace, seen) for trace in traces]
    sources: dict[str, Any] = {}
    for trace, mask in zip(traces, masks, strict=True):
        for name, counts in trace.meta.sources.items():
            sources[name] = _added(sources.get(name), counts)
        codes, names = trace.codes("source")
        for code, count in enumerate(np.bincount(codes[~mask], minlength=len(names)).tolist()):
            if count:
                sources[names[code]] = _added(
                    sources.get(names[code], {}), {"deduplicated calls": count}
                )
    return _joined(traces, masks, replace(first, sources=sources))


def _pinned(meta: TraceMeta) -> dict[str, object]:
    """Return what of the tokenizer decides the keys of readable text."""
    return {key: value for key, value in meta.tokenizer.items() if key != "reasoning_scale"}


def _unseen(trace: Trace, seen: set[tuple[object, ...]]) -> Mask:
    """Return bool[calls]: those of which the same call, with the same prompt, was not seen."""
    columns = ["source", "session", "index", "t_start_us", "prompt_tokens"]
    offsets, keys = trace.new_chunks()
    last = np.where(np.diff(offsets) > 0, np.append(keys, 0)[offsets[1:] - 1], 0)
    rows = [*trace.table.select(columns).to_pydict().values(), last.tolist()]
    keep = []
    for row in zip(*rows, strict=True):
        keep.append(row not in seen)
        seen.add(row)
    return np.array(keep, bool)


def _added(one: object, two: object) -> object:
    """Add up two trees of counts."""
    if isinstance(one, dict) and isinstance(two, dict):
        return {key: _added(one.get(key), two.get(key)) for key in sorted({*one, *two})}
    if isinstance(one, int) and isinstance(two, int):
        return one + two
    return two if one is None else one


def _joined(traces: Sequence[Trace], masks: Sequence[Mask], meta: TraceMeta) -> Trace:
    """Return the kept rows of all traces in order of start, bases found anew."""
    rows = [np.flatnonzero(mask) for mask in masks]
    table = pa.concat_tables(
        trace.table.take(pa.array(kept)) for trace, kept in zip(traces, rows, strict=True)
    )
    sessions, names = Trace(table, meta).codes("session")
    rank = np.empty(len(names), np.int64)
    rank[np.argsort(np.array(names, object))] = np.arange(len(names))
    order = np.lexsort((table["index"], rank[sessions], table["t_start_us"]))
    table = table.take(pa.array(order))
    origin = np.repeat(np.arange(len(traces)), [kept.size for kept in rows])[order]
    number = np.concatenate(rows)[order]
    known, known_chunks, offsets, own = _own_keys(traces, origin.tolist(), number.tolist())
    base, base_chunks = link(known, known_chunks, offsets, own)
    keys = new_keys(known_chunks, offsets, own, base_chunks)
    layouts = [layout for trace in traces if (layout := trace.layout()) is not None]
    parts = None
    if len(layouts) == len(traces):
        parts = select_rows(layouts, origin.tolist(), number.tolist())
    columns = {
        "call": np.arange(len(order), dtype=np.int32),
        "base": base,
        "base_chunks": base_chunks,
    }
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, COLUMNS.field(name), pa.array(values))
    return Trace(table, meta, keys=keys, parts=parts)


def _own_keys(
    traces: Sequence[Trace], origin: list[int], number: list[int]
) -> tuple[
    npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.uint64]
]:
    """Split each kept row's path into what a kept row before it has, and its other keys.

    Where a row's base was not kept, the keys are fetched from further up.
    """
    position = [np.full(len(trace), -1).tolist() for trace in traces]
    base = [trace.array("base").tolist() for trace in traces]
    shared = [trace.array("base_chunks").tolist() for trace in traces]
    new = [trace.new_chunks() for trace in traces]
    known, known_chunks, offsets = [], [], [0]
    pieces: list[npt.NDArray[np.uint64]] = []
    for row, (trace, call) in enumerate(zip(origin, number, strict=True)):
        starts, keys = new[trace]
        position[trace][call] = row
        parts = [keys[starts[call] : starts[call + 1]]]
        depth, above = shared[trace][call], base[trace][call]
        while depth and position[trace][above] < 0:
            have = shared[trace][above]
            if have < depth:
                parts.append(keys[starts[above] : starts[above] + depth - have])
                depth = have
            above = base[trace][above]
        known.append(position[trace][above] if depth else -1)
        known_chunks.append(depth)
        pieces.extend(reversed(parts))
        offsets.append(offsets[-1] + sum(part.size for part in parts))
    return (
        np.array(known, np.int32),
        np.array(known_chunks, np.int32),
        np.array(offsets, np.int64),
        np.concatenate(pieces) if pieces else np.empty(0, np.uint64),
    )
