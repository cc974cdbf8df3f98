"""The tree of a transcript's lines, and the prompt of each response in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentkv_trace.ingest.claude.messages import Boundary, Entry, Sent, Step, messages_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(slots=True, eq=False)
class Response:
    """One response of the model: what it was asked, and its lines so far."""

    id: str
    parent: Entry | None
    """The line that its first line hangs on."""
    step: Step
    lines: list[Entry] = field(default_factory=list)
    answers: dict[tuple[int, ...], Step] = field(default_factory=dict)

    def said(self, lines: Sequence[Entry] | None = None) -> Step:
        """Return the step that ends this response, as some of its lines are sent again."""
        lines = self.lines if lines is None else lines
        key = tuple(line.at for line in lines)
        step = self.answers.get(key)
        if step is None:
            sent = messages_of(lines, notes=True, first=False)
            step = self.answers[key] = Step(self.step, sent)
        return step


@dataclass(slots=True)
class Region:
    """What a prompt has behind the last response in it."""

    step: Step
    before: Response | None
    said: Step | None
    """The step that ends that response as this prompt has it."""
    lines: list[Entry]
    """The lines behind it."""
    blocks: int
    """Blocks of messages that this prompt adds to that of the response."""


class Tree:
    """All lines of a file by id; parents are known before their children."""

    def __init__(self) -> None:
        self.responses: dict[str, Response] = {}
        self._entries: dict[str, Entry] = {}
        self._by_source: dict[str, list[Entry]] = {}
        self._answered: set[str] = set()
        self._asker: dict[str, str] = {}

    def get(self, uuid: str | None) -> Entry | None:
        """Return a line by its id."""
        return None if uuid is None else self._entries.get(uuid)

    def add(self, entry: Entry) -> None:
        """Take a line."""
        self._entries[entry.uuid] = entry
        calls = [block.call for block in entry.blocks if block.call is not None]
        if entry.role == "assistant":
            self._asker.update((call, entry.uuid) for call in calls)
        elif entry.role == "user":
            self._answered.update(calls)
            # Older versions do not say what a line answers; its call does.
            if entry.source is None and calls:
                entry.source = self._asker.get(calls[0])
        if entry.source is not None:
            self._by_source.setdefault(entry.source, []).append(entry)

    def alias(self, uuid: str, entry: Entry) -> None:
        """Let a line that repeats another stand for it."""
        self._entries[uuid] = entry

    def region(
        self,
        parent: Entry | None,
        *,
        notes: bool,
        added: Iterable[Entry] = (),
        until: Entry | None = None,
    ) -> Region:
        """Return the prompt that goes from the root to a line.

        `added` lines come at its end; of what a compaction kept it has all before `until`.
        """
        path, before = self._path(parent)
        path = self._with_siblings(path, until)
        own = [] if before is None else [e for e in path if e.response == before.id]
        rest = [e for e in path if before is None or e.response != before.id]
        rest += added
        sent = messages_of(rest, notes=notes, first=before is None)
        said = None if before is None else before.said(own)
        step = said if said is not None and not sent else Step(said, sent)
        blocks = sum(max(1, len(entry.blocks)) for entry in (*own, *rest) if entry.role != "mark")
        return Region(step, before, said, rest, blocks)

    def compacted(self, boundary: Boundary, *, notes: bool) -> Region:
        """Return the prompt of a compaction: all of the conversation before what is kept."""
        first = self.get(boundary.kept[0]) if boundary.kept else None
        tail = self.get(boundary.tail)
        if first is None:
            return self.region(tail, notes=notes)
        last = tail
        while last is not None and last.boundary is None:
            last = last.parent
        if last is None or last.boundary is None or first.uuid not in last.boundary.kept:
            return self.region(first.parent, notes=notes)
        # Kept for the second time: before it stand a summary and what else was kept.
        anchor = self.get(last.boundary.anchor)
        return self.region(anchor or last, notes=notes, until=first)

    def _path(self, entry: Entry | None) -> tuple[list[Entry], Response | None]:
        """Return the lines from a response's first one to a line; from the root without one."""
        path: list[Entry] = []
        before: Response | None = None
        while entry is not None and (before is None or entry is not before.parent):
            path.append(entry)
            if before is None:
                if entry.boundary is not None:
                    break
                if entry.role == "assistant" and entry.response is not None:
                    before = self.responses.get(entry.response)
            entry = entry.parent
        return path[::-1], before

    def _with_siblings(self, path: list[Entry], until: Entry | None) -> list[Entry]:
        """Add what belongs to a path but hangs on other branches, in the order of the file.

        Parallel tool calls make branches: the path goes through the answer that came last.
        """
        kept = self._kept(path, until)
        place = {id(entry): 2 for entry in path}
        place.update((id(entry), 1) for entry in kept)
        if kept:
            for entry in path:
                place[id(entry)] = 0
                if entry.uuid == (path[0].boundary and path[0].boundary.anchor):
                    break
            else:
                # Without its anchor, what is kept follows the summary.
                place.update((id(entry), 2) for entry in path[2:])
        found = [*path, *kept]
        for entry in tuple(found):
            if entry.role != "assistant" or entry.response is None:
                continue
            response = self.responses.get(entry.response)
            for other in response.lines if response is not None else ():
                asked = [block.call for block in other.blocks if block.kind == "tool_use"]
                if id(other) not in place and asked and self._answered.issuperset(asked):
                    place[id(other)] = place[id(entry)]
                    found.append(other)
        for entry in tuple(found):
            for answer in self._by_source.get(entry.uuid, ()):
                if id(answer) not in place:
                    place[id(answer)] = place[id(entry)]
                    found.append(answer)
        found.sort(key=lambda entry: (place[id(entry)], entry.at))
        return found

    def _kept(self, path: list[Entry], until: Entry | None) -> list[Entry]:
        """Return the lines that a compaction at the beginning of a path has kept."""
        boundary = path[0].boundary if path else None
        if boundary is None:
            return []
        on_path = {id(entry) for entry in path}
        uuids = boundary.kept
        if until is not None and until.uuid in uuids:
            uuids = uuids[: uuids.index(until.uuid)]
        entries = (self._entries.get(uuid) for uuid in uuids)
        return [entry for entry in entries if entry is not None and id(entry) not in on_path]


__all__ = ["Entry", "Region", "Response", "Sent", "Step", "Tree"]
