"""Whole JSON files to objects: damaged, doubled, padded, or with screenshots of any size."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

import msgspec
import xxhash

from agentkv_trace.ingest import reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from agentkv_trace.notes import Notes

MAX_FILE = reading.MAX_LINE
"""Larger files are read with their long base64 strings shortened."""
KEPT = 1 << 16
"""Bytes kept of a base64 string that is shortened; its digest follows them."""
MAX_STRING = 1 << 20

Json = dict[str, Any]

_BASE64 = re.compile(rb"(?:data:[\w/+.-]+;base64,)?[A-Za-z0-9+/=]+\Z")
_BLANK = b"\0 \t\r\n"


def objects(path: Path, notes: Notes, on_bytes: Callable[[int], None] | None = None) -> list[Json]:
    """Return the objects in a file that should hold one object or an array of them.

    What is damaged is skipped and counted; objects behind one another are all taken. Raises
    OSError where the file cannot be read.
    """
    count = reading.counter(notes, on_bytes)
    parts = reading.chunks(path, notes, count)
    if path.stat().st_size > MAX_FILE:
        parts = shortened(parts)
    held: list[bytes] = []
    size = 0
    for part in parts:
        size += len(part)
        if size > MAX_FILE:
            notes.skip("file too large", str(path))
            return []
        held.append(part)
    data = b"".join(held).removeprefix(b"\xef\xbb\xbf")
    if not data:
        notes.skip("empty file", str(path))
        return []
    if not data.strip(_BLANK):
        notes.skip("file of NUL bytes", str(path))
        return []
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _damaged(data, path, notes)
    listed = value if isinstance(value, list) else [value]
    found = [one for one in flat(listed) if isinstance(one, dict)]
    if not found and listed:
        notes.skip("file is no JSON object", str(path))
    return found


def flat(values: Iterable[object]) -> Iterator[object]:
    """Yield values, those of lists among them one by one (pairs of action and observation)."""
    for value in values:
        if isinstance(value, list):
            yield from value
        else:
            yield value


def _damaged(data: bytes, path: Path, notes: Notes) -> list[Json]:
    """Return the whole objects of a file that is not one JSON value."""
    found: list[Json] = []
    decoder = json.JSONDecoder()
    words = data.decode(errors="replace").replace("\0", " ")
    at, broken = 0, False
    while (start := words.find("{", at)) >= 0:
        broken |= bool(words[at:start].strip(" \t\r\n,[]"))
        try:
            value, at = decoder.raw_decode(words, start)
        except (ValueError, RecursionError):
            broken = True
            # A record cut off is followed by the next one; inside it nothing can be trusted.
            at = words.find('{"id":', start + 1)
            if at < 0:
                break
            continue
        found.append(cast("Json", value))
    if broken or not found:
        notes.skip("damaged file", str(path))
    return found


def shortened(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield JSON with each base64 string above MAX_STRING cut to its first bytes and a digest."""
    inside = False
    held = bytearray()
    rest: xxhash.xxh3_128 | None = None
    slash = False
    for part in parts:
        at = 0
        while at < len(part):
            if not inside:
                end = part.find(b'"', at)
                end = len(part) - 1 if end < 0 else end
                inside = part[end : end + 1] == b'"'
                yield part[at : end + 1]
                at = end + 1
                continue
            end, slash = _end_of_string(part, at, slash)
            piece = part[at:end]
            if rest is not None:
                rest.update(piece)
            else:
                held += piece
                if len(held) > MAX_STRING and _BASE64.match(held):
                    rest = xxhash.xxh3_128(bytes(held))
                    del held[KEPT:]
                elif len(held) > MAX_FILE:
                    yield bytes(held)
                    held.clear()
            at = end
            if end < len(part):
                yield bytes(held)
                yield rest.hexdigest().encode() if rest is not None else b""
                yield b'"'
                held.clear()
                rest, inside, slash = None, False, False
                at = end + 1
    yield bytes(held)


def _end_of_string(part: bytes, at: int, slash: bool) -> tuple[int, bool]:
    """Return where a string ends (len(part) if beyond), and whether a backslash waits there."""
    while True:
        end = part.find(b'"', at)
        stop = len(part) if end < 0 else end
        run = len(part[at:stop]) - len(part[at:stop].rstrip(b"\\"))
        odd = run % 2 == 1
        if slash and run == stop - at:
            odd = not odd
        if end < 0:
            return stop, odd
        if not odd:
            return end, False
        at, slash = end + 1, False
