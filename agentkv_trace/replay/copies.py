"""The prefix tree of a load in which sessions run more than once.

A chunk that calls of two families share is common to all copies; the other chunks of a family's
copy are its own. Since what is shared is a prefix, each call's path is common down to one depth.
"""

# ruff: noqa: TID253
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agentkv_trace._jit import kernel
from agentkv_trace.engine.prefix_tree import tree_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agentkv_trace.trace.store import Trace

_COLUMNS = ("base", "base_chunks", "prompt_chunks", "path_chunks")


def copied_tree(
    trace: Trace,
    family: NDArray[np.int32],
    call: NDArray[np.int64],
    copy: NDArray[np.int64],
) -> tuple[dict[str, NDArray[np.int32]], NDArray[np.int32]]:
    """Return the tree columns of a load, and each replayed call's row in them: int32[calls].

    family: int32[trace calls]. call, copy: int64[calls], the trace's row behind each replayed
    call, those of a family in order and whole, and which copy it is: copy 0 is the trace's own
    row, others follow the rows of the trace.
    """
    columns = tree_columns(*(trace.array(name) for name in _COLUMNS))
    base, shared, prompt, path = columns
    again = np.flatnonzero(copy > 0)
    row = call.astype(np.int32)
    if not again.size:
        return dict(zip(_COLUMNS, columns, strict=True)), row
    holder, common = _common(base, shared, family.astype(np.int32))
    # Rows of copies stand in the order of their calls, so a holder's copy is found by its place.
    row[again] = base.size + np.arange(again.size, dtype=np.int32)
    source = call[again]
    order = np.argsort(family, kind="stable")
    sizes = np.bincount(family)
    first = np.concatenate([[0], np.cumsum(sizes)])
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size) - np.repeat(first[:-1], sizes)
    begin = row[again] - place[source]
    own = shared[source] > common[source]
    # Below the common part the copy hangs on the copy of its holder, above on the trace's tree.
    above = np.maximum(holder[source], 0)
    copied_base = np.where(own, begin + place[above], source).astype(np.int32)
    copied_shared = np.maximum(shared[source], common[source])
    copied_base[copied_shared == 0] = -1
    parts = (
        np.concatenate([base, copied_base]),
        np.concatenate([shared, copied_shared]),
        np.concatenate([prompt, prompt[source]]),
        np.concatenate([path, path[source]]),
    )
    return {name: part.astype(np.int32) for name, part in zip(_COLUMNS, parts, strict=True)}, row


@kernel
def _common(base, shared, family):  # type: ignore[no-untyped-def]
    """Return who added the chunk before each row's first new one, and how deep a path is common."""
    calls = base.size
    holder = np.full(calls, -1, np.int32)
    # The nearest row above of another family, and how much of its path is above.
    other = np.full(calls, -1, np.int32)
    depth = np.zeros(calls, np.int32)
    reach = np.zeros(calls, np.int32)
    for call in range(calls):
        if shared[call] == 0:
            continue
        above = base[call]
        while shared[above] >= shared[call]:
            above = holder[above]
        holder[call] = above
        if family[above] == family[call]:
            other[call], depth[call] = other[above], depth[above]
        else:
            other[call], depth[call] = above, shared[call]
        # Mark what the two share, down to what is marked already.
        piece = other[call]
        to = depth[call]
        while piece >= 0 and reach[piece] < to:
            reach[piece] = to
            to = shared[piece]
            piece = holder[piece]
    common = np.zeros(calls, np.int32)
    for call in range(calls):
        common[call] = reach[call]
        above = holder[call]
        if above >= 0 and reach[call] == 0:
            # Nothing of its own piece is common: its path is as far as the piece above says.
            common[call] = min(common[above], shared[call])
    return holder, common
