"""Which calls lost their prefix: where, what the break is, and how many tokens it cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentkv_trace.advise.break_class import Look, Verdict, classify, reading
from agentkv_trace.advise.lost_reuse import RELATIONS, Relation, compared
from agentkv_trace.trace.parts import HEAD_KINDS, PART_KINDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agentkv_trace.advise.lost_reuse import Compared
    from agentkv_trace.engine.continuations import Tails
    from agentkv_trace.trace.layout import Layout
    from agentkv_trace.trace.store import Trace

EXPIRY_US = 60_000_000
"""A session that waited less than this has not expired."""

MIN_EXPIRED = 0.5
"""An expiry lost at least this share of what the prompt could reuse."""

LIKE_SIZES = 0.05
"""Heads of two sessions whose first different parts differ by less in size are of one making."""

_HEAD = frozenset(PART_KINDS.index(kind) for kind in HEAD_KINDS)
_HIDDEN = PART_KINDS.index("head")


@dataclass(slots=True)
class Break:
    """A call that reused less than the call before it allows; positions and sizes in tokens.

    `call` and `before` are rows. The prefixes part in chunk `chunk`, whose first token is at
    `token` or before it; `token` is where they part as far as chunks and parts tell. `part` is
    the part of the layout it is about, -1 without one. `waited_us` is the time since the
    session's last call ended.
    """

    call: int
    before: int
    relation: Relation
    kind: str
    lost_tokens: int
    reused_tokens: int
    token: int
    chunk: int
    cause: str | None = None
    part: int = -1
    in_place: bool = False
    grown: bool = False
    waited_us: int = 0


def find_breaks(trace: Trace) -> list[Break]:
    """Return the breaks of a trace in order of its calls.

    A call could have reused as much of its session's last path as its prompt has chunks;
    lost is what of that it shares with no earlier call. Without a layout, only models, folds and
    expiries are told apart, and heads of other sessions are not looked at.
    """
    import numpy as np

    found = compared(trace)
    layout = trace.layout()
    lost = np.maximum(found.allowed - found.reused, 0)
    goes_on = found.relation <= 1
    broken = np.flatnonzero(goes_on & (lost > 0))
    breaks = _breaks(trace, found, lost, broken, layout)
    if layout is not None:
        breaks += _between_sessions(trace, found, layout)
    breaks += _expired(trace, found, lost)
    _mark_models(trace, breaks)
    start, end = trace.array("t_start_us"), trace.array("t_end_us")
    for one in breaks:
        one.waited_us = max(int(start[one.call]) - int(end[one.before]), 0)
    return sorted(breaks, key=lambda one: one.call)


def resumed(trace: Trace, breaks: list[Break]) -> list[int]:
    """Return the rows of resumed sessions' calls that lost nothing."""
    codes, names = trace.codes("kind")
    lost = {one.call for one in breaks}
    wanted = names.index("resume") if "resume" in names else -2
    return [row for row in (codes == wanted).nonzero()[0].tolist() if row not in lost]


