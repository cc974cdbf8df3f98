"""Which size of host tier to recommend for one GPU."""

from __future__ import annotations

from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING

from agentkv_trace.advise import sizing

if TYPE_CHECKING:
    from agentkv_trace.advise.sizing import Sizing
    from agentkv_trace.report.case import Case

MARGIN = 0.25
"""Added to the smallest size: curves of agents that take turns are cliffs, and where the cliff
stands moves with the order of calls (a band of a quarter around the knee)."""

_BELOW, _ABOVE = 4, 8
_STEPS = 8


def choose(case: Case, found: Sizing) -> tuple[int | None, int | None, str | None]:
    """Return the smallest size that is enough, the size to buy, and why not where both are None.

    Sizes in bytes over all ranks. found: the sizing on the plain stack. Backends that are no
    stack are replayed at sizes around that of the stack, then more closely; a size is enough where
    it and all larger ones give the asked share, since their hits may fall in a larger tier.
    """
    if case.bands is None:
        if found.reason is None:
            return None, None, "its memory is unified: a host tier would take from the same DRAM"
        return None, None, found.reason
    chunk = _stack_chunk_bytes(case)
    if case.backend.replay == "ideal":
        case.best_hit_ratio = found.ceiling
        if found.need_chunks is None:
            return None, None, found.reason
        need = found.need_chunks * chunk
        return need, sizing.round_up(round(need * (1 + MARGIN))), None
    return _replayed(case, found, chunk)


def _replayed(case: Case, found: Sizing, chunk: int) -> tuple[int | None, int | None, str | None]:
    # Every chunk fits, with room for what watermarks keep free and for coarser chunks.
    unlimited = 2 * case.workload.curve.unique_chunks * chunk + sizing.GIB * case.options.ranks
    case.replay([0, unlimited])
    case.best_hit_ratio = case.hit_ratio(unlimited)
    gain = case.best_hit_ratio - case.gpu_hit_ratio
    if gain < sizing.MIN_GAIN:
        return None, None, found.reason or f"an unlimited tier would add {100 * gain:.2f} points"
    near = max(found.need_chunks or 0, 1) * chunk
    low = dropwhile(lambda size: size * _BELOW < near, sizing.buyable_sizes())
    sizes = [*takewhile(lambda size: size <= near * _ABOVE, low), unlimited]
    target = case.gpu_hit_ratio + case.options.recover * gain
    need = _smallest(case, sizes, target)
    below = max((size for size in sizes if size < need), default=need)
    need = _smallest(case, [*_between(below, need), *(s for s in sizes if s >= need)], target)
    return need, sizing.round_up(round(need * (1 + MARGIN))), None


def _smallest(case: Case, sizes: list[int], target: float) -> int:
    """Return the first of ascending sizes from which on all reach the target; the last does."""
    case.replay(sizes)
    enough = sizes[-1]
    for size in reversed(sizes[:-1]):
        if case.hit_ratio(size) < target:
            break
        enough = size
    return enough


def _between(low: int, high: int) -> list[int]:
    """Return sizes inside an interval, a few per cent apart."""
    return [low + (high - low) * step // _STEPS for step in range(1, _STEPS)]


def _stack_chunk_bytes(case: Case) -> int:
    """Return the bytes of one of the curve's chunks on all ranks that hold a part of it."""
    tokens = case.workload.curve.chunk_tokens
    return tokens * case.pool.kv_bytes_per_token * case.options.replica_ranks
