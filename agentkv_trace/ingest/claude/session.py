"""The calls of one file, from its lines in the order in which they were written."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from agentkv_trace.ingest.claude import records
from agentkv_trace.ingest.claude.entries import Entries
from agentkv_trace.ingest.claude.heads import Epoch
from agentkv_trace.ingest.claude.records import Head, Line
from agentkv_trace.ingest.claude.reminders import has_notes, may_delegate
from agentkv_trace.ingest.claude.track import (
    END_LAG_US,
    INPUT_LAG_US,
    Pending,
    Times,
    Track,
)
from agentkv_trace.ingest.claude.tree import Region, Response, Tree
from agentkv_trace.ingest.codex.records import table, text, whole
from agentkv_trace.trace.call import Node

if TYPE_CHECKING:
    from agentkv_trace.ingest.claude.messages import Entry
    from agentkv_trace.ingest.claude.scan import Scan, Scanned
    from agentkv_trace.notes import Notes
    from agentkv_trace.trace.call import LoggedCall

AGENT = "claude"


class Session:
    """A state machine: `feed` it lines, take calls from `ready`, `finish` it.

    A file holds a session, a sub-agent, or (older versions) a session with its sub-agents.
    """

    def __init__(self, file: Scanned, scan: Scan, agent_type: str | None, notes: Notes) -> None:
        self.ready: list[LoggedCall] = []
        self._file = file
        self._scan = scan
        self._agent_type = agent_type
        self._notes = notes
        self._tree = Tree()
        self._entries = Entries(self._tree, notes)
        self._tracks: dict[str, Track] = {}
        self._track_of: dict[str, str] = {}
        self._last: dict[str, Entry] = {}
        self._summaries: dict[str, Pending] = {}
        self._restarted: set[str] = set()
        self._failed: set[str] = set()
        self._scripted = False
        self._model: dict[str, str | None] = {}
        self._stamp_us = 0

    def feed(self, line: Line) -> None:
        """Take the next line."""
        if line.type == "progress":
            self._mirrored(line)
        if not line.is_turn:
            started = line.type == "mode" or (
                self._scripted and line.type == "queue-operation" and line.operation == "enqueue"
            )
            if started:
                self._restarted.add("")
            return
        self._scripted = line.entrypoint == "sdk-cli"
        name = self._name(line)
        head = records.head_of(line.message) if line.type == "assistant" else Head()
        response = records.call_id(line, head)
        entry, is_new = self._entries.take(line, response, self._last.get(name))
        self._last[name] = entry
        self._stamp_us = entry.stamp_us or self._stamp_us
        if response is not None:
            self._response(line, head, response, entry, name, is_new)
        elif not is_new:
            return
        elif entry.boundary is not None:
            self._compaction(line, entry, name)
        elif line.isCompactSummary is True:
            self._summary(entry)
        elif line.type == "assistant" and entry.role == "assistant":
            # The client answers itself where a killed session goes on.
            self._restarted.add(name)
        elif line.subtype == "api_error":
            self._failed.add(name)

    def finish(self) -> None:
        """Give out the last calls."""
        for track in self._tracks.values():
            track.close()

    # Whose line it is

    def _name(self, line: Line) -> str:
        """Return the sub-agent that a line belongs to; empty for the session itself."""
        name = records.chain_of(line)
        if name or line.isSidechain is not True:
            return name
        uuid, parent = text(line.uuid) or "", text(line.parentUuid) or ""
        return self._track_of.setdefault(uuid, self._track_of.get(parent, uuid))

    def _track(self, name: str, line: Line) -> Track:
        track = self._tracks.get(name)
        if track is None:
            kind = self._agent_type or text(line.attributionAgent) or "subagent"
            agent = f"{AGENT}:{kind}" if name else AGENT
            track = self._tracks[name] = Track(agent, self._notes, self.ready)
        return track

    def _mirrored(self, line: Line) -> None:
        """Take a sub-agent's line out of the progress that its parent's file repeats.

        Only where the sub-agent has no file of its own.
        """
        data = records.record_of(line.data)
        inner, agent = table(data.get("message")), text(data.get("agentId"))
        session = text(line.sessionId) or ""
        if data.get("type") != "agent_progress" or agent is None:
            return
        if (session, agent) in self._scan.agents:
            self._notes.count("mirrored lines")
            return
        last = self._last.get(agent)
        uuid = text(inner.get("uuid")) or f"{line.uuid} of {agent}"
        if inner.get("type") not in ("user", "assistant"):
            return
        self.feed(
            Line(
                type=inner["type"],
                uuid=uuid,
                parentUuid=None if last is None else last.uuid,
                sessionId=session,
                agentId=agent,
                isSidechain=True,
                timestamp=inner.get("timestamp") or line.timestamp,
                version=line.version,
                cwd=line.cwd,
                message=Raw(msgspec.json.encode(inner.get("message"))),
            )
        )

    # Calls

    def _response(
        self, line: Line, head: Head, response: str, entry: Entry, name: str, is_new: bool
    ) -> None:
        track = self._track(name, line)
        usage = records.usage_of(head.usage)
        known = self._tree.responses.get(response)
        if known is None:
            self._begin(line, head, response, entry, name, track)
            return
        if is_new:
            known.lines.append(entry)
        pending = track.pending
        if pending is None or pending.response is not known:
            return
        # The last line of a response has its whole usage.
        if usage is not None and (pending.usage is None or usage.output >= pending.usage.output):
            pending.usage = usage
        if is_new and pending.times.source != "order_only":
            pending.times.end_us = max(pending.times.end_us, entry.stamp_us or 0)

    def _begin(
        self, line: Line, head: Head, response: str, entry: Entry, name: str, track: Track
    ) -> None:
        model = text(head.model)
        notes = has_notes(model)
        region = self._tree.region(entry.parent, notes=notes)
        if name and (listing := self._listing(line, region, track)) is not None:
            region = self._tree.region(entry.parent, notes=notes, added=[listing])
        known = Response(response, entry.parent, region.step, [entry])
        self._tree.responses[response] = known
        new_head = self._see_epoch(response, line, model, track)
        session, parent = self._session_of(line, name, track)
        own = self._scan.owner.get(response) == self._file.path
        pending = Pending(
            own=own,
            session=session,
            parent=parent,
            model=model,
            kind=self._kind(name, track, parent, resumed=new_head) if own else "turn",
            root=track.epoch.node() if track.epoch is not None else _unknown(line, response),
            step=region.step,
            times=self._times(response, region, entry, track),
            response=known,
            usage=records.usage_of(head.usage),
        )
        track.new_head = new_head
        track.begin(pending, region)

    def _listing(self, line: Line, region: Region, track: Track) -> Entry | None:
        """Return what a sub-agent that may start others is told after its first tool's answer."""
        first = region.before is not None and len(self._tree.responses) == 1
        listing = self._scan.listing.get(text(line.sessionId) or "")
        if not first or listing is None:
            return None
        attachment = records.record_of(Raw(listing))
        kind = track.agent.partition(":")[2]
        return self._entries.listing(attachment) if may_delegate(attachment, kind) else None

    def _see_epoch(self, response: str, line: Line, model: str | None, track: Track) -> bool:
        """Go over to the head that a response is the first of; return whether it is a new one."""
        epoch = self._scan.epochs.get(response)
        if epoch is None and track.epoch is not None:
            return False
        changed = track.epoch is not None and epoch is not track.epoch
        track.epoch = epoch or Epoch(
            response, (text(line.version) or "", model or "", track.agent), "", 0, 0, 0
        )
        return changed

    def _session_of(self, line: Line, name: str, track: Track) -> tuple[str, str | None]:
        session = text(line.sessionId) or self._file.path.name.split(".")[0]
        if name:
            # Names like that of a team's member come back in other sessions.
            return f"{session}/{name}" if name in self._scan.namesakes else name, session
        if not track.copied:
            return session, None
        origin = text(table(line.forkedFrom).get("sessionId")) or self._origin
        return session, None if origin == session else origin

    @cached_property
    def _origin(self) -> str | None:
        """The session whose lines this file begins with, where another file owns them."""
        for response in self._file.responses:
            owner = self._scan.owner.get(response)
            if owner is not None and owner != self._file.path:
                return self._scan.session_of.get(owner)
        return None

    def _kind(self, name: str, track: Track, parent: str | None, *, resumed: bool) -> str:
        failed = name in self._failed
        restarted = name in self._restarted and track.has_calls
        self._failed.discard(name)
        self._restarted.discard(name)
        named = {
            "retry": failed,
            "fork": not name and track.own_calls == 0 and parent is not None,
            "resume": restarted or resumed,
            "subagent": bool(name) and track.own_calls == 0,
        }
        return next((kind for kind, holds in named.items() if holds), "turn")

    def _times(self, response: str, region: Region, entry: Entry, track: Track) -> Times:
        """Return when a call began, after its newest input, and ended so far."""
        end = entry.stamp_us
        if end is None or response in self._file.restamped:
            at = (end or self._stamp_us) + track.own_calls
            return Times(at, at, "order_only")
        inputs = [each.stamp_us for each in region.lines if each.stamp_us is not None]
        start = max(inputs) + INPUT_LAG_US if inputs else end
        return Times(min(start, end), end)

    # Compactions

    def _compaction(self, line: Line, entry: Entry, name: str) -> None:
        track = self._track(name, line)
        boundary = entry.boundary
        own = self._scan.owner.get(f"compaction {entry.uuid}") == self._file.path
        if boundary is None or (track.epoch is None and own):
            return
        model = track.pending.model if track.pending is not None else self._model.get(name)
        region = self._tree.compacted(boundary, notes=has_notes(model))
        took = whole(table(line.compactMetadata).get("durationMs"))
        at = entry.stamp_us or self._stamp_us
        start = at - END_LAG_US - took * 1000 if took is not None else _newest(region, at)
        start = max(0, min(start, at))
        session, parent = self._session_of(line, name, track)
        pending = Pending(
            own=own,
            session=session,
            parent=parent,
            model=model,
            kind="compaction",
            root=track.epoch.node() if track.epoch is not None else _unknown(line, entry.uuid),
            step=region.step,
            times=Times(start, max(start, at - END_LAG_US)),
        )
        self._model[name] = model
        track.begin(pending, None)
        track.compacted = True
        self._summaries[entry.uuid] = pending

    def _summary(self, entry: Entry) -> None:
        parent = entry.parent
        pending = self._summaries.pop(parent.uuid, None) if parent is not None else None
        if pending is not None and entry.blocks:
            pending.summary = text(entry.blocks[0].fields.get("text"))


def _newest(region: Region, at: int) -> int:
    return max((each.stamp_us for each in region.lines if each.stamp_us is not None), default=at)


def _unknown(line: Line, name: str) -> Node:
    return Node.head(AGENT, text(line.version), name)
