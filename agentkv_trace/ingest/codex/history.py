"""The items that the next prompt will hold, as nodes that grow, branch and are rewritten."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import msgspec

from agentkv_trace.ingest.codex.items import (
    CALLS,
    Entry,
    Opaque,
    entry_of,
    message,
    words_of,
)
from agentkv_trace.trace.call import Node, weakest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentkv_trace.ingest.codex.records import Record

KEPT_USER_BYTES = 20_000 * 4
"""A rebuilt history keeps the last user messages up to 20,000 tokens of about 4 bytes."""
_KEPT_FOLDS = 2
"""Rewritten histories that a rollback can still reach; older ones free their memory."""


class History:
    """The list of items, with a chain of nodes that is made as far as calls need it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.fidelity = "exact"
        self.rewritten = False
        self._asked: dict[str, Entry] = {}
        self._open: dict[str, Entry] = {}
        self._turns: list[tuple[list[Entry], int]] = []
        self._root: Node | None = None
        self._chained = 0

    def __len__(self) -> int:
        return len(self.entries)

    def append(self, entry: Entry, keep_orphans: bool = False) -> bool:
        """Add an item; return whether it stays (an answer to an unknown call is never sent)."""
        if entry.is_output and entry.call_id is not None:
            asked = self._asked.get(entry.call_id)
            if asked is None and not keep_orphans:
                return False
            if asked is not None and asked.answered:
                self._withdraw_synthetic(entry.call_id)
        if entry.is_user:
            self._turns.append((self.entries, self._start_of_turn()))
        self._note(entry)
        self.entries.append(entry)
        return True

    def answer_open_calls(self, end: int) -> int:
        """Give each unanswered tool call among the first `end` items the answer "aborted".

        The client does so on every prompt it sends, and logs none of it. Returns the new `end`.
        """
        for at in range(end - 1, -1, -1) if self._open else ():
            entry = self.entries[at]
            if entry.asks and not entry.answered:
                self.entries.insert(at + 1, _aborted(entry))
                self._note(self.entries[at + 1])
                self._chained = min(self._chained, at + 1)
                end += 1
        return end

    def node_at(self, end: int, root: Node) -> Node:
        """Return the node that ends the first `end` items behind `root`, making what is missing."""
        if root is not self._root:
            self._root, self._chained = root, 0
        node = root if self._chained == 0 else cast("Node", self.entries[self._chained - 1].node)
        for entry in self.entries[self._chained : end]:
            node = chained(node, [entry])
            entry.node = node
        self._chained = max(self._chained, end)
        return cast("Node", self.entries[end - 1].node) if end else root

    def position_of(self, sequence: int) -> int:
        """Return how many items a prompt held that was sampled through a history sequence."""
        end = len(self.entries)
        while end and (own := self.entries[end - 1].sequence) is not None and own > sequence:
            end -= 1
        return end

    def replace(self, entries: Iterable[Entry]) -> None:
        """Take other items instead, as after a compaction."""
        lists = {id(kept): kept for kept, _ in self._turns}
        alive = {id(self.entries), *list(lists)[-_KEPT_FOLDS:]}
        self._turns = [turn for turn in self._turns if id(turn[0]) in alive]
        self._set(list(entries))

    def fold(self, replacement: list[Record], summary: str, bridged: bool) -> None:
        """Rewrite the history as a compaction does: by what the log holds, or by the known rule.

        Without `replacement`: the session's first context, the last user messages, the summary;
        `bridged` versions put messages and summary into one item.
        """
        if replacement:
            self.replace(entry for item in replacement if (entry := entry_of(item)) is not None)
            return
        self.replace(self._rebuilt(summary, bridged))
        self.fidelity = weakest(self.fidelity, "compaction_estimated")

    def roll_back(self, turns: int) -> None:
        """Drop the last user turns, with the context updates directly before them."""
        if turns <= 0 or not self._turns:
            return
        entries, end = self._turns[max(len(self._turns) - turns, 0)]
        del self._turns[max(len(self._turns) - turns, 0) :]
        self._set(entries[:end])

    def copy_from(self, other: History) -> None:
        """Start with the items of another thread's history."""
        self._turns = []
        self._set([replace(entry, node=None) for entry in other.entries])
        for at, entry in enumerate(self.entries):
            if entry.is_user and not entry.is_summary:
                self._turns.append((self.entries, at))
        self.fidelity = weakest(self.fidelity, other.fidelity)
        self.rewritten = False

    def _set(self, entries: list[Entry]) -> None:
        same = 0
        for old, new in zip(self.entries[: self._chained], entries, strict=False):
            if old is not new:
                break
            same += 1
        self._chained = same
        self.entries = entries
        self.fidelity = "exact"
        self._asked, self._open = {}, {}
        self.rewritten = True
        for entry in entries:
            self._note(entry)

    def _note(self, entry: Entry) -> None:
        self.fidelity = weakest(self.fidelity, entry.fidelity)
        if entry.call_id is None:
            return
        if entry.asks:
            entry.answered = False
            self._asked[entry.call_id] = self._open[entry.call_id] = entry
        elif entry.is_output and (asked := self._open.pop(entry.call_id, None)) is not None:
            asked.answered = True

    def _start_of_turn(self) -> int:
        end = len(self.entries)
        first = next((at for at, entry in enumerate(self.entries) if entry.is_user), end)
        while end > first and self.entries[end - 1].is_context:
            end -= 1
        return end

    def _withdraw_synthetic(self, call_id: str) -> None:
        for at, entry in enumerate(self.entries):
            if entry.is_synthetic and entry.call_id == call_id:
                del self.entries[at]
                self._chained = min(self._chained, at)
                self.rewritten = True
                return

    def _rebuilt(self, summary: str, bridged: bool) -> list[Entry]:
        first = next((at for at, e in enumerate(self.entries) if e.is_user), len(self.entries))
        kept = [entry for entry in self.entries[:first] if entry.is_context]
        texts: list[str] = []
        room = KEPT_USER_BYTES
        users = [e for e in self.entries if e.is_user and not e.is_summary]
        for entry in reversed(users):
            words = words_of(msgspec.json.decode(cast("bytes", entry.pieces[0])))
            data = words.encode()[:room]
            room -= len(data)
            texts.insert(0, data.decode(errors="ignore"))
            if room <= 0:
                break
        if bridged:
            texts, summary = [], "\n\n".join([*texts, summary])
        rebuilt = [cast("Entry", entry_of(message("user", words))) for words in texts]
        last = cast("Entry", entry_of(message("user", summary)))
        last.is_summary, last.is_user = True, True
        last.fidelity = "compaction_estimated"
        return [*kept, *rebuilt, last]


def chained(node: Node, entries: Iterable[Entry]) -> Node:
    """Return the node that ends some items placed behind another node."""
    for entry in entries:
        for piece in entry.pieces:
            if isinstance(piece, Opaque):
                grown = node.reasoning if piece is entry.reasoning else node.opaque
                node = grown(piece.identity, piece.tokens)
            else:
                node = node.text(piece)
    return node


def _aborted(entry: Entry) -> Entry:
    kind = CALLS[entry.type]
    item: Record = {"type": kind, "call_id": entry.call_id}
    if kind == "tool_search_output":
        item |= {"status": "completed", "execution": "client", "tools": []}
    else:
        item["output"] = "aborted"
    answer = cast("Entry", entry_of(item))
    answer.is_synthetic = True
    return answer
