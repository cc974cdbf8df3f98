"""Does a host tier pay? Only where low, mid and high agree; else it depends, and on what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from agentkv_trace.advise.economics import time_balance

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentkv_trace.advise.economics import Balance, CostBands, Machine, Traffic

Word = Literal["pays", "costs", "neutral", "depends"]

SMALL = 0.01
"""A gain below this share of the prefill time without the tier is no gain."""

INPUTS = {
    "mfu": ("the prefill speed", "of peak", 1.0),
    "h2d_gbps": ("the copies to the GPU", "GB/s", 1.0),
    "d2h_gbps": ("the copies to host", "GB/s", 1.0),
    "restore_s": ("the fixed time of a restore", "ms", 1e3),
    "store_sync_s": ("the wait of each prefill step for its store", "ms", 1e3),
    "write_exposed": ("how far copies to host are felt", "of their time", 1.0),
}
"""Name, unit and factor of each input, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider:
    """The input that decides: it turns the sign alone, at `break_even`, or moves most (None)."""

    input: str
    low: float
    high: float
    break_even: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The word, the balances at least, mid and most favourable costs, and what decides.

    `prefill_s` is the prefill time without the tier at the mid costs.
    """

    word: Word
    least: Balance
    mid: Balance
    most: Balance
    prefill_s: float
    decider: Decider | None = None


def judge(
    traffic: Traffic, machine: Machine, bands: CostBands, prefill_s: Callable[[float], float]
) -> Verdict:
    """Return the verdict on a tier.

    prefill_s: seconds of all prefill without the tier at an MFU, the scale of what counts.
    Pays or costs where all three balances say so and the mid one is more than 1% of that time;
    neutral where all are within it, or where signs agree on less.
    """
    sets = (bands.least(), bands.mid(), bands.most())
    balances = [time_balance(traffic, machine, costs) for costs in sets]
    gains = [balance.gain_s for balance in balances]
    scales = [prefill_s(costs.mfu) for costs in sets]
    word = _word(gains, scales)
    decider = _decider(traffic, machine, bands) if word == "depends" else None
    least, mid, most = balances
    return Verdict(word=word, least=least, mid=mid, most=most, prefill_s=scales[1], decider=decider)


def _word(gains: list[float], scales: list[float]) -> Word:
    if all(abs(gain) <= SMALL * scale for gain, scale in zip(gains, scales, strict=True)):
        return "neutral"
    enough = abs(gains[1]) > SMALL * scales[1]
    if all(gain > 0 for gain in gains):
        return "pays" if enough else "neutral"
    if all(gain < 0 for gain in gains):
        return "costs" if enough else "neutral"
    return "depends"


def _decider(traffic: Traffic, machine: Machine, bands: CostBands) -> Decider:
    """Vary one input at a time around the mid costs; prefer one that turns the sign alone."""

    def gain(name: str, value: float) -> float:
        return time_balance(traffic, machine, bands.vary(name, value)).gain_s

    def swing(name: str) -> float:
        band = getattr(bands, name)
        return abs(gain(name, band.high) - gain(name, band.low))

    names = [name for name, _ in bands]
    turning = [
        name for name, band in bands if (gain(name, band.low) > 0) != (gain(name, band.high) > 0)
    ]
    name = max(turning or names, key=swing)
    band = getattr(bands, name)
    even = _root(lambda value: gain(name, value), band.low, band.high) if turning else None
    return Decider(input=name, low=band.low, high=band.high, break_even=even)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a monotone function turns its sign, by halves."""
    positive = function(low) > 0
    for _ in range(60):
        middle = (low + high) / 2
        if (function(middle) > 0) == positive:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def in_words(decider: Decider) -> str:
    """Return what decides, with its range and the point where the sign turns."""
    words, unit, factor = INPUTS[decider.input]
    span = f"{decider.low * factor:.3g} to {decider.high * factor:.3g} {unit}"
    if decider.break_even is None:
        return f"{words} more than on anything else ({span}), but not on it alone"
    return f"{words} ({span}; even at {decider.break_even * factor:.3g} {unit})"
