"""Sessions in JSON files: the tree that OpenCode kept up to 1.1, and `opencode export`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import msgspec

from agentkv_trace.ingest.opencode.records import (
    Message,
    Part,
    Record,
    Session,
    decoded,
    in_order,
    items,
    mended,
    table,
    text,
)
from agentkv_trace.ingest.reading import MAX_LINE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentkv_trace.notes import Notes

MAX_EXPORT = 8 * MAX_LINE
"""A larger export is skipped: it is held whole while it is read."""

_JUNK = b"\0 \t\r\n"
_BOM = b"\xef\xbb\xbf"
_BEGIN = re.compile(r'\{\s*"(?:id|info)"\s*:')
_INFO = re.compile(r'\{\s*"info"\s*:\s*')


class _Export(msgspec.Struct):
    info: Record
    messages: list[msgspec.Raw]


# Exports


def exported(path: Path, notes: Notes) -> Iterator[Session]:
    """Yield the sessions of a file of exports: normally one, several where they were appended.

    Of a file that breaks off, the messages before that are kept. Raises OSError where it cannot
    be read.
    """
    data = _content(path, notes, MAX_EXPORT)
    if data is None:
        return
    try:
        whole = msgspec.json.decode(data, type=_Export)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        yield from _from_damaged(data, path, notes)
        return
    records = []
    for raw in whole.messages:
        try:
            records.append(table(decoded(bytes(raw))))
        except msgspec.DecodeError:
            notes.skip("damaged record", str(path))
    yield _session(whole.info, records)


def _from_damaged(data: bytes, path: Path, notes: Notes) -> Iterator[Session]:
    rest: list[Record] = []
    any_session = False
    for record in _objects(data, path, notes):
        if isinstance(record.get("info"), dict) and isinstance(record.get("messages"), list):
            any_session = True
            yield _session(record["info"], [table(one) for one in record["messages"]])
        elif isinstance(record.get("parts"), list):
            rest.append(record)
    words = data[:MAX_LINE].decode(errors="replace")
    begin = _INFO.match(words)
    if any_session or begin is None or not rest:
        return
    try:
        info, _ = json.JSONDecoder().raw_decode(words, begin.end())
    except ValueError:
        return
    yield _session(table(info), rest)


def _session(info: Record, records: list[Record]) -> Session:
    messages = []
    for record in records:
        data = table(record.get("info"))
        parts = [
            Part(text(one.get("id")) or "", one) for one in map(table, items(record.get("parts")))
        ]
        messages.append(Message(text(data.get("id")) or "", data, parts))
    return Session(text(info.get("id")) or "", info, in_order(messages))


# The tree


def session_info(path: Path, notes: Notes) -> Record | None:
    """Return the session that a file of the tree describes; None where it is damaged."""
    return _record(path, notes)


def from_tree(path: Path, info: Record, notes: Notes) -> Session:
    """Return a session whose file is `path`, with its messages and parts from beside it."""
    ident = text(info.get("id")) or path.stem
    base, old = storage_of(path)
    place = base / "session" if old else base
    messages = []
    for file in _files(place / "message" / ident, notes):
        if (data := _record(file, notes)) is not None:
            name = text(data.get("id")) or file.stem
            parts = place / "part" / ident / name if old else place / "part" / name
            messages.append(Message(name, data, _parts(parts, notes)))
    return Session(ident, info, in_order(messages))


def storage_of(path: Path) -> tuple[Path, bool]:
    """Return the storage folder of a session's file, and whether it has the oldest layout."""
    old = path.parent.name == "info"
    return path.parents[2], old


def _parts(folder: Path, notes: Notes) -> list[Part]:
    return [
        Part(text(data.get("id")) or file.stem, data)
        for file in _files(folder, notes)
        if (data := _record(file, notes)) is not None
    ]


def _files(folder: Path, notes: Notes) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".json")
    except FileNotFoundError:
        return []
    except OSError:
        notes.skip("unreadable folder", str(folder))
        return []


def _record(path: Path, notes: Notes) -> Record | None:
    try:
        data = _content(path, notes, MAX_LINE)
    except OSError:
        notes.skip("unreadable file", str(path))
        return None
    if data is None:
        return None
    try:
        value = decoded(data)
    except msgspec.DecodeError:
        # A write cut short and made again: the last whole record counts.
        value = next(reversed(list(_objects(data, path, notes))), None)
    else:
        if not isinstance(value, dict):
            notes.skip("file is no JSON object", str(path))
    return value if isinstance(value, dict) else None


# Bytes


def _content(path: Path, notes: Notes, limit: int) -> bytes | None:
    """Return a file's bytes; None, and a counted skip, where there is nothing to decode."""
    size = path.stat().st_size
    if size > limit:
        notes.skip("file too large", str(path))
        return None
    data = path.read_bytes()
    notes.count("bytes", len(data))
    content = data.removeprefix(_BOM).strip(_JUNK)
    if not content:
        notes.skip("file of NUL bytes" if data.strip(b" \t\r\n") else "empty file", str(path))
        return None
    return content


def _objects(data: bytes, path: Path, notes: Notes) -> Iterator[Record]:
    """Yield the whole objects among damage, which is one counted skip."""
    words = data.decode(errors="replace").replace("\0", " ")
    decoder = json.JSONDecoder()
    at, damaged, count = 0, False, 0
    while (begin := _BEGIN.search(words, at)) is not None:
        damaged |= bool(words[at : begin.start()].strip())
        try:
            value, at = decoder.raw_decode(words, begin.start())
            value = mended(value)
        except (ValueError, RecursionError):
            damaged = True
            at = begin.end()
            continue
        if isinstance(value, dict):
            count += 1
            yield value
    if damaged or not count or words[at:].strip():
        notes.skip("damaged file", str(path))
