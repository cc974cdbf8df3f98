"""Prompts as chains of nodes: a hidden head, what depends on place and day, the messages."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from agentkv_trace.ingest.opencode.chat import Opaque, Sent
from agentkv_trace.ingest.opencode.records import Message, Session, digest, table, text
from agentkv_trace.trace.call import Node, weakest

if TYPE_CHECKING:
    from collections.abc import Sequence

ENVIRONMENT_TOKENS = 230
"""The end of the system prompt, from the working directory and the date on: the rest is shared."""
COMPACTION_HEAD_TOKENS = 145
"""What all compactions since 1.18 begin with: who they are, and how the conversation is framed."""
TITLE_TOKENS = 550
"""The instructions of a title request."""


class Heads:
    """What stands in a session's prompts before the first message, and is in no log."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._nodes: dict[tuple[str | bytes, ...], Node] = {}

    def root(self, message: Message, asked: Message | None, kind: str = "") -> Node:
        """Return the node that ends the head of a call; `asked` is the user message it answers.

        Equal for equal version, agent, model, tools as far as logged, directory and local date.
        """
        session = self._session
        data = {} if asked is None else asked.data
        agent = text(message.data.get("agent")) or text(message.data.get("mode")) or ""
        day = _day(message.created_ms)
        place = text(table(message.data.get("path")).get("cwd")) or session.directory
        rules = msgspec.json.encode(
            [data.get("tools"), data.get("system"), data.get("format")], order="sorted"
        )
        signature = digest(session.permission + b"\0" + rules).hex()
        key = (agent, *message.model, signature, kind, place, day)
        if (found := self._nodes.get(key)) is None:
            model = "/".join(message.model)
            found = Node.head("opencode", session.version, agent, model, signature, kind)
            if not kind:
                where = digest(f"{place}\0{day}".encode())
                found = found.opaque(b"environment\0" + where, ENVIRONMENT_TOKENS)
            self._nodes[key] = found
        return found


def _day(ms: int) -> str:
    """Return the local date, which the system prompt holds."""
    try:
        return datetime.fromtimestamp(ms / 1000).astimezone().date().isoformat()
    except (OverflowError, OSError, ValueError):
        return ""


class Chain:
    """The nodes of the last prompt; the next one goes on where the two part."""

    def __init__(self) -> None:
        self._root: Node | None = None
        self._sent: list[Sent] = []
        self._nodes: list[Node] = []
        self._fidelity: list[str] = []

    def end(self, root: Node, sent: Sequence[Sent]) -> tuple[Node, str]:
        """Return the node that ends these messages behind a head, and the weakest fidelity."""
        same = self.shared(sent) if root is self._root else 0
        self._root = root
        for kept in (self._sent, self._nodes, self._fidelity):
            del kept[same:]
        for one in sent[same:]:
            node = chained(self._nodes[-1] if self._nodes else root, one)
            worst = weakest(self._fidelity[-1] if self._fidelity else "exact", one.fidelity)
            self._sent.append(one)
            self._nodes.append(node)
            self._fidelity.append(worst)
        return (self._nodes[-1], self._fidelity[-1]) if self._nodes else (root, "exact")

    def shared(self, sent: Sequence[Sent]) -> int:
        """Return with how many of the last prompt's messages these begin."""
        known = self._sent
        if len(sent) >= len(known) and list(sent[: len(known)]) == known:
            return len(known)
        pairs = zip(known, sent, strict=False)
        return next(
            (at for at, (old, new) in enumerate(pairs) if old is not new),
            min(len(known), len(sent)),
        )


def chained(node: Node, one: Sent) -> Node:
    """Return the node that ends a chat message placed behind another node."""
    for piece in one.pieces:
        node = node.opaque(*piece) if isinstance(piece, Opaque) else node.text(piece)
    return node
