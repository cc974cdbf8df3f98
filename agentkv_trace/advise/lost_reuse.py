"""Which calls reused less than the call before them allows, from a trace's tree alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agentkv_trace.trace.store import Trace

Relation = Literal["next", "aside", "child", "first"]
RELATIONS: tuple[Relation, ...] = ("next", "aside", "child", "first")
"""How a call stands to the one it is compared with.

`next` goes on from its session's last call; `aside` is a call for a compaction, which no later
prompt goes on from; `child` is the first call of a session with a parent, compared with the
parent's last call; `first` is compared with the last session's first call of the same agent and
model.
"""

ASIDES = ("compaction", "title")


@dataclass(frozen=True, slots=True)
class Compared:
    """Calls that have one to be compared with, int32[n] each; chunks of the trace's own size.

    `allowed` is what the earlier call's path could have given, `reused` what the prompt shares
    with any earlier call, `shared` with the one it is compared with. `relation` are places in
    RELATIONS, `folded` (bool) tells that the session made a compaction in between.
    """

    call: NDArray[Any]
    before: NDArray[Any]
    relation: NDArray[Any]
    folded: NDArray[Any]
    allowed: NDArray[Any]
    reused: NDArray[Any]
    shared: NDArray[Any]


def compared(trace: Trace) -> Compared:
    """Return every call that has an earlier one to go on from, with what it reused of it.

    Title calls are left out: nothing goes on from them, and they go on from nothing.
    """
    import numpy as np

    from agentkv_trace.engine.continuations import shared_chunks

    call, before, relation, folded = _pairs(trace)
    prompt = trace.array("prompt_chunks")
    path = trace.array("path_chunks")
    base_chunks = trace.array("base_chunks")
    calls, befores = np.array(call, np.int32), np.array(before, np.int32)
    return Compared(
        calls,
        befores,
        np.array(relation, np.int8),
        np.array(folded, bool),
        np.minimum(path[befores], prompt[calls]),
        np.minimum(base_chunks[calls], prompt[calls]),
        np.minimum(
            shared_chunks(calls, befores, trace.array("base"), base_chunks, path), prompt[calls]
        ),
    )


def _pairs(trace: Trace) -> tuple[list[int], list[int], list[int], list[bool]]:
    sessions, names = trace.codes("session")
    number = {name: code for code, name in enumerate(names)}
    parents, parent_names = trace.codes("parent_session")
    parent_of = [number.get(name, -1) for name in parent_names] + [-1]
    kinds, kind_names = trace.codes("kind")
    asides = [kind_names[kind] in ASIDES for kind in range(len(kind_names))]
    titles = [name == "title" for name in kind_names]
    agents, models = trace.codes("agent")[0].tolist(), trace.codes("model")[0].tolist()
    last = [-1] * len(names)
    compacted = [False] * len(names)
    firsts: dict[tuple[int, int], int] = {}
    call, before, relation, folded = [], [], [], []
    rows = zip(sessions.tolist(), parents.tolist(), kinds.tolist(), strict=True)
    for row, (session, parent, kind) in enumerate(rows):
        if titles[kind]:
            continue
        earlier, how = last[session], 1 if asides[kind] else 0
        if earlier < 0 and not asides[kind]:
            above = parent_of[parent]
            same = (agents[row], models[row])
            earlier, how = (last[above], 2) if above >= 0 else (firsts.get(same, -1), 3)
            firsts[same] = row
        if earlier >= 0:
            call.append(row)
            before.append(earlier)
            relation.append(how)
            folded.append(compacted[session])
        compacted[session] = asides[kind]
        if not asides[kind]:
            last[session] = row
    return call, before, relation, folded
