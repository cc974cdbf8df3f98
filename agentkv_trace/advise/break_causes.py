"""From single breaks to causes: patterns over a session, and the top causes of a trace."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.advise.breaks import Break
    from agentkv_trace.trace.store import Trace

FEW_CALLS = 10
"""A fold after fewer calls since the last one, or the first call, comes too often."""

SMALL_SHARE = 0.5
"""A fold below this share of the longest prompt of its model comes too early."""

MIN_GROWTHS = 3
"""A part that grew in this many calls of a session is one that grows."""


@dataclass(frozen=True, slots=True)
class TopCause:
    """All breaks of one class and cause: their places in the list, most tokens lost first."""

    kind: str
    cause: str | None
    members: tuple[int, ...]
    sessions: int
    lost_tokens: int


def mark_patterns(trace: Trace, breaks: Sequence[Break]) -> None:
    """Give breaks the causes that only a whole session shows: growth, folds that come too often."""
    sessions = trace.codes("session")[0].tolist()
    by_session: dict[int, list[Break]] = defaultdict(list)
    for one in breaks:
        by_session[sessions[one.call]].append(one)
    facts = _Facts(trace)
    for group in by_session.values():
        grown = [one for one in group if one.grown and one.cause in (None, "id", "date")]
        if len(grown) >= MIN_GROWTHS:
            for one in grown:
                one.cause = "growing" if one.cause is None else one.cause
        _mark_folds(group, facts)


class _Facts:
    """What is asked of rows again and again."""

    def __init__(self, trace: Trace) -> None:
        self.index = trace.array("index").tolist()
        self.tokens = trace.array("prompt_tokens").tolist()
        self.models = trace.codes("model")[0].tolist()
        self.longest: dict[int, int] = defaultdict(int)
        for model, size in zip(self.models, self.tokens, strict=True):
            self.longest[model] = max(self.longest[model], size)


def _mark_folds(group: Sequence[Break], facts: _Facts) -> None:
    last = 0
    for one in group:
        if one.kind != "history_folded" or one.relation != "next" or one.cause is not None:
            continue
        at = facts.index[one.call]
        few = at - last < FEW_CALLS
        room = facts.longest[facts.models[one.call]]
        if few or facts.tokens[one.before] < SMALL_SHARE * room:
            one.cause = "frequent_folds"
        last = at


def top_causes(trace: Trace, breaks: Sequence[Break]) -> list[TopCause]:
    """Return the causes of a trace's breaks, most tokens lost first."""
    sessions = trace.codes("session")[0].tolist()
    groups: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    for at, one in enumerate(breaks):
        groups[one.kind, one.cause].append(at)
    found = [
        TopCause(
            kind,
            cause,
            tuple(sorted(members, key=lambda at: (-breaks[at].lost_tokens, at))),
            len({sessions[breaks[at].call] for at in members}),
            sum(breaks[at].lost_tokens for at in members),
        )
        for (kind, cause), members in groups.items()
    ]
    return sorted(found, key=lambda one: (-one.lost_tokens, one.kind, one.cause or ""))
