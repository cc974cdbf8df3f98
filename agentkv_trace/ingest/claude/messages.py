"""From lines in their order to the messages that a request sends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from agentkv_trace.ingest.claude.content import Block, Reasoning, text_block
from agentkv_trace.ingest.claude.reminders import Reminder, environment_of
from agentkv_trace.trace.call import Node, weakest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.ingest.codex.items import Opaque


@dataclass(slots=True, eq=False)
class Entry:
    """A line of the tree, as far as prompts need it."""

    at: int
    uuid: str
    parent: Entry | None
    role: str
    """`user`, `assistant`, `note` (an attachment), or `mark` (nothing that is sent)."""
    stamp_us: int | None = None
    blocks: list[Block] = field(default_factory=list)
    reminder: Reminder | None = None
    response: str | None = None
    """The id of the response that this is part of, for lines of the model."""
    source: str | None = None
    """The line of the model that this answers."""
    is_prompt: bool = False
    """Whether a user typed this."""
    boundary: Boundary | None = None


@dataclass(slots=True)
class Boundary:
    """Where a conversation was compacted: what is kept of it, behind which line."""

    kept: list[str]
    anchor: str | None
    tail: str | None


@dataclass(slots=True)
class Sent:
    """One message: its JSON, what it holds beside text, and how well it is known."""

    pieces: list[bytes | Opaque]
    fidelity: str = "exact"


class Step:
    """Some messages behind an earlier step; `end` makes their nodes once per head."""

    __slots__ = ("fidelity", "node", "parent", "root", "sent")

    def __init__(self, parent: Step | None, sent: list[Sent]) -> None:
        self.parent = parent
        self.sent = sent
        self.root: Node | None = None
        self.node: Node | None = None
        before = "exact" if parent is None else parent.fidelity
        self.fidelity: str = weakest(before, *(one.fidelity for one in sent))

    def end(self, root: Node) -> Node:
        """Return the node that ends this step's messages, all that is before it behind `root`."""
        fresh: list[Step] = []
        step: Step | None = self
        while step is not None and step.root is not root:
            fresh.append(step)
            step = step.parent
        node = root if step is None or step.node is None else step.node
        for each in reversed(fresh):
            for message in each.sent:
                node = chained(node, message.pieces)
            each.root, each.node = root, node
        return node


def chained(node: Node, pieces: Sequence[bytes | Opaque]) -> Node:
    """Return the node that ends some pieces behind another."""
    for piece in pieces:
        if isinstance(piece, bytes):
            node = node.text(piece)
        elif isinstance(piece, Reasoning):
            node = node.reasoning(piece.identity, piece.tokens)
        else:
            node = node.opaque(piece.identity, piece.tokens)
    return node


def messages_of(entries: Sequence[Entry], *, notes: bool, first: bool) -> list[Sent]:
    """Return the messages that lines become, in their order.

    All blocks of a response are one message, with answers logged between them behind it. `notes`
    tells whether what the client adds is a message of its own; `first`, whether these are the
    first messages of a prompt.
    """
    found: list[Sent] = []
    said: list[Block] = []
    speaker: tuple[str, str | None] | None = None
    run: list[Entry] = []

    def flush() -> None:
        nonlocal said, run
        if said:
            found.append(_message("assistant", said))
        if run:
            found.extend(_run(run, notes=notes, first=first and not found))
        said, run = [], []

    for entry in entries:
        if entry.role == "assistant":
            name = (entry.response or "", None if entry.response else entry.uuid)
            if name != speaker:
                flush()
                speaker = name
            said += entry.blocks
        elif entry.role in ("user", "note"):
            run.append(entry)
    flush()
    return found


def _message(role: str, blocks: Sequence[Block], fidelity: str = "exact") -> Sent:
    """Return a message of some blocks."""
    content = b",".join(block.data for block in blocks)
    data = b'{"role":"%s","content":[%s]}' % (role.encode(), content)
    sized = [piece for block in blocks for piece in block.sized]
    if any(isinstance(piece, Reasoning) for piece in sized):
        fidelity = weakest(fidelity, "reasoning_opaque")
    return Sent([data, *sized], fidelity)


def _run(run: Sequence[Entry], *, notes: bool, first: bool) -> list[Sent]:
    """Return what stands between two messages of the model."""
    blocks = _joined([entry.blocks for entry in run if entry.role == "user"])
    added = sorted(run, key=lambda entry: entry.stamp_us or 0)
    reminders = [entry.reminder for entry in added if entry.reminder is not None]
    known = all(reminder.known for reminder in reminders)
    fidelity = "exact" if known else "output_reformatted"
    if not reminders:
        return [_message("user", blocks)] if blocks else []
    listings = [reminder for reminder in reminders if first and reminder.is_listing]
    environment = [Sent([environment_of(listings)])] if listings else []
    reminders = [reminder for reminder in reminders if not (first and reminder.is_listing)]
    if notes:
        said = [_message("user", blocks)] if blocks else []
        added_note = [_note(reminders, fidelity)] if reminders else []
        return [*said, *environment, *added_note]
    sized = [piece for reminder in reminders for piece in reminder.sized]
    wrapped = [_wrapped(words) for reminder in reminders for words in _texts(reminder)]
    if first:
        before = [text_block(words) for words in wrapped]
        before[-1:] = [text_block(wrapped[-1] + "\n")] if wrapped else []
        blocks = [*before, *blocks]
    else:
        blocks = _appended(blocks, wrapped)
    message = _message("user", blocks, fidelity)
    message.pieces += sized
    return [*environment, message]


def _joined(lines: Sequence[list[Block]]) -> list[Block]:
    """Return the blocks of several lines as one message: text before text ends its line."""
    found: list[Block] = []
    for blocks in lines:
        if found and blocks and found[-1].kind == blocks[0].kind == "text":
            found[-1] = text_block(f"{found[-1].fields.get('text')}\n")
        found += blocks
    return found


def _note(reminders: Sequence[Reminder], fidelity: str) -> Sent:
    words = "\n\n".join("\n".join(r.texts) for r in reminders if r.texts)
    data = msgspec.json.encode({"role": "system", "content": words})
    return Sent([data, *(piece for r in reminders for piece in r.sized)], fidelity)


def _texts(reminder: Reminder) -> tuple[str, ...]:
    # A reminder that is only sized is wrapped all the same.
    return reminder.texts or ("",)


def _wrapped(words: str) -> str:
    return f"<system-reminder>\n{words}\n</system-reminder>"


def _appended(blocks: list[Block], wrapped: Sequence[str]) -> list[Block]:
    """Return blocks with what the client adds inside the last answer of a tool."""
    at = next((n for n in reversed(range(len(blocks))) if blocks[n].kind == "tool_result"), None)
    if at is None:
        return [*blocks, *(text_block(words) for words in wrapped)]
    block = blocks[at]
    fields = block.fields
    content = fields.get("content")
    if isinstance(content, list):
        fields["content"] = [*content, *({"type": "text", "text": words} for words in wrapped)]
    else:
        fields["content"] = "\n\n".join([str(content or ""), *wrapped])
    blocks = list(blocks)
    blocks[at] = Block(block.kind, msgspec.json.encode(fields), block.sized, block.call)
    return blocks
