"""What a prompt holds of tools' results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from agentkv_trace.ingest.opencode.chat import MEDIA, Moment, Opaque, Sent, encoded, file_record
from agentkv_trace.ingest.opencode.records import Message, Part, Record, Version, items, table, text

if TYPE_CHECKING:
    from collections.abc import Iterable

CLEARED = "[Old tool result content cleared]"
INTERRUPTED = "[Tool execution was interrupted]"

_MEDIA_IN_RESULTS = ("anthropic", "openai", "amazon-bedrock", "google-vertex-anthropic")
"""Providers whose tool results hold images; for others they follow as a user message."""
_ATTACHED = ((1, 15), "Attached image(s) from tool result:", "Attached media from tool result:")
"""The words before such images, until and from a version on."""


def answers(
    message: Message, parts: Iterable[Part], moment: Moment
) -> tuple[list[Sent], list[Record]]:
    """Return the answers to the tool calls among some parts, and the files that go behind them."""
    found: list[Sent] = []
    apart: list[Record] = []
    for part in parts:
        if part.type != "tool":
            continue
        cleared_ms = part.cleared_ms
        cleared = cleared_ms is not None and cleared_ms <= moment.at_ms
        attached: list[Record] = []
        if not cleared and not moment.without_media:
            attached = [table(file) for file in items(part.state.get("attachments"))]
        if moment.model[0] not in _MEDIA_IN_RESULTS:
            apart += [file for file in attached if _is_media(file)]
            attached = []
        key = ("tool", part.id, cleared, bool(attached))
        if (known := message.memo.get(key)) is None:
            known = message.memo[key] = _answer(part, cleared, attached)
        found.append(known)
    return found, apart


def files_message(files: list[Record], version: Version) -> Sent:
    """Return the user message that holds the files of tool results before it."""
    until, before, after = _ATTACHED
    opaque: list[Opaque] = []
    words = before if version < until else after
    content = [{"type": "text", "text": words}, *(file_record(file, opaque) for file in files)]
    return Sent("user", [encoded({"role": "user", "content": content}), *opaque])


def _answer(part: Part, cleared: bool, attached: list[Record]) -> Sent:
    words, fidelity = (CLEARED, "exact") if cleared else _output(part)
    content: Any = words
    opaque: list[Opaque] = []
    if attached:
        content = [
            {"type": "text", "text": words},
            *(file_record(file, opaque) for file in attached),
        ]
    record = {
        "role": "tool",
        "tool_call_id": text(part.data.get("callID")) or "",
        "content": content,
    }
    return Sent("tool", [encoded(record), *opaque], fidelity)


def _output(part: Part) -> tuple[str, str]:
    state = part.state
    status = state.get("status")
    if status == "completed":
        output = state.get("output")
        if isinstance(output, str):
            return output, "output_reformatted" if state.get("reformatted") else "exact"
        return msgspec.json.encode(output).decode(), "output_reformatted"
    if status == "error":
        metadata = table(state.get("metadata"))
        kept = metadata.get("output") if metadata.get("interrupted") is True else None
        if isinstance(kept, str):
            return kept, "exact"
        return text(state.get("error")) or "", "exact"
    return INTERRUPTED, "exact"


def _is_media(file: Record) -> bool:
    return (text(file.get("mime")) or "").startswith(MEDIA)
