"""From an ingester's calls to a trace: sizes heads, cuts chunks, finds bases, sorts rows."""

from __future__ import annotations

import shutil
import tempfile
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from agentkv_trace.trace.calibrate import Growth, Measured, Rates, fit, head_tokens
from agentkv_trace.trace.call import LoggedCall, Node, weakest
from agentkv_trace.trace.chunks import (
    CHUNK_TOKENS,
    SEED,
    extend,
    filler,
    keyed,
    salt_check,
    seed_of,
)
from agentkv_trace.trace.layout_build import LayoutBuilder
from agentkv_trace.trace.meta import TraceMeta
from agentkv_trace.trace.store import COLUMNS, Trace
from agentkv_trace.trace.tokenizers import BYTES, ID_BYTES
from agentkv_trace.trace.tree import link, new_keys

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentkv_trace.trace.tokenizers import Tokenizer

_SPOOL_BYTES = 64 << 20
"""Prompt text above this waits in a temporary file until the rate is known."""

_TEXT, _HEAD = -1, -2
"""In place of an opaque length: text, and a head that usage will size."""


@dataclass(slots=True)
class _Row:
    """A call with its nodes as numbers."""

    call: LoggedCall
    index: int
    prompt: int
    path: int


@dataclass(frozen=True, slots=True)
class Harvest:
    """What a builder has taken, for another process: nodes in order, and the calls on them."""

    parent: array[int]
    opaque: array[int]
    sizes: array[int]
    fitted: bytearray
    typical: list[int]
    rows: list[_Row]
    growths: list[Growth]
    text: Path


