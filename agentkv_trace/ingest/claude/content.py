"""The blocks of a message as they are sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from agentkv_trace.ingest import images
from agentkv_trace.ingest.codex.items import Opaque, digest
from agentkv_trace.ingest.codex.records import Record, table, text

_BASE64_PER_TOKEN = 4 * 4 / 3
"""Characters of encrypted thinking for a token of it: four bytes, as base64."""


class Reasoning(Opaque):
    """Thinking that is sent back encrypted; how much of it counts is fitted to the usage."""


@dataclass(slots=True)
class Block:
    """One block: its JSON, what of it is only sized, and which tool call it is or answers."""

    kind: str
    data: bytes
    sized: tuple[Opaque, ...] = ()
    call: str | None = None

    @property
    def fields(self) -> Record:
        """The block as an object."""
        return table(msgspec.json.decode(self.data))


def text_block(words: str) -> Block:
    """Return a block of plain text."""
    return Block("text", msgspec.json.encode({"type": "text", "text": words}))


def blocks_of(content: object) -> list[Block]:
    """Return the blocks of a message's content; plain text is one block."""
    if isinstance(content, str):
        return [text_block(content)]
    return [block_of(part) for part in content if part] if isinstance(content, list) else []


def block_of(value: object) -> Block:
    """Return one block of a content list, cache markers left out, images and secrets sized."""
    if isinstance(value, str):
        return text_block(value)
    part = table(value)
    kind = text(part.get("type")) or ""
    sized: list[Opaque] = []
    data = msgspec.json.encode(_sent(part, sized))
    call = text(part.get("id")) if kind == "tool_use" else text(part.get("tool_use_id"))
    return Block(kind, data, tuple(sized), call)


def _sent(value: Any, sized: list[Opaque]) -> Any:
    """Return a block without cache markers, images and encrypted thinking, which `sized` takes."""
    if not isinstance(value, dict):
        return value
    kind = value.get("type")
    found = {key: each for key, each in value.items() if key != "cache_control"}
    secret = {"thinking": "signature", "redacted_thinking": "data"}.get(str(kind))
    if secret is not None and (data := text(found.pop(secret, None))) is not None:
        tokens = max(1, round(len(data) / _BASE64_PER_TOKEN))
        sized.append(Reasoning(b"thinking\0" + digest(data.encode()), tokens))
    if kind in ("image", "document"):
        source = table(value.get("source"))
        if source.get("type") == "base64" and (data := text(source.get("data"))) is not None:
            sized.append(_picture(data))
            found["source"] = {**source, "data": ""}
    elif kind == "tool_result" and isinstance(found.get("content"), list):
        found["content"] = [_sent(part, sized) for part in found["content"]]
    return found


def _picture(data: str) -> Opaque:
    return Opaque(b"image\0" + digest(data.encode()), images.tokens_of_base64(data))
