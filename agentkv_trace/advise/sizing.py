"""From a miss-ratio curve to a size: working set, hits on the GPU alone, host memory to buy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, takewhile
from typing import TYPE_CHECKING, Protocol

from agentkv_trace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

GIB = 2**30
"""Bytes in a GiB."""

MIN_GAIN = 0.005
"""Less than half a point of prompt tokens above the GPU is nothing to gain."""

_SMALL_GIB = (1, 2, 4, 8, 16, 24)


class Curve(Protocol):
    """What sizing asks of a miss-ratio curve; ratios are hit tokens / prompt tokens."""

    @property
    def ceiling(self) -> float:
        """Return the hit ratio of an unlimited cache."""
        ...

    @property
    def chunk_tokens(self) -> int:
        """Return the tokens in a chunk."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """Return the prompt tokens of all calls."""
        ...

    @property
    def references(self) -> int:
        """Return the full prompt chunks of all calls."""
        ...

    @property
    def unique_chunks(self) -> int:
        """Return the number of distinct chunks."""
        ...

    def prefix_hit_ratio(self, capacity_chunks: int) -> float:
        """Return the hit ratio of a cache of `capacity_chunks`."""
        ...

    def capacity_for(self, *, prefix_hit_ratio: float) -> int | None:
        """Return the smallest capacity in chunks with at least that hit ratio, if there is one."""
        ...


@dataclass(frozen=True, slots=True)
class Sizing:
    """How large a host tier a GPU wants; capacities in chunks, ratios of prompt tokens.

    `need_chunks` is the smallest inclusive tier with `target_hit_ratio`; both are None where
    there is nothing to gain, and `reason` says why.
    """

    pool_chunks: int
    gpu_hit_ratio: float
    ceiling: float
    target_hit_ratio: float | None = None
    need_chunks: int | None = None
    reason: str | None = None

    @property
    def gain(self) -> float:
        """Return what an unlimited tier adds to the GPU's hit ratio."""
        return self.ceiling - self.gpu_hit_ratio


@dataclass(frozen=True, slots=True)
class Step:
    """One size of host tier: its bytes over all ranks, what it holds and what it gives."""

    total_bytes: int
    capacity_chunks: int
    hit_ratio: float
    recovered: float


def check_recover(recover: float) -> None:
    """Raise InputError unless `recover` is a share above 0 and at most 1."""
    if not 0 < recover <= 1:
        raise InputError(f"--recover {recover}: must be above 0 and at most 1")


def working_set(curve: Curve, share: float = 1.0) -> int:
    """Return the smallest capacity in chunks that gives `share` of the achievable hits."""
    return _capacity(curve, share * curve.ceiling)


def size_host(curve: Curve, pool_chunks: int, recover: float) -> Sizing:
    """Return the smallest inclusive host tier that recovers a share of the missed hits.

    The missed hits are what an unlimited tier would add to a GPU tier of `pool_chunks`; an
    inclusive tier of H chunks makes the capacity max(pool_chunks, H).

    Raises InputError for a share out of range.
    """
    check_recover(recover)
    alone = curve.prefix_hit_ratio(pool_chunks)
    ceiling = curve.ceiling
    gain = ceiling - alone
    if gain < MIN_GAIN:
        reason = _nothing(curve, pool_chunks, gain)
        return Sizing(pool_chunks, alone, ceiling, reason=reason)
    target = min(alone + recover * gain, ceiling)
    need = _capacity(curve, target)
    return Sizing(pool_chunks, alone, ceiling, target, need)


def step(curve: Curve, sizing: Sizing, total_bytes: int, chunk_bytes: int) -> Step:
    """Return what a host tier of `total_bytes` gives; `chunk_bytes` is one chunk on all ranks."""
    chunks = total_bytes // chunk_bytes
    hits = curve.prefix_hit_ratio(max(sizing.pool_chunks, chunks))
    recovered = (hits - sizing.gpu_hit_ratio) / sizing.gain if sizing.gain > 0 else 0.0
    return Step(total_bytes, chunks, hits, recovered)


def round_up(needed_bytes: int) -> int:
    """Return the next size of host memory that people buy, in bytes."""
    return next(size for size in buyable_sizes() if size >= needed_bytes)


def around(total_bytes: int, below: int = 3, above: int = 2) -> list[int]:
    """Return buyable sizes in bytes around one of them, itself included."""
    smaller = list(takewhile(lambda size: size < total_bytes, buyable_sizes()))
    larger = (size for size in buyable_sizes() if size >= total_bytes)
    return smaller[-below:] + [size for size, _ in zip(larger, range(above + 1), strict=False)]


def buyable_sizes() -> Iterator[int]:
    """Yield sizes of host memory in bytes: 1, 2, 4, 8, 16, 24, then 32, 48, 64, 96, ... GiB."""
    yield from (gib * GIB for gib in _SMALL_GIB)
    for power in count(5):
        yield 2**power * GIB
        yield 3 * 2 ** (power - 1) * GIB


def _capacity(curve: Curve, hit_ratio: float) -> int:
    if hit_ratio <= 0:
        return 0
    found = curve.capacity_for(prefix_hit_ratio=hit_ratio)
    if found is None:
        raise ValueError(f"the curve never reaches a hit ratio of {hit_ratio}, below its ceiling")
    return found


def _nothing(curve: Curve, pool_chunks: int, gain: float) -> str:
    if curve.ceiling < MIN_GAIN:
        return "prompts share hardly any prefix, so no cache of any size would hit"
    if pool_chunks >= working_set(curve):
        return "the GPU's KV pool holds the whole working set"
    return f"an unlimited host tier would add {100 * gain:.2f} points"
