"""From a trace to an explanation of the reuse it lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agentkv_trace import __version__
from agentkv_trace.advise.break_causes import mark_patterns, top_causes
from agentkv_trace.advise.break_places import place_words
from agentkv_trace.advise.break_words import CAUSES, CLASSES
from agentkv_trace.advise.breaks import find_breaks, resumed
from agentkv_trace.report.breaks.model import (
    SCHEMA,
    BreakRow,
    CallRef,
    CauseRow,
    CostBasis,
    Explanation,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.advise.break_cost import Cost
    from agentkv_trace.advise.breaks import Break
    from agentkv_trace.trace.store import Trace

EXAMPLES = 3
"""Calls named for each cause."""


def build_explanation(
    trace: Trace, costs: Sequence[Cost] = (), limit: int | None = None
) -> Explanation:
    """Return the breaks of a trace and their causes; at most `limit` breaks, the largest."""
    import numpy as np

    breaks = find_breaks(trace)
    mark_patterns(trace, breaks)
    names = _names(trace)
    seconds = [_seconds(one, costs) for one in breaks]
    total = int(trace.array("prompt_tokens").sum(dtype=np.int64))
    reused = np.minimum(trace.array("base_chunks"), trace.array("prompt_chunks"))
    lost = sum(one.lost_tokens for one in breaks)
    shown = _largest(breaks, limit)
    places = place_words(trace.layout(), [breaks[at] for at in shown])
    return Explanation(
        schema=SCHEMA,
        version=__version__,
        layout=trace.layout() is not None,
        chunk_tokens=trace.meta.chunk_tokens,
        calls=len(trace),
        sessions=len(set(names.sessions)),
        prompt_tokens=total,
        reused_tokens=int(reused.sum(dtype=np.int64)) * trace.meta.chunk_tokens,
        broken_calls=len({one.call for one in breaks}),
        lost_tokens=lost,
        lost_share=_share(lost, total),
        gpus=tuple(
            CostBasis(
                gpu=cost.gpu.id,
                name=cost.gpu.name,
                model=cost.model.id,
                tp=cost.deployment.tp,
                mfu=cost.gpu.prefill_mfu[1],
            )
            for cost in costs
        ),
        causes=_causes(trace, breaks, seconds, names, total),
        breaks=tuple(
            _row(breaks[at], seconds[at], place, names)
            for at, place in zip(shown, places, strict=True)
        ),
        intact=tuple(names.call(row) for row in resumed(trace, breaks)),
    )


def words_of(kind: str, cause: str | None) -> str:
    """Return class and cause in words."""
    return f"{CLASSES[kind]}: {CAUSES[cause].words}" if cause else CLASSES[kind]


def _largest(breaks: Sequence[Break], limit: int | None) -> list[int]:
    order = sorted(range(len(breaks)), key=lambda at: -breaks[at].lost_tokens)
    return sorted(order[:limit])


def _seconds(one: Break, costs: Sequence[Cost]) -> tuple[float, ...]:
    start = one.reused_tokens
    return tuple(cost.seconds(start, start + one.lost_tokens) for cost in costs)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


class _Names(NamedTuple):
    """What rows are called."""

    sessions: list[str]
    indices: list[int]
    agents: list[str]
    models: list[str | None]

    def call(self, row: int) -> CallRef:
        return CallRef(session=self.sessions[row], index=self.indices[row])


def _names(trace: Trace) -> _Names:
    columns = ("session", "index", "agent", "model")
    return _Names(*(trace.table[column].to_pylist() for column in columns))


def _row(one: Break, seconds: tuple[float, ...], place: str, names: _Names) -> BreakRow:
    return BreakRow(
        session=names.sessions[one.call],
        index=names.indices[one.call],
        agent=names.agents[one.call],
        model=names.models[one.call],
        before=names.call(one.before),
        break_class=one.kind,
        cause=one.cause,
        words=words_of(one.kind, one.cause),
        token=one.token,
        chunk=one.chunk,
        place=place,
        lost_tokens=one.lost_tokens,
        reused_tokens=one.reused_tokens,
        waited_s=one.waited_us / 1e6,
        cost_s=seconds,
    )


def _causes(
    trace: Trace,
    breaks: Sequence[Break],
    seconds: Sequence[tuple[float, ...]],
    names: _Names,
    total: int,
) -> tuple[CauseRow, ...]:
    rows = []
    for found in top_causes(trace, breaks):
        costs = [seconds[at] for at in found.members]
        rows.append(
            CauseRow(
                break_class=found.kind,
                cause=found.cause,
                words=words_of(found.kind, found.cause),
                fix=CAUSES[found.cause].fix if found.cause else None,
                breaks=len(found.members),
                sessions=found.sessions,
                lost_tokens=found.lost_tokens,
                lost_share=_share(found.lost_tokens, total),
                cost_s=tuple(map(sum, zip(*costs, strict=True))),
                examples=tuple(names.call(breaks[at].call) for at in found.members[:EXAMPLES]),
            )
        )
    return tuple(rows)
