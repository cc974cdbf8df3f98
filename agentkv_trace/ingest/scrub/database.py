"""A scrubbed copy of an SQLite database: the tables that are read, row by row."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from agentkv_trace.ingest.opencode.database import opened
from agentkv_trace.ingest.scrub.opencode import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentkv_trace.ingest.scrub.document import Scrubber
    from agentkv_trace.notes import Notes

_JSON = (b"{", b"[")
_LOOKED_UP = ("session_id", "aggregate_id")


class _Text(bytes):
    """What a database holds as text, not as a blob."""


def scrub_database(path: Path, out: Path, scrubber: Scrubber, notes: Notes) -> bool:
    """Write the scrubbed tables of a database to a new one; the original is only read.

    Of a damaged table the rows before the damage are taken, which is one counted skip. Returns
    whether there was any table. Raises OSError or sqlite3.DatabaseError where it cannot be opened.
    """
    with opened(path) as source, closing(sqlite3.connect(out)) as target:
        # The words of keys in rows that were written over must not stay in free pages.
        target.execute("PRAGMA secure_delete = 1")
        found = {row[0] for row in _rows(source, _NAMES, path, notes)}
        source.text_factory = _Text
        for table in TABLES:
            if table in found:
                _copy(source, target, table, scrubber, path, notes)
        target.commit()
        if not found.intersection(TABLES):
            notes.skip("database of another program", str(path))
        return bool(found.intersection(TABLES))


_NAMES = "SELECT name FROM sqlite_master WHERE type = 'table'"


def _copy(
    source: sqlite3.Connection,
    target: sqlite3.Connection,
    table: str,
    scrubber: Scrubber,
    path: Path,
    notes: Notes,
) -> None:
    described = source.execute(f'PRAGMA table_info("{table}")').fetchall()
    columns = [(row[1].decode(), row[2].decode()) for row in described]
    listed = ", ".join(f"{_quoted(name)} {kind}" for name, kind in columns)
    target.execute(f"CREATE TABLE {table} ({listed})")
    for name in _LOOKED_UP:
        if name in dict(columns):
            target.execute(f"CREATE INDEX {table}_{name} ON {table} ({name})")
    keys = [name.encode() for name, _ in columns]
    for row in _rows(source, f"SELECT * FROM {table}", path, notes):  # noqa: S608
        marks = ", ".join("CAST(? AS TEXT)" if isinstance(one, _Text) else "?" for one in row)
        values = [_scrubbed(key, one, scrubber) for key, one in zip(keys, row, strict=True)]
        target.execute(f"INSERT INTO {table} VALUES ({marks})", values)  # noqa: S608


def _scrubbed(key: bytes, value: Any, scrubber: Scrubber) -> Any:
    if isinstance(value, _Text):
        if value.startswith(_JSON):
            kept = scrubber.kept
            return scrubber.json(bytes(value), kept.inside.get(key, kept))
        return scrubber.string(key, bytes(value), scrubber.kept)
    return bytes(len(value)) if isinstance(value, bytes) else value


def _rows(
    source: sqlite3.Connection, query: str, path: Path, notes: Notes
) -> Iterator[sqlite3.Row]:
    try:
        yield from source.execute(query)
    except sqlite3.DatabaseError:
        notes.skip("damaged database", str(path))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
