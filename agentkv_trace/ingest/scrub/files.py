"""Files in, scrubbed files out: lines, whole JSON texts, payloads; compressed ones likewise."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from agentkv_trace.ingest.reading import COMPRESSED, MAX_LINE, chunks
from agentkv_trace.ingest.scrub.database import scrub_database
from agentkv_trace.ingest.scrub.rules import Form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from agentkv_trace.ingest.scrub.document import Scrubber
    from agentkv_trace.ingest.scrub.rules import Member
    from agentkv_trace.notes import Notes

MAX_DOCUMENT = 8 * MAX_LINE
"""A larger JSON text is left out: it is held whole, and no reader takes it."""
_AT_LF = re.compile(rb"[^\n]*\n|[^\n]+")
_NAME_SIZE, _SIZE = 2, 8
"""Bytes of the two lengths before each payload."""


def scrub_file(
    member: Member,
    out: Path,
    scrubber: Scrubber,
    notes: Notes,
    on_bytes: Callable[[int], None] | None,
) -> bool:
    """Write the scrubbed content of a file to `out`, with the time of the original.

    Returns whether it was written; where not, that is a counted skip. Raises OSError where
    either file cannot be used, sqlite3.DatabaseError for what is no database.
    """
    path = member.path
    state = path.stat()
    if member.form is Form.database:
        if on_bytes is not None:
            on_bytes(state.st_size)
        if not scrub_database(path, out, scrubber, notes):
            return False
    else:
        parts = chunks(path, notes, on_bytes)
        made = _FORMS[member.form](parts, scrubber)
        with _writing(path, out) as file:
            try:
                for part in made:
                    file.write(part)
            except _TooLargeError:
                notes.skip("file too large", str(path))
                return False
    # When an event was written tells some readers the zone of its clock.
    os.utime(out, ns=(state.st_mtime_ns, state.st_mtime_ns))
    return True


class _TooLargeError(Exception):
    """A JSON text above MAX_DOCUMENT."""


@contextmanager
def _writing(path: Path, out: Path) -> Iterator[BinaryIO]:
    """Open `out`, compressed as `path` is."""
    with path.open("rb") as source:
        head = source.read(4)
    codec = next((codec for magic, codec in COMPRESSED if head.startswith(magic)), None)
    if codec is None:
        with out.open("wb") as file:
            yield file
        return
    import pyarrow as pa

    with out.open("wb") as file, pa.CompressedOutputStream(file, codec) as compressed:
        yield compressed


def _lines(parts: Iterable[bytes], scrubber: Scrubber) -> Iterator[bytes]:
    """Yield lines scrubbed. One that is too long for any reader becomes zeros, and is not held."""
    line = bytearray()
    too_long = False
    for part in parts:
        for piece in _AT_LF.findall(part):
            line += piece
            ends = piece.endswith(b"\n")
            too_long |= len(line) - ends > MAX_LINE
            if too_long:
                yield b"0" * (len(line) - ends) + b"\n" * ends
                line.clear()
            elif ends:
                yield scrubber.record(bytes(line))
                line.clear()
            too_long &= not ends
    yield scrubber.record(bytes(line))


def _document(parts: Iterable[bytes], scrubber: Scrubber) -> Iterator[bytes]:
    held: list[bytes] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size > MAX_DOCUMENT:
            raise _TooLargeError
    yield scrubber.record(b"".join(held))


def _payloads(parts: Iterable[bytes], scrubber: Scrubber) -> Iterator[bytes]:
    """Yield payloads scrubbed: two lengths, a name, content. What is cut off at the end is left."""
    data = b"".join(parts)
    at = 0
    while at + _NAME_SIZE + _SIZE <= len(data):
        begin = at + _NAME_SIZE + _SIZE
        middle = begin + int.from_bytes(data[at : at + _NAME_SIZE], "little")
        end = middle + int.from_bytes(data[at + _NAME_SIZE : begin], "little")
        yield data[at:begin]
        yield scrubber.words.text(data[begin:middle])
        yield scrubber.record(data[middle:end])
        at = end


_FORMS: dict[Form, Callable[[Iterable[bytes], Scrubber], Iterator[bytes]]] = {
    Form.lines: _lines,
    Form.document: _document,
    Form.payloads: _payloads,
}
