"""What the tests of scrub compare: logs before and after, and the traces made from them."""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING, Any

from agentkv_trace.ingest.discover import named_logs
from agentkv_trace.ingest.opencode.database import opened
from agentkv_trace.ingest.reading import chunks
from agentkv_trace.ingest.run import Options, ingest
from agentkv_trace.ingest.scrub.opencode import TABLES
from agentkv_trace.ingest.scrub.rules import Form
from agentkv_trace.ingest.scrub.run import members_of, rules_of, scrub
from agentkv_trace.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentkv_trace.ingest.run import Ingested
    from agentkv_trace.ingest.scrub.document import Kept

KEYS = ("session", "parent_session")
"""Columns that change: names. (Keys of chunks are in none, their numbers follow from others.)"""
WORD = re.compile(rb"(?<![0-9A-Za-z])[A-Za-z]{4,}(?![0-9A-Za-z])")
IDS = re.compile(
    rb"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\b[0-9a-f]{32}\b"
    rb"|\b(ses|msg|prt|evt)_[0-9a-f]{12}"
)
JSON_NAMES = {b"true", b"false", b"null"}


class Logs:
    """The logs behind a name, and scrubbed copies of them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.members = members_of(named_logs([name]))
        (self.source,) = self.members
        self.rules = rules_of(self.source)
        self.copies: dict[Path, Path] = {}

    def scrubbed(self, folder: Path, seed: str = "seed") -> Pairs:
        """Write a copy into a new folder; return original and copy, cell by cell."""
        folder.mkdir()
        done = scrub(self.members, folder, seed)
        members = self.members[self.source]
        self.copies = done.files
        assert done.files.keys() == {member.path for member in members}
        return [
            pair
            for member in members
            for pair in zip(
                cells(member.path, member.form),
                cells(done.files[member.path], member.form),
                strict=True,
            )
        ]


Cell = tuple[bytes, bytes]
Pairs = list[tuple[Cell, Cell]]


def cells(path: Path, form: Form) -> list[Cell]:
    """Return what is in a file: its bytes, or names and values in a database's read tables."""
    if form is not Form.database:
        return [(b"", b"".join(chunks(path, Notes())))]
    return list(_in_database(path))


def _in_database(path: Path) -> Iterator[Cell]:
    with opened(path) as connection:
        connection.text_factory = bytes
        for table in TABLES:
            try:
                cursor = connection.execute(f'SELECT * FROM "{table}"')
            except sqlite3.OperationalError:
                continue
            names = [column[0].encode() for column in cursor.description]
            for row in cursor.fetchall():
                for name, one in zip(names, row, strict=True):
                    yield name, one if isinstance(one, bytes) else b"%d" % (one or 0)


def trace_of(name: str) -> Ingested:
    return ingest(named_logs([name]), Options())


def assert_same_trace(before: Ingested, after: Ingested) -> None:
    """Compare traces in all but their keys; names of sessions one to one."""
    one, other = before.trace.frame(), after.trace.frame()
    assert len(one) == len(other)
    for column in one.columns:
        if column not in KEYS:
            assert one[column].to_list() == other[column].to_list(), column
    assert _numbered(one) == _numbered(other)
    assert before.trace.meta.tokenizer == after.trace.meta.tokenizer
    for source, notes in before.notes.items():
        assert notes.skipped == after.notes[source].skipped
        counts = [dict(kept.counts) | {"bytes": 0} for kept in (notes, after.notes[source])]
        assert counts[0] == counts[1]


def _numbered(frame: Any) -> list[tuple[int, int]]:
    """Return names of sessions as numbers in the order of their first use."""
    numbers: dict[str | None, int] = {None: -1}
    pairs = zip(frame["session"].to_list(), frame["parent_session"].to_list(), strict=True)
    return [
        (numbers.setdefault(a, len(numbers)), numbers.setdefault(b, len(numbers))) for a, b in pairs
    ]


def words(data: bytes) -> set[bytes]:
    """Return the words of four letters and more, those inside ids left out."""
    return set(WORD.findall(IDS.sub(b"0", data)))


def words_in_place(before: bytes, after: bytes) -> set[bytes]:
    """Return the words that two texts have at the same place."""
    hidden = IDS.sub(lambda found: b"0" * len(found[0]), before)
    return {
        found[0]
        for found in WORD.finditer(hidden)
        if after[found.start() : found.end()] == found[0]
    }


def kept_words(logs: Logs, originals: list[Cell]) -> set[bytes]:
    """Return the words that may stay: those of the table, and the values of the keys it names."""
    found = JSON_NAMES | {b"data", b"base64", b"image", b"jpeg", b"webp"}
    keys: set[bytes] = set()
    for kept in _all(logs.rules.kept, []):
        keys |= kept.values
        found |= {word for name in (*kept.keys, *kept.words) for word in words(name)}
    for marker in logs.rules.markers:
        found |= words(marker)
        for _, data in originals:
            found |= {word for match in re.finditer(marker, data) for word in words(match[0])}
    named = b"|".join(map(re.escape, sorted(keys)))
    value = re.compile(rb'"(?:%b)\\*"\s*:\s*(\[[^\]]*\]|\\*"[\w.:/@+-]*\\*")' % named)
    for name, data in originals:
        texts = [data] if name in keys else value.findall(data)
        found |= {word for text in texts for word in words(text)}
    return found


def _all(kept: Kept, seen: list[Kept]) -> list[Kept]:
    if not any(one is kept for one in seen):
        seen.append(kept)
        for inner in kept.inside.values():
            _all(inner, seen)
    return seen
