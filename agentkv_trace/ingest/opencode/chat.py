"""Chat messages as they are sent, and the pieces that they are made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from agentkv_trace.ingest import images
from agentkv_trace.ingest.opencode.records import Part, Record, Version, digest, text

MEDIA = ("image/", "application/pdf")
"""Files that a prompt holds as they are."""


class Opaque(NamedTuple):
    """Content that is sized, not read: its digest, and its tokens."""

    identity: bytes
    tokens: int


@dataclass(slots=True, eq=False)
class Sent:
    """One chat message: its JSON, and what it holds beside text."""

    role: str
    pieces: list[bytes | Opaque]
    fidelity: str = "exact"


@dataclass(slots=True)
class Block:
    """What one step of the model wrote: the parts from one step-start to the next."""

    start: Part | None = None
    finish: Part | None = None
    parts: list[Part] = field(default_factory=list)


class Moment(NamedTuple):
    """What a prompt depends on beside its messages."""

    at_ms: int
    model: tuple[str, str]
    version: Version
    without_media: bool = False


def encoded(record: Record) -> bytes:
    """Return a chat message's JSON, compact, its keys in their order."""
    return msgspec.json.encode(record)


def file_record(data: Record, opaque: list[Opaque]) -> Record:
    """Return the part of a message that stands for a file; its content goes to `opaque`."""
    url = text(data.get("url")) or ""
    mime = text(data.get("mime")) or ""
    tokens = images.MAX_TOKENS
    if mime.startswith("image/") and images.is_data_url(url):
        tokens = images.tokens_of_url(url)
    opaque.append(Opaque(b"file\0" + digest(url.encode()), tokens))
    if mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": ""}}
    name = text(data.get("filename")) or "part"
    return {"type": "file", "file": {"filename": name, "file_data": ""}}
