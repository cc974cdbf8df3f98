"""All prompts of some logs as one tree, so that each message is read once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import xxhash

from agentkv_trace.ingest.codex.items import Opaque
from agentkv_trace.ingest.requests.messages import Message, Piece, digest, message_of
from agentkv_trace.trace.call import Node, weakest

if TYPE_CHECKING:
    from collections.abc import Iterable

_LOW = (1 << 64) - 1


@dataclass(slots=True, eq=False)
class Place:
    """A message at its place in a prompt: the node that ends it, and what it tells of sessions."""

    node: Node
    seed: int
    parent: Place | None
    depth: int = 0
    by_model: bool = False
    fidelity: str = "exact"
    asks: tuple[str, ...] = ()
    words: tuple[int, ...] = ()


class Prompts:
    """Finds the place of a message behind another; what was seen there before is not read again.

    The cache is keyed by the place before and a digest of the message's bytes as logged. Two
    ways to write one message (spaces, cache markers) end at the same place.
    """

    def __init__(self) -> None:
        self._raw: dict[int, Place] = {}
        self._read: dict[int, Place] = {}
        self._heads: dict[tuple[str | None, ...], Place] = {}

    def head(self, *key: str | None) -> Place:
        """Return the place behind a hidden head; equal keys have one place."""
        place = self._heads.get(key)
        if place is None:
            node = Node.head(*key)
            seed = xxhash.xxh3_64_intdigest(node.content)
            place = self._heads[key] = Place(node, seed, None)
        return place

    def follow(self, place: Place, raw: bytes | msgspec.Raw) -> Place:
        """Return the place behind `place` of a message given as JSON.

        Raises msgspec.DecodeError where it is none.
        """
        key = xxhash.xxh3_128_intdigest(raw, seed=place.seed)
        found = self._raw.get(key)
        if found is None:
            found = self._raw[key] = self.behind(place, message_of(msgspec.json.decode(raw)))
        return found

    def behind(self, place: Place, message: Message) -> Place:
        """Return the place of a message that was read already."""
        mark = xxhash.xxh3_128(seed=place.seed)
        for piece in message.pieces:
            sized = isinstance(piece, Opaque)
            mark.update(b"\0" if sized else b"\1")
            mark.update(piece.identity if isinstance(piece, Opaque) else digest(piece))
        key = mark.intdigest()
        found = self._read.get(key)
        if found is None:
            found = self._read[key] = Place(
                node=chained(place.node, message.pieces),
                seed=key & _LOW,
                parent=place,
                depth=place.depth + 1,
                by_model=message.by_model,
                fidelity=weakest(place.fidelity, message.fidelity),
                asks=message.asks,
                words=message.words,
            )
        return found

    def after(self, place: Place, messages: Iterable[Message]) -> Place:
        """Return the place of the last of some read messages behind one another."""
        for message in messages:
            place = self.behind(place, message)
        return place

    def all_behind(self, place: Place, raws: Iterable[bytes | msgspec.Raw]) -> Place:
        """Return the place of the last of some messages behind one another.

        Raises msgspec.DecodeError where one is no JSON.
        """
        follow = self.follow
        for raw in raws:
            place = follow(place, raw)
        return place


def added(earlier: Place, later: Place) -> list[Place] | None:
    """Return what a later prompt adds to an earlier one; None where it does not go on from it."""
    found = []
    place: Place | None = later
    while place is not None and place.depth > earlier.depth:
        found.append(place)
        place = place.parent
    return found[::-1] if place is earlier else None


def chained(node: Node, pieces: Iterable[Piece]) -> Node:
    """Return the node that ends some pieces placed behind another node."""
    for piece in pieces:
        if isinstance(piece, Opaque):
            node = node.opaque(piece.identity, piece.tokens)
        else:
            node = node.text(piece)
    return node
