"""One JSON document a file, whole or cut off."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from agentkv_trace.ingest import reading

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agentkv_trace.notes import Notes

MAX_BYTES = 1 << 29
"""A larger document is skipped: it has to be held as a whole."""

_Kind = TypeVar("_Kind")


def load(path: Path, notes: Notes, on_bytes: Callable[[int], None] | None = None) -> bytes | None:
    """Return the content of a file, decompressed; None where it is too large or unreadable."""

    def count(amount: int) -> None:
        notes.count("bytes", amount)
        if on_bytes is not None:
            on_bytes(amount)

    parts: list[bytes] = []
    size = 0
    try:
        for part in reading.chunks(path, notes, count):
            size += len(part)
            if size > MAX_BYTES:
                notes.skip("document too large", str(path))
                return None
            parts.append(part)
    except OSError:
        notes.skip("unreadable file", str(path))
        return None
    data = b"".join(parts).removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        notes.skip("empty file", str(path))
        return None
    return data


def decoded(data: bytes, kind: type[_Kind]) -> _Kind | None:
    """Return a document as a type; None where it is something else or damaged."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def whole_items(data: bytes, key: str) -> list[Any]:
    """Return the whole items of a list in a document that is cut off or damaged behind them.

    The list is the value of the first `key`; without one it is the document itself.
    """
    words = data.decode(errors="replace")
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