class TraceBuilder:
    """Collects calls and makes a trace of them, once; `with` lets go of its spool in any case.

    Memory follows the number of calls, nodes and distinct chunks; prompt text is spooled.
    Text is cut by bytes, or by the ids of a tokenizer. With `layout`, the trace also tells the
    parts of its prompts.
    """

    def __init__(self, tokenizer: Tokenizer | None = None, *, layout: bool = False) -> None:
        self._tokenizer = tokenizer
        self._layout = LayoutBuilder() if layout else None
        self._parent = array("q")
        self._opaque = array("q")
        self._sizes = array("q")
        self._visible = array("q")
        self._fixed = array("q")
        self._reasoning = array("q")
        self._fitted = bytearray()
        self._heads: dict[bytes, int] = {}
        self._typical: dict[int, int] = {}
        self._head_of = array("q")
        self._spool = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115
        self._rows: list[_Row] = []
        self._last: dict[str, _Row] = {}
        self._growths: list[Growth] = []

    def __enter__(self) -> TraceBuilder:
        return self

    def __exit__(self, *error: object) -> None:
        self._spool.close()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, call: LoggedCall) -> None:
        """Take one call; the calls of a session come in their order."""
        row = _Row(call, 0, self._take(call.prompt), self._take(call.path))
        before = self._last.get(call.session)
        if before is not None:
            row.index = before.index + 1
            # A log's clock may jump; within a session it must not run backwards.
            call.start_us = max(call.start_us, before.call.start_us)
            self._grow(before, row)
        call.end_us = max(call.end_us, call.start_us)
        # What is kept of a call must not keep its nodes alive.
        call.prompt = call.path = _GONE
        self._last[call.session] = row
        self._rows.append(row)

    def harvest(self, path: Path) -> Harvest:
        """Return what was taken, to be absorbed by another builder; its text goes to `path`."""
        self._spool.seek(0)
        with path.open("wb") as file:
            shutil.copyfileobj(self._spool, file)
        typical = [self._typical.get(node, 0) for node in self._heads.values()]
        return Harvest(
            self._parent, self._opaque, self._sizes, self._fitted, typical, self._rows,
            self._growths, path,
        )  # fmt: skip

    def absorb(self, harvest: Harvest) -> None:
        """Take all calls of another builder, whose sessions are none of this one's."""
        numbers = array("q")
        typical = iter(harvest.typical)
        nodes = zip(harvest.parent, harvest.opaque, harvest.sizes, harvest.fitted, strict=True)
        with harvest.text.open("rb") as text:
            for parent, opaque, size, fitted in nodes:
                data = text.read(size)
                if parent < 0:
                    numbers.append(self._store_head(data, next(typical)))
                else:
                    numbers.append(self._append(numbers[parent], opaque, data, fitted=bool(fitted)))
        for row in harvest.rows:
            row.prompt, row.path = numbers[row.prompt], numbers[row.path]
            self._last[row.call.session] = row
        self._rows.extend(harvest.rows)
        self._growths.extend(harvest.growths)

    def finish(
        self,
        sources: dict[str, Any],
        *,
        fixed_bytes_per_token: float | None = None,
        salt: bytes | None = None,
    ) -> Trace:
        """Return the trace of all calls taken.

        `fixed_bytes_per_token` replaces the rate fitted to the logged usage, where there is no
        tokenizer; with `salt`, keys tell nothing to those who do not have it.
        """
        if self._tokenizer is not None:
            fixed_bytes_per_token = ID_BYTES
        measured = list(self._measured())
        rates = fit(self._growths, measured, fixed_bytes_per_token=fixed_bytes_per_token)
        chunk_bytes = max(1, round(CHUNK_TOKENS * rates.bytes_per_token))
        rates = Rates(chunk_bytes / CHUNK_TOKENS, rates.reasoning_scale)
        heads = self._typical | head_tokens(measured, rates)
        lengths = self._lengths(heads, rates)
        first, keys = self._cut(lengths, chunk_bytes)
        rows = sorted(self._rows, key=lambda r: (r.call.start_us, r.call.session, r.index))
        ends = np.frombuffer(self._ends(lengths), np.int64)
        prompt = np.array([row.prompt for row in rows], np.int64)
        path = np.array([row.path for row in rows], np.int64)
        known, known_chunks, offsets, own = self._paths(path, ends // chunk_bytes, first, keys)
        base, base_chunks = link(known, known_chunks, offsets, own)
        path_chunks = (ends[path] // chunk_bytes).astype(np.int32)
        new_offsets, new = new_keys(known_chunks, offsets, own, base_chunks)
        if salt is not None:
            new = np.array(keyed(new.tolist(), salt), np.uint64)
        table = _table(
            rows,
            prompt_tokens=ends[prompt] * CHUNK_TOKENS // chunk_bytes,
            path_tokens=ends[path] * CHUNK_TOKENS // chunk_bytes,
            hidden=np.array([lengths[self._head_of[row.prompt]] > 0 for row in rows]),
            base=base,
            base_chunks=base_chunks,
            path_chunks=path_chunks,
        )
        vocabulary = {"name": BYTES, "bytes_per_chunk": chunk_bytes}
        if self._tokenizer is not None:
            vocabulary = self._tokenizer.meta
        meta = TraceMeta(
            CHUNK_TOKENS,
            vocabulary | {"reasoning_scale": round(rates.reasoning_scale, 3)},
            salt_check=None if salt is None else salt_check(salt),
            sources=sources,
        )
        layout = None
        if self._layout is not None:
            tokens = ends * CHUNK_TOKENS // chunk_bytes
            layout = self._layout.finish(prompt.tolist(), path.tolist(), tokens, salt)
        return Trace(table, meta, keys=(new_offsets, new), parts=layout)

    def _take(self, node: Node) -> int:
        """Store a node and those before it, once each; return its number."""
        fresh = []
        at: Node | None = node
        while at is not None and at.index < 0:
            fresh.append(at)
            at = at.parent
        for each in reversed(fresh):
            known = len(self._parent)
            each.index = self._store(each)
            # A head that is there already has its part too.
            if self._layout is not None and each.index == known:
                self._layout.add(each, -1 if each.parent is None else each.parent.index)
            each.content = b""
        return node.index

    def _store(self, node: Node) -> int:
        parent = node.parent
        if parent is None:
            return self._store_head(node.content, node.tokens or 0)
        at = parent.index
        opaque, data = node.tokens, node.content
        if opaque is None:
            opaque, data = _TEXT, data if self._tokenizer is None else self._tokenizer.ids(data)
        return self._append(at, opaque, data, fitted=node.fitted)

    def _append(self, at: int, opaque: int, data: bytes, *, fitted: bool) -> int:
        self._parent.append(at)
        self._opaque.append(opaque)
        self._sizes.append(len(data))
        self._spool.write(data)
        self._fitted.append(fitted)
        self._visible.append(self._visible[at] + (len(data) if opaque == _TEXT else 0))
        self._fixed.append(self._fixed[at] + (0 if fitted else max(opaque, 0)))
        self._reasoning.append(self._reasoning[at] + (opaque if fitted else 0))
        self._head_of.append(self._head_of[at])
        return len(self._parent) - 1

    def _store_head(self, key: bytes, typical_tokens: int) -> int:
        number = self._heads.get(key)
        if number is None:
            number = self._heads[key] = len(self._parent)
            self._parent.append(-1)
            self._opaque.append(_HEAD)
            self._sizes.append(len(key))
            self._spool.write(key)
            self._fitted.append(False)
            self._visible.append(0)
            self._fixed.append(0)
            self._reasoning.append(0)
            self._head_of.append(number)
            self._typical[number] = typical_tokens
        return number

    def _grow(self, before: _Row, row: _Row) -> None:
        """Note what a call adds to the one before it, if it only adds."""
        earlier, later = before.call.logged_prompt_tokens, row.call.logged_prompt_tokens
        if earlier is None or later is None or not self._descends(row.prompt, before.prompt):
            return
        self._growths.append(
            Growth(
                self._visible[row.prompt] - self._visible[before.prompt],
                later - earlier - (self._fixed[row.prompt] - self._fixed[before.prompt]),
                self._reasoning[row.prompt] - self._reasoning[before.prompt],
            )
        )

    def _descends(self, node: int, ancestor: int) -> bool:
        # A node's number is above its parent's.
        while node > ancestor:
            node = self._parent[node]
        return node == ancestor

    def _measured(self) -> Iterator[Measured]:
        for row in self._rows:
            logged = row.call.logged_prompt_tokens
            if logged is not None and row.call.usage_source == "logged":
                at = row.prompt
                yield Measured(
                    self._head_of[at],
                    self._visible[at],
                    logged - self._fixed[at],
                    self._reasoning[at],
                )

    def _lengths(self, heads: dict[int, int], rates: Rates) -> array[int]:
        """Return the bytes that each node takes in its prompt's stream."""
        lengths = array("q")
        for node, opaque in enumerate(self._opaque):
            if opaque == _TEXT:
                lengths.append(self._sizes[node])
                continue
            tokens: float = heads[node] if opaque == _HEAD else opaque
            if self._fitted[node]:
                tokens *= rates.reasoning_scale
            lengths.append(round(tokens * rates.bytes_per_token))
        return lengths

    def _ends(self, lengths: array[int]) -> array[int]:
        """Return where in its prompt's stream each node ends, in bytes."""
        ends = array("q")
        for parent, length in zip(self._parent, lengths, strict=True):
            ends.append((ends[parent] if parent >= 0 else 0) + length)
        return ends

    def _cut(self, lengths: array[int], chunk_bytes: int) -> tuple[array[int], array[int]]:
        """Return the keys of chunks by the node they end in: keys[first[n]:first[n+1]]."""
        first, keys = array("q", [0]), array("Q")
        state: list[tuple[int, bytes]] = []
        self._spool.seek(0)
        for node, parent in enumerate(self._parent):
            key, tail = state[parent] if parent >= 0 else (SEED, b"")
            data = self._spool.read(self._sizes[node])
            if parent < 0 and not lengths[node]:
                # Prompts of two models share nothing, also where no head stands before them.
                key, data = seed_of(data), b""
            elif self._opaque[node] != _TEXT:
                data = filler(data, lengths[node])
            new, tail = extend(key, tail, data, chunk_bytes)
            keys.extend(new)
            first.append(len(keys))
            state.append((new[-1] if new else key, tail))
        self._spool.close()
        return first, keys

    def _paths(self, path: Any, chunks: Any, first: array[int], keys: array[int]) -> Any:
        """Split each path, in row order, into what an earlier row stored and its other keys."""
        row_of = array("q", [-1]) * len(self._parent)
        known, known_chunks, offsets, own = array("i"), array("i"), array("q", [0]), array("Q")
        for row, leaf in enumerate(path.tolist()):
            fresh, at = [], leaf
            while at >= 0 and row_of[at] < 0:
                fresh.append(at)
                at = self._parent[at]
            earlier = int(chunks[at]) if at >= 0 else 0
            known.append(row_of[at] if earlier else -1)
            known_chunks.append(earlier)
            for node in reversed(fresh):
                row_of[node] = row
                own.extend(keys[first[node] : first[node + 1]])
            offsets.append(len(own))
        return (
            np.frombuffer(known, np.int32),
            np.frombuffer(known_chunks, np.int32),
            np.frombuffer(offsets, np.int64),
            np.frombuffer(own, np.uint64) if own else np.empty(0, np.uint64),
        )


_GONE = Node(None, b"", None)


def _table(
    rows: list[_Row],
    *,
    prompt_tokens: Any,
    path_tokens: Any,
    hidden: Any,
    base: Any,
    base_chunks: Any,
    path_chunks: Any,
) -> pa.Table:
    calls = [row.call for row in rows]
    measured = (path_tokens - prompt_tokens).tolist()
    fidelity = [
        weakest(call.fidelity, "head_estimated") if estimated else call.fidelity
        for call, estimated in zip(calls, hidden.tolist(), strict=True)
    ]
    cached = [
        None
        if call.logged_cached_tokens is None or call.logged_prompt_tokens is None
        else min(call.logged_cached_tokens, call.logged_prompt_tokens)
        for call in calls
    ]
    columns = {
        "call": np.arange(len(calls), dtype=np.int32),
        "session": [call.session for call in calls],
        "parent_session": [call.parent_session for call in calls],
        "agent": [call.agent for call in calls],
        "model": [call.model for call in calls],
        "source": [call.source for call in calls],
        "index": [row.index for row in rows],
        "t_start_us": [call.start_us for call in calls],
        "t_end_us": [call.end_us for call in calls],
        "time_source": [call.time_source for call in calls],
        "prompt_tokens": prompt_tokens,
        "output_tokens": [
            size if call.output_tokens is None else call.output_tokens
            for call, size in zip(calls, measured, strict=True)
        ],
        "logged_prompt_tokens": [call.logged_prompt_tokens for call in calls],
        "logged_cached_tokens": cached,
        "usage_source": [call.usage_source for call in calls],
        "base": base,
        "base_chunks": base_chunks,
        "prompt_chunks": (prompt_tokens // CHUNK_TOKENS).astype(np.int32),
        "path_chunks": path_chunks,
        "kind": [call.kind for call in calls],
        "fidelity": fidelity,
    }
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in COLUMNS]
    return pa.table(arrays, schema=COLUMNS)
