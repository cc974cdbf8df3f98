"""The miss-ratio curve: what every engine returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agentkv_trace.engine.cumulative import Cumulative
from agentkv_trace.engine.curve_points import choose_points
from agentkv_trace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agentkv_trace.engine.path_stack import Runs

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

KNEE = 0.05
"""A bend of less than this share of all hits is none."""


@dataclass(frozen=True, slots=True, eq=False)
class MissRatioCurve:
    """Hits of a workload at every capacity at once; capacities are in chunks.

    `chunk_hits` counts references to resident chunks, `prefix_hits` those whose whole prefix
    is resident as well; they are one for the path engine. `references` counts full prompt
    chunks over all calls, `unique_chunks` the distinct chunks touched, outputs included.
    `sampling` is None for exact curves, else a dict of rate, samples, seed, expected_error.
    """

    chunk_tokens: int
    calls: int
    prompt_tokens: int
    references: int
    unique_chunks: int
    chunk_hits: Cumulative
    prefix_hits: Cumulative
    engine: str
    order: str = "tail-first"
    sampling: dict[str, Any] | None = None

    @classmethod
    def from_runs(
        cls,
        runs: Runs,
        *,
        chunk_tokens: int,
        calls: int,
        prompt_tokens: int,
        references: int,
        unique_chunks: int,
    ) -> MissRatioCurve:
        """Return the exact curve of the path engine's runs; the others are totals of the trace."""
        hits = Cumulative.of_runs(runs.first_distance, runs.length)
        return cls(
            chunk_tokens, calls, prompt_tokens, references, unique_chunks, hits, hits, "path"
        )

    @classmethod
    def from_distances(
        cls,
        distances: ArrayLike,
        counts: ArrayLike | None = None,
        *,
        prefix_distances: ArrayLike | None = None,
        prefix_counts: ArrayLike | None = None,
        chunk_tokens: int,
        calls: int,
        prompt_tokens: int,
        references: int,
        unique_chunks: int,
        engine: str = "chunk",
        order: str = "tail-first",
        sampling: dict[str, Any] | None = None,
    ) -> MissRatioCurve:
        """Return the curve of stack distances, as a list or as a histogram.

        `distances` are int64[n] from 1, of the references that were touched before, each
        counted `counts[i]` times (once by default). `prefix_distances` says the same of the
        capacity from which a reference and its whole prefix are resident (by default it is
        the same: right for prefix-closed orders only).

        Raises:
            InputError: A distance is below 1 or a count negative, or sizes differ.
        """
        hits = _histogram(distances, counts)
        prefix = hits
        if prefix_distances is not None:
            prefix = _histogram(prefix_distances, prefix_counts)
        return cls(
            chunk_tokens,
            calls,
            prompt_tokens,
            references,
            unique_chunks,
            hits,
            prefix,
            engine,
            order,
            sampling,
        )

    @classmethod
    def merge(cls, curves: Sequence[MissRatioCurve]) -> MissRatioCurve:
        """Return the curve of independent caches, each of the capacity asked for.

        Hits and references of all caches add up; n caches take n times the memory.
        `expected_error` is the mean over the curves, by references; what else differs between
        them is "mixed", or None in `sampling`.

        Raises:
            InputError: There is no curve, or chunk sizes differ.
        """
        if not curves:
            raise InputError("no curve to merge")
        if len({curve.chunk_tokens for curve in curves}) > 1:
            sizes = ", ".join(str(curve.chunk_tokens) for curve in curves)
            raise InputError(f"curves of different chunk sizes do not merge: {sizes} tokens")
        hits = Cumulative.sum_of(curve.chunk_hits for curve in curves)
        same = all(curve.chunk_hits is curve.prefix_hits for curve in curves)
        return cls(
            chunk_tokens=curves[0].chunk_tokens,
            calls=sum(curve.calls for curve in curves),
            prompt_tokens=sum(curve.prompt_tokens for curve in curves),
            references=sum(curve.references for curve in curves),
            unique_chunks=sum(curve.unique_chunks for curve in curves),
            chunk_hits=hits,
            prefix_hits=hits if same else Cumulative.sum_of(curve.prefix_hits for curve in curves),
            engine=_common([curve.engine for curve in curves], "mixed"),
            order=_common([curve.order for curve in curves], "mixed"),
            sampling=_merged_sampling(curves),
        )

    @property
    def cold_references(self) -> int:
        """References to chunks that were never touched before."""
        return self.references - self.chunk_hits.total

    @property
    def ceiling(self) -> float:
        """The prefix hit ratio of a cache without limit."""
        return float(self._ratio(self.prefix_hits.total))

    @overload
    def miss_ratio(self, capacity_chunks: int) -> float: ...
    @overload
    def miss_ratio(self, capacity_chunks: Sequence[int] | NDArray[np.integer]) -> Float64: ...
    def miss_ratio(self, capacity_chunks: Any) -> Any:
        """Return missed references / references, at one capacity or an array of them.

        1.0 where there are no references: without hits, all is missed.

        Raises:
            InputError: A capacity is negative or no whole number.
        """
        hits = self.chunk_hits.at(_capacities(capacity_chunks))
        ratio = 1.0 - hits / self.references if self.references else np.ones(hits.shape)
        return ratio if np.ndim(capacity_chunks) else float(ratio)

    @overload
    def prefix_hit_ratio(self, capacity_chunks: int) -> float: ...
    @overload
    def prefix_hit_ratio(self, capacity_chunks: Sequence[int] | NDArray[np.integer]) -> Float64: ...
    def prefix_hit_ratio(self, capacity_chunks: Any) -> Any:
        """Return hit tokens / prompt tokens, at one capacity or an array of them.

        The partial chunk at a prompt's end counts as missed. 0.0 where there are no tokens.

        Raises:
            InputError: A capacity is negative or no whole number.
        """
        ratio = self._ratio(self.prefix_hits.at(_capacities(capacity_chunks)))
        return ratio if np.ndim(capacity_chunks) else float(ratio)

    def _ratio(self, hits: Any) -> Any:
        return hits * self.chunk_tokens / self.prompt_tokens if self.prompt_tokens else hits * 0.0

    def capacity_for(self, *, prefix_hit_ratio: float) -> int | None:
        """Return the smallest capacity with at least that ratio, None above the ceiling."""
        if not prefix_hit_ratio <= self.ceiling:
            return None
        # Rounded down, so that what is off by rounding is made up for below.
        hits = int(max(prefix_hit_ratio, 0.0) * self.prompt_tokens / self.chunk_tokens)
        while self._ratio(hits) < prefix_hit_ratio:
            hits += 1
        return int(self.prefix_hits.reach(np.array(hits)))

    def reuse_distance(self, share: float) -> int | None:
        """Return the distance that this share of all reused references stays within.

        `share` is from 0 to 1: 0.5 gives the median distance. None where nothing is reused.

        Raises:
            InputError: The share is not from 0 to 1.
        """
        if not 0 <= share <= 1:
            raise InputError(f"a share of reused references is from 0 to 1, not {share}")
        total = self.chunk_hits.total
        wanted = min(max(int(np.ceil(share * total)), 1), total)
        return int(self.chunk_hits.reach(np.array(wanted))) if total else None

    def knee(self) -> int | None:
        """Return the capacity with most hits for its size; None where nothing ever hits.

        It is where the curve of hits is highest above the straight line to the smallest
        capacity that hits all that can hit. A curve that bends up by less than 5% of its
        hits (a cliff at its end, or a straight line) has its knee at that end.
        """
        x, y = self.prefix_hits.x, self.prefix_hits.y
        if not y[-1]:
            return None
        above = y / y[-1] - x / x[-1]
        best = int(np.argmax(above))
        return int(x[best] if above[best] >= KNEE else x[-1])

    def points(self, limit: int = 200) -> Int64:
        """Return ascending capacities, int64[n], n <= limit, that draw the curve.

        Includes 0, the smallest capacity that hits all that can hit, the first that hits at
        all, and both ends of cliffs; lines through the points are near the curve on a linear
        as on a logarithmic axis.

        Raises:
            InputError: The limit is below 1.
        """
        if limit < 1:
            raise InputError(f"a curve cannot be shown in {limit} points: give at least 1")
        same = self.chunk_hits is self.prefix_hits
        functions = [self.chunk_hits] if same else [self.chunk_hits, self.prefix_hits]
        return choose_points(functions, limit)

    def to_bytes(self, capacity_chunks: int, bytes_per_token: float) -> int:
        """Return what a capacity takes for a model, in bytes, rounded up."""
        return int(np.ceil(capacity_chunks * self.chunk_tokens * bytes_per_token))

    def from_bytes(self, size: int, bytes_per_token: float) -> int:
        """Return how many whole chunks of a model fit into `size` bytes."""
        return int(size // (self.chunk_tokens * bytes_per_token))

    def to_numpy(self) -> dict[str, NDArray[Any]]:
        """Return the exact curve as columns, one row per corner.

        `capacity_chunks`, `chunk_hits`, `prefix_hits` (int64[n], linear between rows and
        level behind the last), `miss_ratio`, `prefix_hit_ratio` (float64[n]).
        """
        x = np.union1d(self.chunk_hits.x, self.prefix_hits.x)
        return {
            "capacity_chunks": x,
            "chunk_hits": self.chunk_hits.at(x),
            "prefix_hits": self.prefix_hits.at(x),
            "miss_ratio": self.miss_ratio(x),
            "prefix_hit_ratio": self.prefix_hit_ratio(x),
        }

    def to_parquet(self, path: str | Path) -> None:
        """Write the exact curve: the columns of `to_numpy`, all else as metadata."""
        from agentkv_trace.engine.curve_file import write_curve

        write_curve(self, path)

    @classmethod
    def from_parquet(cls, path: str | Path) -> MissRatioCurve:
        """Read a curve that `to_parquet` wrote.

        Raises:
            InputError: The file cannot be read or is no curve of ours.
        """
        from agentkv_trace.engine.curve_file import read_curve

        return read_curve(path)


def _capacities(values: Any) -> Int64:
    found = np.asarray(values)
    if found.size and found.dtype.kind not in "iu":
        raise InputError(f"capacities are whole chunks, not {found.dtype}")
    if found.size and int(found.min()) < 0:
        raise InputError(f"a capacity is negative: {int(found.min())} chunks")
    return found.astype(np.int64)


def _histogram(distances: ArrayLike, counts: ArrayLike | None) -> Cumulative:
    found = np.asarray(distances)
    times = np.ones(found.shape, np.int64) if counts is None else np.asarray(counts)
    if found.shape != times.shape or found.ndim != 1:
        raise InputError(f"distances and counts differ: {found.shape} and {times.shape}")
    if found.size and (found.dtype.kind not in "iu" or times.dtype.kind not in "iu"):
        raise InputError(f"distances and counts are integers, not {found.dtype}, {times.dtype}")
    if found.size and (int(found.min()) < 1 or int(times.min()) < 0):
        raise InputError("distances are at least 1 and counts at least 0")
    return Cumulative.of_distances(found.astype(np.int64), times.astype(np.int64))


def _common(values: list[Any], otherwise: Any) -> Any:
    return values[0] if all(value == values[0] for value in values) else otherwise


def _merged_sampling(curves: Sequence[MissRatioCurve]) -> dict[str, Any] | None:
    parts = [curve.sampling or {} for curve in curves]
    if not any(parts):
        return None
    weights = [max(curve.references, 1) for curve in curves]
    errors = [part.get("expected_error") or 0.0 for part in parts]
    error = sum(w * e for w, e in zip(weights, errors, strict=True)) / sum(weights)
    merged = {
        key: _common([p.get(key) for p in parts], None) for key in ("rate", "samples", "seed")
    }
    return {**merged, "expected_error": error}
