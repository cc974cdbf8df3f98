"""SHARDS: miss-ratio curves from a sample of chunks, in one pass over a stream of any length.

A chunk is sampled where the hash of its key and the seed is below a limit, so all references
to it are, and their distances among sampled chunks are the true ones times the rate. With a
fixed rate memory follows the distinct chunks; with a fixed size the limit falls as chunks
come, those above it leave, and what was counted is rescaled, so memory is constant.

Whole prefixes need all their chunks: for hits per call, sample by the prefix tree's root, the
first chunk of a path, which takes or leaves all calls of a tree. That is only as good as there
are trees. For tail-first calls of a prefix tree it is not needed: distances ascend with depth,
so the curve of chunks is that of prefixes too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from agentkv_trace.engine.chunk_stack import ORDERS, Order, as_calls, call_pieces
from agentkv_trace.engine.keys import (
    DistinctCount,
    as_keys,
    hashes,
    pieces,
    salt_of,
    select,
)
from agentkv_trace.engine.lru_line import STREAM
from agentkv_trace.engine.sample import Sample
from agentkv_trace.engine.sampled_curve import (
    CORRECTIONS,
    Correction,
    SampledCurve,
    Totals,
    sampled_curve,
)
from agentkv_trace.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Int64 = NDArray[np.int64]
    UInt64 = NDArray[np.uint64]
    Calls = tuple[Int64, Int64]  # offsets, and how many chunks each looks up

By = Literal["chunk", "root"]

PIECE = 2**19
"""References filtered at a time."""

REPLICAS = 8  # a power of two: the lowest bits of the hash choose the replica
_KEPT = 7 / 8  # of a full sample when the limit falls


class Shards:
    """A sampled stream: feed it in pieces, then ask for the result."""

    def __init__(
        self,
        *,
        rate: float | None = None,
        samples: int | None = None,
        seed: int = 0,
        order: Order | None = None,
        by: By = "chunk",
        correction: Correction = "calibrated",
    ) -> None:
        """Sample at a fixed rate, above 0 and at most 1, or hold at most `samples` chunks.

        Without an order the stream is flat; with one it is calls, each looked up before it is
        touched in that order. `by="root"` samples whole prefix trees. `correction` says how
        known totals are used: "adjusted" is SHARDS-adj, "none" the plain ratio.

        Raises:
            InputError: Not one of rate and samples, or a value out of range.
        """
        if (rate is None) == (samples is None):
            raise InputError("sampling takes a rate or a number of samples, one of the two")
        if rate is not None and not 0 < rate <= 1:
            raise InputError(f"a sampling rate is above 0 and at most 1, not {rate:g}")
        if samples is not None and samples < 1:
            raise InputError(f"a sample holds at least one chunk, not {samples}")
        if order is not None and order not in ORDERS:
            raise InputError(f"there is no order {order!r}: use one of {', '.join(ORDERS)}")
        if by not in ("chunk", "root") or correction not in CORRECTIONS:
            raise InputError(f"cannot sample by {by!r} with correction {correction!r}")
        if by == "root" and (order is None or rate is None):
            raise InputError("sampling by root takes calls in some order, and a fixed rate")
        self.seed = seed
        self._order = order
        self._by = by
        self._correction = correction
        self._salt = salt_of(seed)
        self._limit = max(int((rate or 1) * 2**64) - 1, 0)
        self._most = samples or 2**31 - 1
        self._references = 0
        self._touched_only = False
        self._distinct = DistinctCount()
        code = STREAM if order is None else ORDERS.index(order)
        kinds = 2 if by == "root" else 1
        self._sample = Sample(kinds, code)
        self._replicas = [Sample(kinds, code) for _ in range(REPLICAS)]

    @property
    def rate(self) -> float:
        """The sampling rate now."""
        return (self._limit + 1) / 2**64

    def feed(
        self,
        keys: Any,
        offsets: ArrayLike | None = None,
        prompt_chunks: ArrayLike | None = None,
    ) -> None:
        """Sample a piece of the stream: uint64[n] keys, and for calls what `CallStack` takes.

        Pieces of 100,000 references and more are fastest. With a fixed rate the result does
        not depend on where pieces end, with a fixed size a little.

        Raises:
            InputError: Wrong type of keys, offsets for a flat stream or none for calls, or
                offsets and prompt chunks that do not fit.
        """
        if (offsets is None) != (self._order is None):
            raise InputError("offsets go with an order of touches, a flat stream has neither")
        if offsets is None:
            for piece in pieces(as_keys(keys), PIECE):
                self._feed(piece, None)
                self._references += piece.size
            return
        keys, offsets, looked = as_calls(keys, offsets, prompt_chunks)
        self._touched_only = self._touched_only or int(looked.sum()) < keys.size
        for first, end in call_pieces(offsets, PIECE):
            begin, until = int(offsets[first]), int(offsets[end])
            piece = np.require(keys[begin:until], np.uint64, ["C", "W"])
            self._feed(piece, (offsets[first : end + 1] - begin, looked[first:end]))
            self._references += int(looked[first:end].sum())

    def result(
        self, unique_chunks: int | None = None, cold_references: int | None = None
    ) -> SampledCurve:
        """Return the curve so far; pass what is known exactly to take out the scale error.

        `unique_chunks` are the distinct chunks touched, `cold_references` those that no earlier
        call touched (the same number where all that is touched is looked up). Unknown ones are
        estimated from the hashes of all keys, to 0.16%; SHARDS itself estimates by the rate.

        Raises:
            InputError: There are more distinct chunks in the sample.
        """
        held = len(self._sample.line)
        if unique_chunks is not None and unique_chunks < held:
            raise InputError(f"the stream has at least {held} distinct chunks, not {unique_chunks}")
        unique: float | None = unique_chunks
        error = 0.0
        if unique is None and self.rate == 1:
            unique = held
        elif unique is None and self._correction == "calibrated":
            unique, error = self._distinct.estimate, DistinctCount.RELATIVE_ERROR
            if not self._touched_only:
                unique = min(unique, self._references)
        cold: float | None = cold_references
        if cold is None and not self._touched_only:
            cold = unique
        replicas = [each.result(self.rate / REPLICAS) for each in self._replicas]
        return sampled_curve(
            self._sample.result(self.rate),
            replicas,
            Totals(self._references, unique, cold, error),
            self._correction,
            self.seed,
        )

    def _feed(self, keys: UInt64, calls: Calls | None) -> None:
        roots: UInt64 | None = None
        bounds: Calls | None
        if self._by == "root" and calls is not None:
            self._distinct.sift(keys, self._salt, 0)
            chosen, bounds, roots = self._trees(keys, *calls)
        else:
            chosen = self._distinct.sift(keys, self._salt, self._limit)
            bounds = None if calls is None else _calls_of(chosen, *calls)
        found = keys[chosen]
        while not self._sample.feed(found, bounds, roots, self.rate, self._most):
            self._shrink()
            held = select(found, self._salt, self._limit)
            found = found[held]
            bounds = None if bounds is None else _calls_of(held, *bounds)
        if not found.size:
            return
        which = hashes(found if roots is None else roots, self._salt) & np.uint64(REPLICAS - 1)
        for number, replica in enumerate(self._replicas):
            mine = np.flatnonzero(which == np.uint64(number))
            if mine.size:
                theirs = None if bounds is None else _calls_of(mine, *bounds)
                root = None if roots is None else roots[mine]
                replica.feed(found[mine], theirs, root, self.rate / REPLICAS, 2**31 - 1)

    def _trees(self, keys: UInt64, offsets: Int64, looked: Int64) -> tuple[Int64, Calls, UInt64]:
        """Return the references of sampled trees, the calls they make, and their roots."""
        sizes = np.diff(offsets)
        held = np.flatnonzero(sizes)
        held = held[select(keys[offsets[held]], self._salt, self._limit)]
        bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes[held])))
        shift = np.repeat(offsets[held] - bounds[:-1], sizes[held])
        roots = np.repeat(keys[offsets[held]], sizes[held])
        return np.arange(bounds[-1]) + shift, (bounds, looked[held]), roots

    def _shrink(self) -> None:
        """Lower the limit so that a full sample keeps seven eighths of its chunks."""
        known = np.sort(hashes(self._sample.line.ids.keys, self._salt))
        self._limit = max(int(known[int(_KEPT * self._most)]) - 1, 0)
        for each in (self._sample, *self._replicas):
            each.shrink(self._salt, self._limit)


def _calls_of(chosen: Int64, offsets: Int64, looked: Int64) -> Calls:
    """Return offsets and chunks to look up of the calls that are left with some references."""
    bounds = np.searchsorted(chosen, offsets)
    return bounds, np.searchsorted(chosen, offsets[:-1] + looked) - bounds[:-1]
