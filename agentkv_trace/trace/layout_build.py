"""Collects the layout of prompts while the trace builder stores their nodes."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from agentkv_trace.trace.chunks import keyed
from agentkv_trace.trace.layout import Layout
from agentkv_trace.trace.parts import HEAD_KINDS, PART_KINDS, READINGS, facts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.trace.call import Node

_AT_HEAD = bytes(kind in HEAD_KINDS for kind in PART_KINDS)


class LayoutBuilder:
    """Gives every node its part; equal nodes behind equal parts are one part.

    Memory follows the distinct parts, some hundred bytes each.
    """

    def __init__(self) -> None:
        self._part_of = array("q")
        self._node_of = array("q")
        self._parent = array("i")
        self._kind = bytearray()
        self._role = bytearray()
        self._at_head = bytearray()
        self._digests = array("I")
        self._known: dict[tuple[int, int, int | None, bool], int] = {}

    def add(self, node: Node, parent: int) -> None:
        """Take the next node, whose content is still there; `parent` is its parent's number."""
        above = self._part_of[parent] if parent >= 0 else -1
        key = (above, xxh3_64_intdigest(node.content), node.tokens, node.fitted)
        part = self._known.get(key)
        if part is None:
            part = self._known[key] = len(self._parent)
            at_head = above < 0 or bool(self._at_head[above])
            facts = facts_of(node, at_head=at_head)
            self._node_of.append(len(self._part_of))
            self._parent.append(above)
            self._kind.append(facts.kind)
            self._role.append(facts.role)
            self._at_head.append(at_head and _AT_HEAD[facts.kind])
            self._digests.extend(facts.digests)
        self._part_of.append(part)

    def finish(
        self,
        prompt: Sequence[int],
        path: Sequence[int],
        ends: npt.NDArray[np.int64],
        salt: bytes | None,
    ) -> Layout:
        """Return the layout of calls in row order.

        `prompt` and `path` are the nodes that end them, `ends` the end of each node in tokens.
        """
        parent = self._parent
        place = array("i", [-1]) * len(parent)
        order, offsets = array("q"), array("q", [0])
        for leaf in path:
            fresh, at = [], self._part_of[leaf]
            while at >= 0 and place[at] < 0:
                fresh.append(at)
                at = parent[at]
            for part in reversed(fresh):
                place[part] = len(order)
                order.append(part)
            offsets.append(len(order))
        parts = np.frombuffer(order, np.int64) if order else np.empty(0, np.int64)
        places = np.append(np.frombuffer(place, np.int32), np.int32(-1))
        digests = np.array(self._digests, np.uint32).reshape(-1, len(READINGS))[parts]
        part_of = np.array(self._part_of, np.int64)
        return Layout(
            places[part_of[np.asarray(prompt, np.int64)]],
            places[part_of[np.asarray(path, np.int64)]],
            np.array(offsets, np.int64),
            places[np.array(parent, np.int64)[parts]],
            ends[np.array(self._node_of, np.int64)[parts]].astype(np.int32),
            np.frombuffer(bytes(self._kind), np.int8)[parts],
            np.frombuffer(bytes(self._role), np.int8)[parts],
            digests if salt is None else _salted(digests, salt),
        )


def _salted(digests: npt.NDArray[np.uint32], salt: bytes) -> npt.NDArray[np.uint32]:
    """Return digests that tell nothing to those who do not have the salt; 0 stays."""
    values, places = np.unique(digests, return_inverse=True)
    hidden = np.array(keyed(values.tolist(), salt), np.uint64).astype(np.uint32)
    hidden = np.where(values == 0, np.uint32(0), np.maximum(hidden, np.uint32(1)))
    return hidden[places].reshape(digests.shape)
