"""A first look at all files: which responses each holds, who owns copies, where heads change."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentkv_trace.ingest.claude import records
from agentkv_trace.ingest.claude.heads import Epoch, link
from agentkv_trace.ingest.claude.relation import LIFE_US
from agentkv_trace.ingest.claude.reminders import has_notes
from agentkv_trace.ingest.codex.records import table, text
from agentkv_trace.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agentkv_trace.ingest.claude.records import Head, Line, Usage

BYTES_PER_TOKEN = 3.6
"""Sizes what is seen of a first prompt, to tell the head's size from its usage."""
_RESTAMPED = 3
"""As many responses with one time were not written when they came."""

# How good a copy of a response is, the best first.
_OWN, _REPLAYED, _MIRRORED = range(3)


@dataclass(slots=True)
class _Track:
    """The calls of one session or sub-agent in a file, as they pass by."""

    epoch: Epoch | None = None
    last: Usage | None = None
    last_us: int = 0
    typed: int = 0
    noted: int = 0
    at_prompt: bool = True
    compacted: bool = False


@dataclass(slots=True)
class Scanned:
    """What a first look at one file tells."""

    path: Path
    responses: dict[str, tuple[int, int]] = field(default_factory=dict)
    """For each, how good this copy is, and how many lines of bookkeeping came before it."""
    restamped: set[str] = field(default_factory=set)
    agents: set[tuple[str, str]] = field(default_factory=set)
    """Sub-agents (session, agent) whose own file this is."""
    sessions: dict[str, None] = field(default_factory=dict)
    listing: dict[str, bytes] = field(default_factory=dict)
    """The first listing of agent types by session."""
    epochs: dict[str, Epoch] = field(default_factory=dict)


class Scan:
    """All files of a run: `owner` of each response, `epochs` by their first response."""

    def __init__(self, files: Sequence[Path], notes: Notes) -> None:
        self.files: list[Scanned] = []
        self.epochs: dict[str, Epoch] = {}
        self.owner: dict[str, Path] = {}
        self.agents: set[tuple[str, str]] = set()
        self.listing: dict[str, bytes] = {}
        self.session_of: dict[Path, str] = {}
        for path in dict.fromkeys(files):
            notes.count("files")
            try:
                if path.stat().st_size == 0:
                    notes.skip("empty file", str(path))
                    continue
                self.files.append(scanned(path))
            except OSError:
                notes.skip("unreadable file", str(path))
        for file in self.files:
            self.agents |= file.agents
            self.session_of[file.path] = next(iter(file.sessions), "")
            for first, epoch in file.epochs.items():
                self.epochs.setdefault(first, epoch)
            for session, listing in file.listing.items():
                self.listing.setdefault(session, listing)
        names = [name for _, name in self.agents]
        self.namesakes = {name for name, count in Counter(names).items() if count > 1}
        """Sub-agents of several sessions with one name."""
        self._settle_owners()
        link(self.epochs.values())

    def _settle_owners(self) -> None:
        """Give each response to one file: its own before replays, the first before forks.

        A fork begins with the lines of its origin, but not with the books kept between them.
        """
        copies = self._copies()
        # Two files share a stretch of history: which of them kept the books tells the first.
        kept: dict[frozenset[Path], dict[Path, int]] = {}
        for found in copies.values():
            most = kept.setdefault(frozenset(path for _, _, path in found), {})
            for _, books, path in found:
                most[path] = max(most.get(path, 0), books)
        for response, found in copies.items():
            most = kept[frozenset(path for _, _, path in found)]
            ranks = [(copy, -most[path], str(path), path) for copy, _, path in found]
            self.owner[response] = min(ranks)[3]

    def _copies(self) -> dict[str, list[tuple[int, int, Path]]]:
        found: dict[str, list[tuple[int, int, Path]]] = {}
        for file in self.files:
            for response, (copy, books) in file.responses.items():
                found.setdefault(response, []).append((copy, books, file.path))
        return found


