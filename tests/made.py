"""Small traces for tests, made without any log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.trace.build import TraceBuilder
from agentkv_trace.trace.call import LoggedCall, Node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.trace.store import Trace

CHUNK = 64
"""Bytes per chunk of 16 tokens at the default rate."""


def text(word: int) -> bytes:
    """Return one chunk's worth of bytes, different for each word."""
    return f"{word:08x}".encode() * 8


def call(
    session: str, prompt: Node, start: int = 0, *, output: bytes = b"", **fields: object
) -> LoggedCall:
    """Return a call whose output, if any, follows its prompt."""
    path = prompt.text(output) if output else prompt
    values: dict[str, object] = {
        "source": "codex",
        "agent": "codex",
        "end_us": start + 10,
        "time_source": "logged",
    }
    return LoggedCall(session=session, prompt=prompt, path=path, start_us=start, **values | fields)


def node(words: Sequence[int], parent: Node | None = None) -> Node:
    """Return the node that ends a prompt of whole chunks."""
    at = parent or Node.head()
    for word in words:
        at = at.text(text(word))
    return at


def trace(*prompts: Sequence[int], sessions: Sequence[str] | None = None) -> Trace:
    """Return a trace of prompts given as chunks, one call each, in order."""
    builder = TraceBuilder()
    for number, words in enumerate(prompts):
        session = sessions[number] if sessions else "one"
        builder.add(call(session, node(words), number * 1000))
    return builder.finish({}, fixed_bytes_per_token=4.0)
