"""What is in a set of files: which thread each holds, and what forks need of their parents."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from agentkv_trace.ingest import reading
from agentkv_trace.ingest.codex.records import (
    STARTS,
    Meta,
    Record,
    Vector,
    meta_of,
    table,
    usage_of,
    vector_of,
)
from agentkv_trace.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_TURN_WITHIN = 40
_META_WITHIN = 20
"""Records looked at for a thread's session_meta; it is the first one of an undamaged file."""


class Files:
    """Rollouts by thread, in the order given, and trace bundles.

    Of two files of one thread the larger is taken; `thread_of` has both. `sent_bases` holds the
    base instructions as they were really sent, where a bundle shows them, by `heads.base_key`.
    """

    def __init__(self, paths: Sequence[Path], notes: Notes) -> None:
        self.threads: dict[str, tuple[Path, Meta]] = {}
        self.thread_of: dict[Path, str] = {}
        self.bundles: list[Path] = []
        self.sent_bases: dict[tuple[str, ...], str] = {}
        self._notes = notes
        self._vectors: dict[str, list[Vector]] = {}
        for path in dict.fromkeys(paths):
            notes.count("files")
            if path.name == "manifest.json":
                self.bundles.append(path)
                continue
            try:
                self._add(path)
            except OSError:
                notes.skip("unreadable file", str(path))

    def _add(self, path: Path) -> None:
        if path.stat().st_size == 0:
            self._notes.skip("empty file", str(path))
            return
        meta = _meta_in(path)
        self.thread_of[path] = meta.thread
        known = self.threads.get(meta.thread)
        if known is not None:
            self._notes.count("files of a thread that another file holds")
            if known[0].stat().st_size >= path.stat().st_size:
                return
        self.threads[meta.thread] = (path, meta)

    def meta_of(self, thread: str) -> Meta | None:
        """Return what a thread's file says of it, or None where no file is here."""
        known = self.threads.get(thread)
        return None if known is None else known[1]

    def first_turn(self, thread: str) -> Record:
        """Return the first turn_context of a thread's file, or an empty object."""
        known = self.threads.get(thread)
        if known is None:
            return {}
        records = reading.objects(known[0], Notes(), STARTS)
        for _, record in itertools.islice(records, _TURN_WITHIN):
            if record.get("type") == "turn_context":
                return table(record.get("payload"))
        return {}

    def vectors_of(self, parent: str, child: str) -> list[Vector]:
        """Return the usage breakdowns, repeats left out, that a child may have copied.

        They are the parent's; where its file is not here, those of the first other child of it.
        """
        source = self.threads.get(parent) or next(
            (one for one in self.threads.values() if parent in (one[1].forked_from, one[1].parent)),
            None,
        )
        if source is None or source[1].thread == child:
            return []
        thread = source[1].thread
        if thread not in self._vectors:
            self._vectors[thread] = _vectors_in(source[0])
        return self._vectors[thread]


def _meta_in(path: Path) -> Meta:
    for at, (_, record) in enumerate(reading.objects(path, Notes(), STARTS)):
        if record.get("type") == "session_meta":
            return meta_of(table(record.get("payload")), path, record.get("timestamp"))
        if "type" not in record and "id" in record:
            return meta_of(record, path)
        if at == _META_WITHIN:
            break
    return meta_of({}, path)


def _vectors_in(path: Path) -> list[Vector]:
    found: list[Vector] = []
    for number, line in reading.lines(path, Notes()):
        if b'"token_count"' not in line:
            continue
        for record in reading.decode(line, Notes(), path, number, STARTS):
            info = table(table(record.get("payload")).get("info"))
            vector = vector_of(info)
            if usage_of(info.get("last_token_usage")) and vector not in found[-1:]:
                found.append(vector)
    return found