def scanned(path: Path) -> Scanned:
    """Return what a first look at a file tells. Raises OSError where it cannot be read."""
    file = Scanned(path)
    tracks: dict[str, _Track] = {}
    roots: dict[str, str] = {}
    stamps: dict[int | None, set[str]] = {}
    books = 0
    for _, line in records.lines(path, Notes()):
        if line.type == "progress":
            _see_mirrored(file, line, books)
            continue
        if not line.is_turn:
            books += bool(tracks)
            continue
        name = records.chain_of(line) or _root(line, roots)
        track = tracks.setdefault(name, _Track())
        session = text(line.sessionId) or ""
        file.sessions[session] = None
        if name:
            file.agents.add((session, name))
        if line.type == "assistant":
            head = records.head_of(line.message)
            response = records.call_id(line, head)
            if response is None:
                continue
            if response not in file.responses:
                copied = _REPLAYED if line.forkedFrom is not None or name else _OWN
                file.responses[response] = copied, books
                stamps.setdefault(records.stamp_of(line), set()).add(response)
                _see_call(file, track, line, head, response)
        elif line.type == "user":
            if line.isCompactSummary is True:
                track.compacted = True
            if not records.is_input(line):
                track.at_prompt = True
            track.typed += len(bytes(line.message)) if track.epoch is None else 0
        elif line.type == "attachment":
            track.noted += len(bytes(line.attachment)) if track.epoch is None else 0
            if b'"agent_listing_delta"' in bytes(line.attachment) and not name:
                file.listing.setdefault(session, bytes(line.attachment))
        elif line.subtype == "compact_boundary":
            track.compacted = True
            file.responses.setdefault(f"compaction {line.uuid}", (_OWN, books))
    for held in stamps.values():
        if len(held) >= _RESTAMPED:
            file.restamped |= held
    if file.restamped:
        file.responses = {
            name: (max(copy, _REPLAYED) if name in file.restamped else copy, books)
            for name, (copy, books) in file.responses.items()
        }
    return file


def _root(line: Line, roots: dict[str, str]) -> str:
    """Return which sub-agent a line without an agent's name belongs to: the line it begins with."""
    if line.isSidechain is not True:
        return ""
    uuid, parent = text(line.uuid) or "", text(line.parentUuid) or ""
    roots[uuid] = roots.get(parent, uuid)
    return roots[uuid]


def _see_mirrored(file: Scanned, line: Line, books: int) -> None:
    """Note a response that a parent's file repeats from its sub-agent."""
    data = records.record_of(line.data)
    message = table(table(data.get("message")).get("message"))
    response = text(message.get("id"))
    if data.get("type") == "agent_progress" and message.get("role") == "assistant" and response:
        file.responses.setdefault(response, (_MIRRORED, books))


def _see_call(file: Scanned, track: _Track, line: Line, head: Head, response: str) -> None:
    usage = records.usage_of(head.usage)
    if usage is None:
        return
    now = records.stamp_of(line) or 0
    epoch = track.epoch
    if epoch is None or epoch.group[1] != head.model or _has_new_head(track, epoch, usage, now):
        track.epoch = _epoch(track, line, head, usage, now, response)
        file.epochs[response] = track.epoch
    track.last, track.last_us = usage, now
    track.at_prompt = track.compacted = False


def _has_new_head(track: _Track, epoch: Epoch, usage: Usage, now: int) -> bool:
    """Tell whether a call's cache read says that its head is another than that of the one before.

    Heads change with the process, so only where a user's turn begins. Less than the head was
    read, though all of it was in the cache a short while ago.
    """
    last = track.last
    if last is None or not track.at_prompt or track.compacted:
        return False
    expired = now - track.last_us > LIFE_US[last.hourly]
    if usage.read == 0 and expired:
        return False
    return usage.read < min(last.read + last.written, epoch.size)


def _epoch(track: _Track, line: Line, head: Head, usage: Usage, now: int, response: str) -> Epoch:
    model = text(head.model) or ""
    size = usage.prompt - round((track.typed + track.noted) / BYTES_PER_TOKEN)
    if has_notes(model) and usage.read + usage.written:
        # The last marker is on the user's words; what the client adds is behind it.
        size = usage.read + usage.written - round(track.typed / BYTES_PER_TOKEN)
    if track.epoch is not None:
        size = track.epoch.size
    return Epoch(
        first=response,
        group=(text(line.version) or "", model, text(line.attributionAgent) or ""),
        folder=text(line.cwd) or "",
        start_us=now,
        read=usage.read,
        size=max(size, 0),
        before=track.epoch,
    )
