"""Which events the next prompt holds: the branch at hand, folds applied, pairs kept whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from agentkv_trace.ingest.codex.records import Record, table, text, whole
from agentkv_trace.ingest.openhands.v1_messages import Entry, Style, chat, entry_of, items

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentkv_trace.ingest.requests.prompts import Place, Prompts

ROOT = "__root__"
"""The parent of an event that begins a conversation anew."""
_NO_NODES = frozenset({"ConversationStateUpdateEvent"})


class View:
    """Takes events in the order of their numbers; gives the prompt behind any of them."""

    def __init__(self, prompts: Prompts, style: Style) -> None:
        self.entries: list[Entry] = []
        self.head: str | None = None
        self._prompts = prompts
        self._style = style
        self._parents: dict[str, str | None] = {}
        self._events: dict[str, tuple[Entry | None, Record]] = {}
        self._last: str | None = None
        self._batches: dict[str, int] = {}

    def move(self, event: Record) -> None:
        """Go to where an event was added: to its parent, or where it has none to the last one."""
        parent = text(event.get("parent_id"))
        target = None if parent == ROOT else parent or self._last
        if target is not None and target not in self._parents:
            target = self._last
        if target != self.head:
            self._rebuild(target)

    def add(self, event: Record) -> None:
        """Append an event where `move` went."""
        name = text(event.get("id")) or f"event {len(self._events)}"
        self._last = name
        if event.get("kind") in _NO_NODES:
            self._parents[name] = self.head
            self._events[name] = (None, {})
            return
        entry = entry_of(event)
        fold = event if event.get("kind") == "Condensation" else {}
        self._parents[name], self._events[name] = self.head, (entry, fold)
        self._apply(entry, fold)
        self.head = name

    def _apply(self, entry: Entry | None, fold: Record) -> None:
        if entry is not None:
            self.entries.append(entry)
            if entry.asks and entry.response_id is not None:
                self._batches[entry.response_id] = self._batches.get(entry.response_id, 0) + 1
        elif fold:
            forgotten = fold.get("forgotten_event_ids")
            gone = set(forgotten) if isinstance(forgotten, list) else set()
            self.entries = [each for each in self.entries if each.id not in gone]
            words, offset = fold.get("summary"), whole(fold.get("summary_offset"))
            if isinstance(words, str) and offset is not None:
                part = {"type": "text", "text": words}
                # An offset behind the end has been seen; a list takes it as the end.
                self.entries.insert(offset, Entry(f"{fold.get('id')}-summary", "user", [part]))

    def _rebuild(self, target: str | None) -> None:
        chain: list[str] = []
        name = target
        while name is not None and len(chain) <= len(self._events):
            chain.append(name)
            name = self._parents.get(name)
        self.entries, self._batches = [], {}
        for each in reversed(chain):
            self._apply(*self._events[each])
        self.head = target

    def prompt(self, place: Place) -> Place:
        """Return where the prompt ends that is made of the view now, behind `place`."""
        groups = list(_grouped(list(self._whole())))
        if self._style.responses:
            system = [each for each in groups if each[0].role == "system"]
            for group in system:
                words = "\n".join(part["text"] for part in group[0].parts if part.get("text"))
                place = self._prompts.follow(place, msgspec.json.encode(words))
        for group in groups:
            place = self.behind(place, group)
        return place

    def behind(self, place: Place, group: list[Entry]) -> Place:
        """Return the place of one message behind another."""
        messages = items(group) if self._style.responses else [chat(group, self._style)]
        for message in messages:
            place = self._prompts.follow(place, msgspec.json.encode(message))
        return place

    def _whole(self) -> Iterator[Entry]:
        """Leave out what has no counterpart: second answers, broken batches, unmatched calls."""
        kept = list(_first_answers(self.entries))
        while True:
            answered = {each.call_id for each in kept if each.role == "tool"}
            present: dict[str | None, int] = {}
            for each in kept:
                if each.asks and each.call_id in answered:
                    present[each.response_id] = present.get(each.response_id, 0) + 1
            asked = {
                each.call_id
                for each in kept
                if each.asks and present.get(each.response_id, 0) >= self._size(each.response_id)
            }
            rest = [
                each
                for each in kept
                if not (each.asks or each.role == "tool") or each.call_id in (asked & answered)
            ]
            if len(rest) == len(kept):
                yield from rest
                return
            kept = rest

    def _size(self, response_id: str | None) -> int:
        return self._batches.get(response_id, 1) if response_id is not None else 1


def _first_answers(entries: list[Entry]) -> Iterator[Entry]:
    seen: set[str | None] = set()
    for entry in entries:
        if entry.role == "tool":
            if entry.call_id in seen:
                continue
            seen.add(entry.call_id)
        yield entry


def _grouped(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Yield the entries of each message: calls of one response, and neighbouring users."""
    group: list[Entry] = []
    for entry in entries:
        if group and _joins(group[-1], entry):
            group.append(entry)
            continue
        if group:
            yield group
        group = [entry]
    if group:
        yield group


def _joins(last: Entry, entry: Entry) -> bool:
    if last.asks and entry.asks:
        return last.response_id == entry.response_id
    return last.role == "user" == entry.role


def tools_of(event: Record) -> list[Record]:
    """Return the dumps of tools that a system prompt event has."""
    tools = event.get("tools")
    return [table(tool) for tool in tools] if isinstance(tools, list) else []
