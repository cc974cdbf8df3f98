"""From the counts of a sample to the curve of the whole stream, and how far off it may be.

A sample holds all references of some chunks (or of some prefix trees): the *units*, each taken
with probability R. A reference taken at rate R stands for w = 1/R of the stream, and two of one
unit, taken at rates R and less, have the covariance a = 1/R - 1. Plain sums are right on average
but not close: one hot chunk in or out of the sample moves all of them. Some totals are known,
though: the references, and the distinct chunks, which are the cold references. So weights are
calibrated, w * (1 + p*c + q*g), such that these totals come out. c is the reference's covariance
with the cold ones; g, its a times the growth of the cube of its unit's references, lets the
units that spoil the totals carry the correction. What is missing because hot units are not in
the sample at all is hotter than what is, and is put at the smallest capacity: the share `head`,
large where one unit makes most of the variance, or where more is missing than the sample's own
spread explains. (SHARDS-adj puts all of it there.)

The error is measured, not assumed: replicas, the same counts of disjoint ranges of hashes,
spread around the curve as the curve does around the truth, but for their smaller rate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Float64 = NDArray[np.float64]
    Int64 = NDArray[np.int64]

Correction = Literal["calibrated", "adjusted", "none"]
CORRECTIONS: tuple[Correction, ...] = ("calibrated", "adjusted", "none")

GRID = 200
"""Capacities over which the error is averaged, evenly spaced up to the distinct chunks."""

SURPRISE = 1.5
_DRAWS = 400
_STUDENT = 1.207  # two-sided 95% of 7 degrees of freedom over that of the normal distribution


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """What is known of the whole stream, and None for what is not."""

    references: int
    unique_chunks: float | None
    cold_references: float | None
    relative_error: float = 0.0
    """Standard error of the two numbers above, where they are estimates."""

    def shifted(self) -> Totals:
        """Return the totals with estimates one standard error higher."""
        more = 1 + self.relative_error
        unique = None if self.unique_chunks is None else self.unique_chunks * more
        cold = None if self.cold_references is None else self.cold_references * more
        return Totals(self.references, unique, cold)


@dataclass(slots=True, eq=False)
class Tally:
    """Weighted counts of one sample.

    `hits` is float64[kinds, 3, size]: by sampled distance, the sums of w, w*c and w*g over
    references; for chunk distances and, where they are known, for prefix distances. `sums` is
    float64[8]: of w, w*c and w*g over all references and over the cold ones (at odd places),
    and the variances of the first two.
    """

    hits: Float64
    sums: Float64 = field(default_factory=lambda: np.zeros(8))
    spread: float = 0.0
    """Sum of w*a."""
    live: int = 0
    """Distinct chunks in the sample."""
    top_share: float = 0.0
    """Largest unit's references over the root of all units' squares."""
    rate: float = 1.0

    @property
    def references(self) -> float:
        """References of the stream, as estimated by their weights."""
        return float(self.sums[0])


@dataclass(frozen=True, slots=True, eq=False)
class SampledCurve:
    """Estimated hits of a stream at any capacity.

    `capacities`, float64[m], ascend from 0; `chunk_hits` and `prefix_hits`, float64[m], are
    estimated references that hit there, in between they are interpolated. `prefix_hits` is None
    where single chunks are sampled: there only tail-first calls of a prefix tree have a prefix
    curve, which is the same one.

    `expected_error` is the mean absolute error of the miss ratio to be expected, over `GRID`
    capacities evenly spaced up to `unique_chunks`; it stays below `error_bound` in 95% of seeds.
    Both are 0 where nothing was left out, 1 where nothing was sampled, and the larger of those of
    chunks and prefixes where there are two curves.
    """

    capacities: Float64
    chunk_hits: Float64
    prefix_hits: Float64 | None
    references: int
    unique_chunks: float
    rate: float
    samples: int
    seed: int
    expected_error: float
    error_bound: float

    def miss_ratio(self, capacity_chunks: ArrayLike) -> Float64:
        """Return missed references over references at each capacity."""
        at = np.asarray(capacity_chunks, np.float64)
        hits = np.interp(at, self.capacities, self.chunk_hits)
        return np.asarray(1 - hits / max(self.references, 1), np.float64)

    def histogram(self, prefix: bool = False) -> tuple[Int64, Int64]:
        """Return distances in chunks, ascending, and whole references at each, both int64[k].

        Rounded so that totals stay within half a reference. `prefix` asks for the capacities
        from which whole prefixes are resident, where they are known.
        """
        hits = self.prefix_hits if prefix and self.prefix_hits is not None else self.chunk_hits
        middles = (self.capacities[1:] + self.capacities[:-1]) / 2
        counts = np.diff(np.rint(hits)).astype(np.int64)
        held = counts > 0
        return np.ceil(middles[held]).astype(np.int64), counts[held]


def sampled_curve(
    tally: Tally,
    replicas: Sequence[Tally],
    totals: Totals,
    correction: Correction,
    seed: int,
) -> SampledCurve:
    """Return the curve of a sample with the error that its replicas show."""
    capacities, hits, unique = _estimate(tally, totals, correction)
    expected, bound = _error(tally, replicas, totals, correction, unique)
    return SampledCurve(
        capacities,
        hits[0],
        hits[1] if len(hits) > 1 else None,
        totals.references,
        unique,
        tally.rate,
        tally.live,
        seed,
        expected,
        bound,
    )


def _estimate(
    tally: Tally, totals: Totals, correction: Correction, surprise: float = SURPRISE
) -> tuple[Float64, Float64, float]:
    """Return capacities float64[m], hits float64[kinds, m], and the number of distinct chunks."""
    sums: Float64 = np.cumsum(tally.hits[:, :, : tally.live + 1], axis=2)
    missing = totals.references - tally.references
    if correction == "calibrated":
        hits = sums[:, 0]
        if tally.sums[4] > 0:
            p, q, head = _calibration(tally, missing, totals.cold_references, surprise)
            carried = (1 - head) * sums[:, 2] + head * sums[:, 2, -1:]
            hits = hits + p * sums[:, 1] + q * carried
    elif correction == "adjusted":
        hits = sums[:, 0] + missing
    else:
        hits = sums[:, 0] * (totals.references / max(tally.references, 1.0))
    unique = totals.unique_chunks
    if unique is None:
        unique = tally.live / tally.rate
    most = max(totals.references - (totals.cold_references or 0.0), 0.0)
    hits = np.maximum.accumulate(np.clip(hits, 0, most), axis=1)
    hits[:, 0] = 0
    capacities = np.arange(tally.live + 1, dtype=np.float64) * (unique / max(tally.live, 1))
    return capacities, hits, unique


def _calibration(
    tally: Tally, missing: float, cold: float | None, surprise: float
) -> tuple[float, float, float]:
    """Return p, q and head as above; more than `surprise` deviations need another explanation."""
    _, cold_seen, covariance, cold_covariance, growth, cold_growth, *variances = tally.sums.tolist()
    p, q = 0.0, missing / growth
    unexplained, variance = missing, variances[0]
    if cold is not None and variances[1] > 0:
        more_cold = cold - cold_seen
        slope = covariance / variances[1]
        unexplained -= slope * more_cold
        variance -= slope * covariance
        determinant = cold_covariance * growth - cold_growth * covariance
        if determinant > 1e-9 * cold_covariance * growth:
            p = (more_cold * growth - missing * cold_growth) / determinant
            q = (missing * cold_covariance - more_cold * covariance) / determinant
    head = 0.0
    if q > 0:
        head = tally.top_share
        if unexplained > 0:
            head = max(head, 1 - surprise**2 * max(variance, 0.0) / unexplained**2)
    return p, q, head


def _error(
    tally: Tally,
    replicas: Sequence[Tally],
    totals: Totals,
    correction: Correction,
    unique: float,
) -> tuple[float, float]:
    """Return the mean absolute error to expect over the grid and its 95% bound."""
    if tally.spread == 0 and tally.live:
        return 0.0, 0.0
    if not tally.live:
        return (1.0, 1.0) if totals.references else (0.0, 0.0)
    grid = np.arange(1, GRID + 1) * (unique / GRID)

    def ratios(each: Tally, known: Totals, surprise: float = SURPRISE) -> Float64:
        capacities, hits, _ = _estimate(each, known, correction, surprise)
        return np.array([np.interp(grid, capacities, row) for row in hits]) / known.references

    found = ratios(tally, totals)
    off = np.array([ratios(each, totals) for each in replicas]) - found
    # Replicas have a smaller rate, so a larger variance per reference.
    theirs = np.mean([each.spread / each.references for each in replicas if each.live])
    ratio = tally.spread / tally.references / float(theirs)
    off *= np.sqrt(ratio / (len(replicas) - 1))
    # What replicas do not show: the error of estimated totals, and how sure `head` is.
    shown = (ratios(tally, totals.shifted()) - found, ratios(tally, totals, 1.0) - found)
    off = np.concatenate((off, shown))
    deviations = np.sqrt((off**2).sum(axis=0))
    draws = np.random.default_rng(0).standard_normal((_DRAWS, len(off)))
    errors = np.abs(np.tensordot(draws, off, 1)).mean(axis=2)
    expected = np.sqrt(2 / np.pi) * deviations.mean(axis=1).max()
    return float(expected), float(_STUDENT * np.quantile(errors, 0.975, axis=0).max())