def _breaks(
    trace: Trace,
    found: Compared,
    lost: NDArray[Any],
    which: NDArray[Any],
    layout: Layout | None,
) -> list[Break]:
    """Return the breaks of calls that go on from another, classified."""
    size = trace.meta.chunk_tokens
    calls, befores = found.call[which], found.before[which]
    tails = None
    if layout is not None:
        from agentkv_trace.engine.continuations import part_tails

        tails = part_tails(layout.parent, layout.path[befores], layout.prompt[calls])
        look, old_ends = Look(layout), _ends(layout, layout.prompt[befores]).tolist()
    columns = (
        calls,
        befores,
        found.relation[which],
        found.folded[which],
        found.reused[which],
        found.shared[which],
        lost[which],
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    breaks = []
    for at, (call, before, relation, folded, reused, shared, chunks) in enumerate(rows):
        how = RELATIONS[relation]
        one = Break(
            call=call,
            before=before,
            relation=how,
            kind="history_folded" if folded or how == "aside" else "unknown",
            lost_tokens=chunks * size,
            reused_tokens=reused * size,
            token=shared * size,
            chunk=shared,
        )
        if tails is not None:
            verdict = _verdict(look, tails, at, old_ends[at], folded)
            _apply(one, verdict, look, tails, at)
        if how == "aside":
            # Whatever differs, it is the fold that asks for it.
            head = one.part >= 0 and look.kind[one.part] in _HEAD if tails is not None else False
            one.kind, one.cause = "history_folded", "fold_request" if head else None
        breaks.append(one)
    return breaks


def _verdict(look: Look, tails: Tails, at: int, old_end: int, folded: bool) -> Verdict:
    return classify(
        look,
        [part for part in tails.old[at].tolist() if part >= 0],
        [part for part in tails.new[at].tolist() if part >= 0],
        old_parts=int(tails.old_parts[at]),
        new_parts=int(tails.new_parts[at]),
        old_prompt_end=old_end,
        folded=folded,
    )


def _apply(one: Break, verdict: Verdict, look: Look, tails: Tails, at: int) -> None:
    one.kind, one.cause, one.part, one.in_place = verdict
    common = int(tails.common[at])
    one.token = max(one.token, look.end[common] if common >= 0 else 0)
    first = int(tails.old[at][0])
    one.grown = verdict.in_place and first >= 0 and look.size(verdict.part) > look.size(first)


def _ends(layout: Layout, parts: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    return np.where(parts >= 0, layout.end[parts], 0)


def _between_sessions(trace: Trace, found: Compared, layout: Layout) -> list[Break]:
    """Return the breaks of first calls whose head could have been that of another session."""
    import numpy as np

    from agentkv_trace.engine.continuations import part_tails

    size = trace.meta.chunk_tokens
    which = np.flatnonzero((found.relation >= 2) & (found.reused < found.allowed))
    calls, befores = found.call[which], found.before[which]
    tails = part_tails(layout.parent, layout.path[befores], layout.prompt[calls])
    look = Look(layout)
    kinds, names = trace.codes("kind")
    breaks = []
    for at, (call, before) in enumerate(zip(calls.tolist(), befores.tolist(), strict=True)):
        how = RELATIONS[int(found.relation[which[at]])]
        reused = int(found.reused[which[at]])
        verdict = _verdict(look, tails, at, 0, folded=False)
        mine = layout.chain(int(layout.prompt[call]))
        theirs = layout.chain(int(layout.path[before]))
        allowed = min(_shareable(look, mine, theirs), _shareable(look, theirs, mine))
        lost = min(allowed // size, int(found.allowed[which[at]])) - reused
        if lost <= 0:
            continue
        shared = int(found.shared[which[at]])
        one = Break(call, before, how, "", lost * size, reused * size, shared * size, shared)
        _apply(one, verdict, look, tails, at)
        if how == "child" and names[kinds[call]] != "fork":
            one.kind, one.cause = "subagent_head", None
        elif how == "first":
            if not _of_one_making(look, tails, at):
                continue
            one.kind, one.cause = "head_changed", "session_head"
        breaks.append(one)
    return breaks


def _shareable(look: Look, mine: list[int], theirs: list[int]) -> int:
    """Return the tokens of the leading parts that are a head or also in the other prompt."""
    texts = {look.text[part] for part in theirs}
    end = 0
    for part in mine:
        if look.kind[part] not in _HEAD and look.text[part] not in texts:
            break
        end = look.end[part]
    return end


def _of_one_making(look: Look, tails: Tails, at: int) -> bool:
    """Tell whether two heads differ in what a visible part holds, not in what it is."""
    old, new = int(tails.old[at][0]), int(tails.new[at][0])
    if old < 0 or new < 0 or not look.alike(old, new) or look.kind[new] == _HIDDEN:
        return False
    if reading(look, old, new) is not None:
        return True
    sizes = look.size(old), look.size(new)
    return max(sizes) - min(sizes) <= LIKE_SIZES * max(sizes)


def _expired(trace: Trace, found: Compared, lost: NDArray[Any]) -> list[Break]:
    """Return the calls whose prompt goes on unbroken but was no longer cached, as logged."""
    import numpy as np

    size = trace.meta.chunk_tokens
    cached, logged = trace.array("logged_cached_tokens"), trace.array("logged_prompt_tokens")
    start, end = trace.array("t_start_us"), trace.array("t_end_us")
    call, before = found.call, found.before
    # The provider counts in its own tokens: compare shares of the prompt.
    could = found.reused * size / np.maximum(trace.array("prompt_tokens")[call], 1)
    had = np.where(logged[call] > 0, cached[call] / np.maximum(logged[call], 1), 1.0)
    gone = (
        (found.relation == 0)
        & (lost == 0)
        & (found.reused > 0)
        & (cached[call] >= 0)
        & (cached[before] > 0)
        & (start[call] - end[before] >= EXPIRY_US)
        & (could - had >= MIN_EXPIRED * could)
    )
    breaks = []
    for at in np.flatnonzero(gone).tolist():
        reused = int(found.reused[at]) * size
        kept = round(float(had[at]) * int(trace.array("prompt_tokens")[call[at]]))
        chunk = kept // size
        breaks.append(
            Break(
                int(call[at]),
                int(before[at]),
                "next",
                "resumed_expired",
                reused - chunk * size,
                chunk * size,
                chunk * size,
                chunk,
            )
        )
    return breaks


def _mark_models(trace: Trace, breaks: list[Break]) -> None:
    models = trace.codes("model")[0]
    for one in breaks:
        if one.relation == "next" and models[one.call] != models[one.before]:
            one.kind, one.cause = "model_changed", None
