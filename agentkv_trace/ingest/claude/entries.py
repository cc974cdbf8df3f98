"""From lines of a file to entries of its tree, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import xxhash

from agentkv_trace.ingest.claude import records
from agentkv_trace.ingest.claude.content import Block, blocks_of
from agentkv_trace.ingest.claude.messages import Boundary, Entry
from agentkv_trace.ingest.claude.reminders import reminder_of
from agentkv_trace.ingest.codex.records import Record, table, text

if TYPE_CHECKING:
    from agentkv_trace.ingest.claude.records import Line
    from agentkv_trace.ingest.claude.tree import Tree
    from agentkv_trace.notes import Notes


class Entries:
    """Takes lines in the order of a file."""

    def __init__(self, tree: Tree, notes: Notes) -> None:
        self._tree = tree
        self._notes = notes
        self._count = 0
        self._known: dict[int, Entry] = {}

    def take(self, line: Line, response: str | None, last: Entry | None) -> tuple[Entry, bool]:
        """Return the entry of a line, and whether it is new.

        `response` is the response that it is part of; `last` is the line before it in its
        session, which it follows where its parent was lost. A client that writes its whole
        history again gives lines new ids: those stand for the ones that are there.
        """
        uuid = text(line.uuid) or ""
        known = self._tree.get(uuid)
        if known is not None:
            self._notes.count("repeated lines")
            return known, False
        parent = self._tree.get(text(line.parentUuid))
        if parent is None and text(line.parentUuid) is not None:
            self._notes.count("lines whose parent is missing")
            parent = last
        entry = Entry(self._count, uuid, parent, "mark", records.stamp_of(line), response=response)
        self._fill(entry, line)
        key = _key(entry)
        first = entry if key is None else self._known.setdefault(key, entry)
        if first is not entry:
            self._notes.count("repeated lines")
            self._tree.alias(uuid, first)
            return first, False
        self._count += 1
        self._tree.add(entry)
        return entry, True

    def _fill(self, entry: Entry, line: Line) -> None:
        if line.type == "user":
            entry.role = "user"
            entry.blocks = blocks_of(records.message_of(line.message).content)
            entry.source = text(line.sourceToolAssistantUUID)
            entry.is_prompt = not records.is_input(line)
        elif line.type == "assistant" and line.isApiErrorMessage is not True:
            entry.role = "assistant"
            entry.blocks = blocks_of(records.message_of(line.message).content)
        elif line.type == "attachment":
            self._note(entry, records.record_of(line.attachment))
        elif line.type == "system" and line.subtype == "compact_boundary":
            entry.boundary = boundary_of(line)

    def _note(self, entry: Entry, attachment: Record) -> None:
        kind = text(attachment.get("type")) or ""
        entry.role = "note"
        entry.reminder = reminder_of(attachment)
        if kind == "queued_command":
            self._notes.count("queued commands")
        elif not entry.reminder.known:
            self._notes.count("attachments of unknown form")

    def listing(self, attachment: Record) -> Entry:
        """Return an entry that is in no file: the listing of agents that a sub-agent is told."""
        self._count += 1
        entry = Entry(self._count - 1, f"listing {self._count}", None, "note")
        entry.reminder = reminder_of(attachment)
        return entry


def boundary_of(line: Line) -> Boundary:
    """Return what a compaction kept."""
    data = table(line.compactMetadata)
    kept = table(data.get("preservedMessages"))
    segment = table(data.get("preservedSegment"))
    uuids = kept.get("uuids")
    return Boundary(
        kept=[uuid for uuid in uuids if isinstance(uuid, str)] if isinstance(uuids, list) else [],
        anchor=text(kept.get("anchorUuid")) or text(segment.get("anchorUuid")),
        tail=text(line.logicalParentUuid),
    )


def _key(entry: Entry) -> int | None:
    """Return what makes an entry the same as one that is there; None for what never repeats."""
    if entry.role not in ("user", "assistant") or not entry.blocks:
        return None
    mark = xxhash.xxh3_128((entry.response or entry.role).encode())
    if entry.response is None:
        mark.update(b"%d" % (-1 if entry.parent is None else entry.parent.at))
    for block in entry.blocks:
        mark.update(_identity(block))
    return mark.intdigest()


def _identity(block: Block) -> bytes:
    return block.data + b"".join(piece.identity for piece in block.sized)
