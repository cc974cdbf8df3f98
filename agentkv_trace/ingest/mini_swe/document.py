"""One JSON document a file, whole or cut off."""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from agentkv_trace.ingest import reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from agentkv_trace.notes import Notes

MAX_BYTES = 1 << 29
"""A larger document is skipped: it has to be held as a whole."""

DAMAGED = "documents with damaged characters"

_Kind = TypeVar("_Kind")
_BOM = b"\xef\xbb\xbf"
_HALF = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
"""Escapes; in the group those that are half a character."""


def load(
    path: Path, notes: Notes, on_bytes: Callable[[int], None] | None = None
) -> bytearray | None:
    """Return the content of a file, decompressed; None where it is too large or unreadable."""
    count = reading.counter(notes, on_bytes)
    # One buffer that grows, not parts that are joined: it may be large.
    data = bytearray()
    is_text = True
    check = codecs.getincrementaldecoder("utf-8")().decode
    try:
        for part in reading.chunks(path, notes, count):
            if len(data) + len(part) > MAX_BYTES:
                notes.skip("document too large", str(path))
                return None
            data += part
            try:
                is_text = is_text and check(part) is not None
            except UnicodeDecodeError:
                is_text = False
    except OSError:
        notes.skip("unreadable file", str(path))
        return None
    if data.startswith(_BOM):
        del data[: len(_BOM)]
    if not data[: 1 << 10].strip(b"\0 \t\r\n") and not data.strip(b"\0 \t\r\n"):
        notes.skip("empty file", str(path))
        return None
    if not is_text:
        notes.count(DAMAGED)
        return bytearray(_mended(data))
    return data


def decoded(data: bytes | bytearray, kind: type[_Kind], notes: Notes | None = None) -> _Kind | None:
    """Return a document as a type; None where it is something else, cut off or damaged.

    Bytes that are no text (NULs, invalid UTF-8, half characters) are replaced, and that is
    counted.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.ValidationError, RecursionError):
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        mended = _mended(data)
    if mended == data:
        return None
    try:
        found = msgspec.json.decode(mended, type=kind)
    except (msgspec.DecodeError, RecursionError):
        return None
    if notes is not None:
        notes.count(DAMAGED)
    return found


def _mended(data: bytes | bytearray) -> bytes:
    made = _HALF.sub(lambda found: b"\\ufffd" if found[1] else found[0], data)
    return made.replace(b"\0", b" ").decode(errors="replace").encode()


def each(values: Iterable[msgspec.Raw], notes: Notes, path: Path) -> Iterator[Any]:
    """Yield values decoded one by one; what is nested too deeply is left out and counted."""
    for value in values:
        try:
            yield msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            notes.skip("value nested too deeply", str(path))


def whole_items(data: bytes | bytearray, key: str) -> list[Any]:
    """Return the whole items of a list in a document that is cut off or damaged behind them.

    The list is the value of the first `key`; without one it is the document itself.
    """
    words = _mended(data).decode()
    found = re.search(rf'"{key}"\s*:\s*\[', words)
    at = found.end() if found else words.find("[") + 1
    read = json.JSONDecoder().raw_decode
    items: list[Any] = []
    gap = re.compile(r"[\s,]*")
    while at > 0:
        start = gap.match(words, at)
        try:
            value, at = read(words, start.end() if start else at)
        except (ValueError, RecursionError):
            break
        items.append(value)
    return items


def whole_raws(data: bytes | bytearray, key: str) -> list[msgspec.Raw]:
    """Return the same as JSON, without what is nested too deeply."""
    found = []
    for item in whole_items(data, key):
        try:
            found.append(msgspec.Raw(msgspec.json.encode(item)))
        except RecursionError:
            continue
    return found
