"""Lines of a foreign trace to typed records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentkv_trace.notes import Notes

T = TypeVar("T")

Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
BlockTokens = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e10)]
Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=1e13)]

DAMAGED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands: the file by number and name, and the line.

    `scope` comes from how the file begins, so that ids of different traces are told apart however
    they come together, and the same trace has the same keys every time.
    """

    file: int
    name: str
    line: int
    scope: int = 0


def numbered(
    files: Iterable[tuple[str, Iterable[tuple[int, bytes]]]], notes: Notes
) -> Iterator[tuple[Place, bytes]]:
    """Yield all lines of all files; a file that cannot be read further is counted, and left."""
    for number, (name, lines) in enumerate(files):
        notes.count("files")
        scope = None
        try:
            for line_number, line in lines:
                notes.count("lines")
                if scope is None:
                    scope = xxh3_64_intdigest(line)
                yield Place(number, name, line_number, scope), line
        except OSError as error:
            notes.skip(f"file cannot be read ({error.strerror or 'damaged'})", name)


def decoded(line: bytes, decoder: msgspec.json.Decoder[T], notes: Notes, place: Place) -> T | None:
    """Return the record of a line of flat JSON, or None where there is none (which is counted).

    Where a write was cut short, the next record follows on the same line and is found there.
    """
    try:
        return decoder.decode(line)
    except DAMAGED as error:
        # The message names fields and types only, never what is in the file.
        wrong = isinstance(error, msgspec.ValidationError)
        reason = f"not a call: {error}" if wrong else "damaged line"
    notes.skip(reason, place.name, place.line)
    at = line.rfind(b'{"')
    if at > 0:
        try:
            return decoder.decode(line[at:])
        except DAMAGED:
            pass
    return None
