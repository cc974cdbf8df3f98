"""A call of OpenHands in the making, whichever file tells of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from agentkv_trace.ingest.codex.items import Opaque, digest
from agentkv_trace.ingest.requests.messages import Message
from agentkv_trace.ingest.requests.sessions import Reply

if TYPE_CHECKING:
    from agentkv_trace.ingest.codex.records import Record
    from agentkv_trace.ingest.requests.prompts import Place, Prompts
    from agentkv_trace.ingest.requests.times import Span
    from agentkv_trace.ingest.requests.usage import Usage

SOURCE = "openhands"
INSTRUCTION_TOKENS = 500
"""About the length of what a condenser is told before the events; all its calls share it."""


@dataclass(slots=True)
class Draft:
    """A call: its prompt's and its path's ends, and all that may yet be corrected."""

    response_id: str | None
    prompt: Place
    path: Place
    span: Span
    model: str | None = None
    usage: Usage | None = None
    kind: str = "turn"
    fidelity: str = "exact"
    reply: Reply = field(default_factory=Reply)
    session: str | None = None
    agent: str = SOURCE
    parent: str | None = None
    tasks: tuple[tuple[int, str | None], ...] = ()
    """Digests of the tasks it gave to sub-agents, and the agents' types."""
    is_linked: bool = True
    """Whether events say how this goes on from the call before it."""
    is_raw: bool = False
    """Whether the prompt is known as it was sent, and the path from what came later."""


def head(
    prompts: Prompts,
    model: str | None,
    *,
    tools: list[Record] | None = None,
    agent: str = SOURCE,
    folder: str | None = None,
    kind: str = "turn",
) -> Place:
    """Return the hidden head of a prompt: the tools' JSON, with the working directory in it.

    Where dumps of the tools are logged they tell all; else the agent and its folder do.
    """
    if kind == "compaction":
        return prompts.head(SOURCE, None, None, model, None, None, kind)
    if tools:
        mark = digest(msgspec.json.encode(tools, order="deterministic")).hex()
        return prompts.head(SOURCE, None, None, model, mark, None, kind)
    return prompts.head(SOURCE, None, agent, model, None, folder, kind)


def unseen(prompts: Prompts, place: Place, name: str, tokens: int) -> Place:
    """Return the end of a prompt of which only the length is known."""
    piece = Opaque(b"unseen\0" + name.encode(), max(tokens, 0))
    return prompts.behind(place, Message([piece]))
