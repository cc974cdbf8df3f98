"""Documents of kv-cache-tester: what they hold, and how they are found in a file's lines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import msgspec
from xxhash import xxh3_64_intdigest

from agentkv_trace.trace.interchange.lines import DAMAGED, BlockTokens, Place, Seconds, Tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentkv_trace.notes import Notes

ChunkId = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class Request(msgspec.Struct):
    """One call."""

    t: Seconds
    input: Tokens = msgspec.field(name="in")
    hash_ids: list[ChunkId]
    out: Tokens = 0
    model: str | None = None
    api_time: Seconds | None = None


class Subagent(msgspec.Struct):
    """A sub-agent and its calls."""

    t: Seconds
    requests: list[msgspec.Raw]
    agent_id: str = ""
    subagent_type: str = ""
    tool_tokens: Tokens | None = None
    system_tokens: Tokens | None = None


class Document(msgspec.Struct):
    """One session."""

    block_size: BlockTokens
    requests: list[msgspec.Raw]
    id: str = ""
    hash_id_scope: str = "local"
    tool_tokens: Tokens | None = None
    system_tokens: Tokens | None = None


class _Type(msgspec.Struct):
    type: str = "n"


class _Time(msgspec.Struct):
    t: Seconds


_DOCUMENT = msgspec.json.Decoder(Document)
_REQUEST = msgspec.json.Decoder(Request)
_SUBAGENT = msgspec.json.Decoder(Subagent)
_TYPE = msgspec.json.Decoder(_Type)
_TIME = msgspec.json.Decoder(_Time)


def documents(
    lines: Iterable[tuple[int, bytes]], notes: Notes, file: int, name: str
) -> Iterator[tuple[Place, Document]]:
    """Yield the documents of a file: one a line, or one over all lines."""
    held: list[tuple[int, bytes]] = []
    by_line = False
    for number, line in lines:
        place = Place(file, name, number)
        if not by_line and held:
            held.append((number, line))
            continue
        try:
            document = _DOCUMENT.decode(line)
        except DAMAGED as error:
            if by_line:
                notes.skip(_reason(error, "session"), name, number)
            else:
                held.append((number, line))
            continue
        by_line = True
        yield replace(place, scope=xxh3_64_intdigest(line)), document
    if held:
        whole = b"\n".join(line for _, line in held)
        place = Place(file, name, held[0][0], xxh3_64_intdigest(whole))
        try:
            yield place, _DOCUMENT.decode(whole)
        except DAMAGED as error:
            notes.skip(_reason(error, "session"), name, held[0][0])
            # Its first line may be torn and the others whole.
            if len(held) > 1 and held[1][1].startswith(b'{"'):
                yield from documents(held[1:], notes, file, name)


def _reason(error: Exception, what: str) -> str:
    # The message names fields and types only, never what is in the file.
    wrong = isinstance(error, msgspec.ValidationError)
    return f"not a {what}: {error}" if wrong else f"damaged {what}"


def entry(raw: msgspec.Raw, notes: Notes, place: Place) -> Request | Subagent | None:
    """Return a call or a sub-agent of a document, or None (counted) where it is neither."""
    try:
        kind = _TYPE.decode(raw).type
        if kind == "subagent":
            return _SUBAGENT.decode(raw)
        if kind in ("n", "s"):
            return _REQUEST.decode(raw)
    except DAMAGED as error:
        notes.skip(_reason(error, "call"), place.name, place.line)
        return None
    notes.skip("entry of unknown type", place.name, place.line)
    return None


def time_of(raw: msgspec.Raw) -> float | None:
    """Return the time of an entry, or None where it has none."""
    try:
        return _TIME.decode(raw).t
    except DAMAGED:
        return None
