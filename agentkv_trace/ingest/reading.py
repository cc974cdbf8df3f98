"""Bytes to lines to JSON objects, for logs that are torn, compressed, padded and huge."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from agentkv_trace.notes import Notes

COMPRESSED = ((b"\x28\xb5\x2f\xfd", "zstd"), (b"\x1f\x8b", "gzip"))
"""How a compressed file begins, and its codec."""
MAX_LINE = 64 << 20
"""A longer line is skipped without being held."""

_CHUNK = 1 << 18
_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"


class _Counted:
    """A binary file that reports how many bytes were taken from it, and is closed elsewhere."""

    def __init__(self, file: BinaryIO, on_bytes: Callable[[int], None] | None) -> None:
        self._file = file
        self._on_bytes = on_bytes
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        if self._on_bytes is not None and data:
            self._on_bytes(len(data))
        return data

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def chunks(
    path: Path, notes: Notes, on_bytes: Callable[[int], None] | None = None
) -> Iterator[bytes]:
    """Yield the content of a file in pieces; zstd and gzip are told by how it begins.

    A compressed file that ends or breaks half-way gives all that can be decompressed, then one
    counted skip. `on_bytes` is told how many bytes were read from the disk. Raises OSError where
    the file cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(4)
        file.seek(0)
        for magic, codec in COMPRESSED:
            if head.startswith(magic):
                yield from _decompressed(path, file, codec, notes, on_bytes)
                return
        source = _Counted(file, on_bytes)
        while data := source.read(_CHUNK):
            yield data


def _decompressed(
    path: Path,
    file: BinaryIO,
    codec: str,
    notes: Notes,
    on_bytes: Callable[[int], None] | None,
) -> Iterator[bytes]:
    import pyarrow as pa

    def stream(on_bytes: Callable[[int], None] | None) -> pa.NativeFile:
        file.seek(0)
        return pa.CompressedInputStream(pa.PythonFile(_Counted(file, on_bytes), mode="r"), codec)

    source = stream(on_bytes)
    given = 0
    try:
        while data := source.read(_CHUNK):
            given += len(data)
            yield data
        return
    except OSError:
        pass
    # The failed read has thrown away what it had; a second pass fetches it byte by byte.
    tail = bytearray()
    source = stream(None)
    try:
        while given > 0:
            given -= len(source.read(min(given, _CHUNK)))
        while data := source.read(1):
            tail += data
    except OSError:
        pass
    yield bytes(tail)
    notes.skip("compressed file breaks off", str(path))


def counter(notes: Notes, on_bytes: Callable[[int], None] | None) -> Callable[[int], None]:
    """Return a function that counts `bytes` read, and tells `on_bytes` of them."""

    def count(amount: int) -> None:
        notes.count("bytes", amount)
        if on_bytes is not None:
            on_bytes(amount)

    return count


def lines(
    path: Path, notes: Notes, on_bytes: Callable[[int], None] | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield `(line number, line)` of a file, split on LF only, without LF, CR and byte order mark.

    Empty lines are left out. A line longer than MAX_LINE is skipped and counted, and never held,
    so memory is bounded. Compressed files are decompressed. Raises OSError where the file
    cannot be read.
    """
    number = 1
    held: list[bytes] = []
    size = 0
    for data in chunks(path, notes, on_bytes):
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            size += end - start
            if size <= MAX_LINE:
                line = data[start:end] if not held else b"".join([*held, data[start:end]])
                if (line := _trimmed(line, number)) and line.strip(_BLANK):
                    yield number, line
            else:
                notes.skip("line too long", str(path), number)
            held, size, start = [], 0, end + 1
            number += 1
        size += len(data) - start
        if size > MAX_LINE:
            held = []
        elif start < len(data):
            held.append(data[start:])
    if size > MAX_LINE:
        notes.skip("line too long", str(path), number)
    elif (line := _trimmed(b"".join(held), number)) and line.strip(_BLANK):
        yield number, line


def _trimmed(line: bytes, number: int) -> bytes:
    if number == 1 and line.startswith(_BOM):
        line = line[len(_BOM) :]
    return line[:-1] if line.endswith(b"\r") else line


def decode(
    line: bytes, notes: Notes, path: Path, number: int, starts: Sequence[bytes] = ()
) -> list[dict[str, Any]]:
    """Return the JSON objects of a line: normally one; none where it is damaged.

    Where a write was cut short, the next record follows on the same line. `starts` are byte
    strings with which a whole record begins and which occur nowhere inside one; the line is cut
    there and each piece decoded by itself. What cannot be used is skipped and counted.
    """
    value = _decoded(line)
    if isinstance(value, dict):
        return [value]
    if not line.strip(b"\0" + _BLANK):
        notes.skip("line of NUL bytes", str(path), number)
        return []
    if not isinstance(value, msgspec.DecodeError):
        notes.skip("line is no JSON object", str(path), number)
        return []
    found = []
    damaged = False
    for piece in _pieces(line, starts):
        part = _decoded(piece)
        if isinstance(part, dict):
            found.append(part)
        elif piece.strip(b"\0" + _BLANK):
            damaged = True
    if damaged or not found:
        notes.skip("damaged line", str(path), number)
    return found


def _pieces(line: bytes, starts: Sequence[bytes]) -> list[bytes]:
    cuts = {0, len(line)}
    for start in starts:
        at = line.find(start)
        while at >= 0:
            cuts.add(at)
            at = line.find(start, at + 1)
    places = sorted(cuts)
    return [line[a:b].strip(b"\0" + _BLANK) for a, b in itertools.pairwise(places)]


def _decoded(data: bytes) -> object:
    """Return the decoded value, or the DecodeError (a value, since it is an expected outcome)."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        return error
    except UnicodeDecodeError as error:
        return msgspec.DecodeError(str(error))
    except RecursionError:
        return msgspec.DecodeError("nested too deeply")


def objects(
    path: Path,
    notes: Notes,
    starts: Sequence[bytes] = (),
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield `(line number, object)` of a file of JSON lines, and count `bytes` and `lines`.

    Raises OSError where the file cannot be read.
    """
    count = counter(notes, on_bytes)
    for number, line in lines(path, notes, count):
        notes.count("lines")
        for record in decode(line, notes, path, number, starts):
            yield number, record
