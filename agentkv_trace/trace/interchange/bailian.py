"""Qwen-Bailian usage traces, JSON lines: calls of a chat service with 16-token chunk ids.

An id is a salted hash of its 16 tokens alone, not of what is before them, so equal ids mean equal
chunks only behind equal prefixes; chaining them makes keys. `parent_chat_id` (-1: none) is the
turn before; a second child of one turn is a `fork`, a session of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from agentkv_trace.trace.interchange.calls import Calls
from agentkv_trace.trace.interchange.lines import Seconds, Tokens, decoded, numbered

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentkv_trace.notes import Notes
    from agentkv_trace.trace.store import Trace

CHUNK_TOKENS = 16


class _Row(msgspec.Struct):
    chat_id: int
    timestamp: Seconds
    input_length: Tokens
    output_length: Tokens
    hash_ids: list[int]
    parent_chat_id: int = -1


def looks_like(head: bytes) -> bool:
    """Tell by its first bytes whether a file is such a trace."""
    line = head.lstrip(b"\xef\xbb\xbf \t\r\n").split(b"\n", 1)[0]
    return line.startswith(b"{") and b'"chat_id"' in line and b'"hash_ids"' in line


def read(
    files: Iterable[tuple[str, Iterable[tuple[int, bytes]]]],
    notes: Notes,
    *,
    chunk_tokens: int | None = None,
    salt: bytes | None = None,
    **options: Any,  # noqa: ARG001
) -> Trace:
    """Read all files into one trace; chats and ids of different files have nothing in common.

    Raises InputError where no call is left.
    """
    decoder = msgspec.json.Decoder(_Row)
    calls = Calls("bailian", notes)
    chats: list[tuple[int, int, int]] = []
    for place, line in numbered(files, notes):
        row = decoded(line, decoder, notes, place)
        if row is None:
            continue
        before = len(calls)
        calls.add(
            place,
            "",
            round(row.timestamp * 1e6),
            row.input_length,
            row.output_length,
            row.hash_ids,
            scope=place.scope,
        )
        if len(calls) > before:
            chats.append((place.file, row.chat_id, row.parent_chat_id))
    _find_sessions(calls, chats)
    return calls.finish(chunk_tokens=chunk_tokens or CHUNK_TOKENS, salt=salt)


def _find_sessions(calls: Calls, chats: list[tuple[int, int, int]]) -> None:
    """Name each call's session by its first chat; parents come before children in time."""
    session_of: dict[tuple[int, int], str] = {}
    continued: set[tuple[int, int]] = set()
    for call in sorted(range(len(chats)), key=lambda c: calls.start_us[c]):
        file, chat, parent = chats[call]
        mine = f"{file}/{chat}" if file else str(chat)
        session = session_of.get((file, parent))
        if session is not None:
            if (file, parent) in continued:
                calls.parent_session[call], calls.kind[call] = session, "fork"
            else:
                continued.add((file, parent))
                mine = session
        session_of.setdefault((file, chat), mine)
        calls.session[call] = mine
