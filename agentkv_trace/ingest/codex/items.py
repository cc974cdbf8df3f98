"""One item of a prompt: what the model reads of it, and what part it plays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import xxhash

from agentkv_trace.ingest import images
from agentkv_trace.ingest.codex.records import Record, table, text

if TYPE_CHECKING:
    from agentkv_trace.trace.call import Node

NOT_SENT = frozenset({"ghost_snapshot", "other"})
CALLS = {
    "function_call": "function_call_output",
    "local_shell_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "tool_search_call": "tool_search_output",
}
"""Items that ask for a tool, and the item that answers."""
OUTPUTS = frozenset(CALLS.values())
FOLDED = frozenset({"compaction", "compaction_summary", "context_compaction"})
_OF_MODEL = frozenset(
    {"reasoning", "web_search_call", "image_generation_call", *CALLS, *FOLDED},
)
_OF_CLIENT = frozenset({"agent_message", "additional_tools", *OUTPUTS})
_UNSENT_KEYS = ("id", "internal_chat_message_metadata_passthrough")
_CONTEXT = (
    "# AGENTS.md instructions",
    "<environment_context>",
    "<goal_context>",
    "<permissions instructions>",
    "<skill>",
    "<skills_instructions>",
    "<subagent_notification>",
    "<turn_aborted>",
    "<user_instructions>",
    "<user_shell_command>",
)
"""How messages begin that the client writes in the user's name."""


@dataclass(slots=True)
class Opaque:
    """Content that is sized, not read: its digest, and its tokens where they are known."""

    identity: bytes
    tokens: int


@dataclass(slots=True)
class Entry:
    """An item in the history, with what the rules for prompts need to know of it."""

    type: str
    pieces: list[bytes | Opaque]
    by_model: bool = False
    sequence: int | None = None
    call_id: str | None = None
    answered: bool = False
    is_context: bool = False
    is_user: bool = False
    is_summary: bool = False
    is_synthetic: bool = False
    role: str | None = None
    fidelity: str = "exact"
    node: Node | None = field(default=None, repr=False)

    @property
    def is_output(self) -> bool:
        """Whether this answers a tool call."""
        return self.type in OUTPUTS

    @property
    def asks(self) -> bool:
        """Whether this needs an answer before the next prompt."""
        return self.type in CALLS and self.call_id is not None

    @property
    def reasoning(self) -> Opaque | None:
        """The reasoning whose length only the usage tells, if this is one."""
        piece = self.pieces[0]
        return piece if self.type == "reasoning" and isinstance(piece, Opaque) else None


def entry_of(item: Record, sequence: int | None = None) -> Entry | None:
    """Return the entry of a logged item; None for an item of an unknown type."""
    kind = text(item.get("type")) or ""
    role = text(item.get("role"))
    if kind != "message" and kind not in _OF_MODEL and kind not in _OF_CLIENT:
        return None
    entry = Entry(
        type=kind,
        pieces=_pieces(kind, item),
        by_model=kind in _OF_MODEL or (kind == "message" and role == "assistant"),
        sequence=sequence,
        call_id=text(item.get("call_id")) or (text(item.get("id")) if kind in CALLS else None),
        role=role if kind == "message" else None,
    )
    if kind == "tool_search_call" and item.get("execution") == "server":
        entry.call_id = None
    if kind == "message" and role != "assistant":
        entry.is_context = role != "user" or _is_context(item)
        entry.is_user = not entry.is_context
    if entry.type in FOLDED or entry.reasoning is not None:
        entry.fidelity = "reasoning_opaque"
    return entry


def message(role: str, words: str) -> Record:
    """Return a text message in the form in which it is sent."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}


def words_of(item: Record) -> str:
    """Return the text of a message's parts, joined by line feeds."""
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    return "\n".join(filter(None, (text(table(part).get("text")) for part in parts)))


def shell_result(item: Record) -> Record | None:
    """Return exit code and duration of a shell output that is logged as JSON, else None."""
    output = item.get("output")
    if not isinstance(output, str) or not output.startswith('{"output":'):
        return None
    try:
        logged = table(msgspec.json.decode(output))
    except (msgspec.DecodeError, RecursionError):
        return None
    return table(logged["metadata"]) if "metadata" in logged else None


def sent(item: Record) -> Record:
    """Return an item without the fields that never reach the model."""
    return {key: value for key, value in item.items() if key not in _UNSENT_KEYS}


def digest(data: bytes) -> bytes:
    """Return what tells one content from another."""
    return xxhash.xxh3_128_digest(data)


def estimated_tokens(encrypted: str) -> int:
    """Return about how many tokens an encrypted text holds: base64, a fixed envelope, 4 bytes each.

    Used only where no usage tells.
    """
    return max(1, (len(encrypted) * 3 // 4 - 650) // 4)


def _pieces(kind: str, item: Record) -> list[bytes | Opaque]:
    item = sent(item)
    encrypted = text(item.get("encrypted_content"))
    if encrypted is not None and (kind == "reasoning" or kind in FOLDED):
        data = msgspec.json.encode(item)
        return [Opaque(kind.encode() + b"\0" + digest(data), estimated_tokens(encrypted))]
    pictures: list[bytes | Opaque] = []
    if kind == "image_generation_call" and (result := text(item.get("result"))) is not None:
        pictures.append(_picture(result, images.tokens_of_base64(result)))
        item = {**item, "result": ""}
    for key in ("content", "output"):
        if isinstance(item.get(key), list):
            item = {**item, key: [_without_picture(part, pictures) for part in item[key]]}
    return [msgspec.json.encode(item), *pictures]


def _without_picture(part: object, pictures: list[bytes | Opaque]) -> object:
    url = table(part).get("image_url")
    if not isinstance(url, str) or not images.is_data_url(url):
        return part
    pictures.append(_picture(url, images.tokens_of_url(url)))
    return {**table(part), "image_url": ""}


def _picture(data: str, tokens: int) -> Opaque:
    return Opaque(b"image\0" + digest(data.encode()), tokens)


def _is_context(item: Record) -> bool:
    return words_of(item).lstrip().startswith(_CONTEXT)
