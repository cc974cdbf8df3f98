"""Mooncake traces, JSON lines: `timestamp` (ms), `input_length`, `output_length`, `hash_ids`.

Ids stand for 512 tokens unless a `block_size` or `block_tokens` says otherwise. They are global
within a file (different files share no chunk), the last may stand for a partial chunk, and outputs
have none. There are no sessions: every call is one of its own. Rows of aiperf's `mooncake_trace`
add `session_id`, `delay` (ms after the turn before) and `context_mode`; see `deltas`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from agentkv_trace.trace.interchange.calls import Calls
from agentkv_trace.trace.interchange.deltas import Conversations
from agentkv_trace.trace.interchange.lines import (
    BlockTokens,
    Milliseconds,
    Place,
    Tokens,
    decoded,
    numbered,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import BinaryIO

    from agentkv_trace.notes import Notes
    from agentkv_trace.trace.store import Trace

USUAL_CHUNK_TOKENS = 512


class _Row(msgspec.Struct):
    input_length: Tokens
    hash_ids: list[int]
    output_length: Tokens | None = None
    timestamp: Milliseconds | None = None
    session_id: str | int | None = None
    delay: Milliseconds | None = None
    block_size: BlockTokens | None = None
    block_tokens: BlockTokens | None = None
    context_mode: str | None = None
    model: str | None = None


def looks_like(head: bytes) -> bool:
    """Tell by its first bytes whether a file is such a trace."""
    line = head.lstrip(b"\xef\xbb\xbf \t\r\n").split(b"\n", 1)[0]
    return line.startswith(b"{") and b'"hash_ids"' in line and b'"input_length"' in line


def read(
    files: Iterable[tuple[str, Iterable[tuple[int, bytes]]]],
    notes: Notes,
    *,
    source: str = "mooncake",
    chunk_tokens: int | None = None,
    salt: bytes | None = None,
    **options: Any,  # noqa: ARG001
) -> Trace:
    """Read all files into one trace; ids of different files are different chunks.

    Without `chunk_tokens` and where calls do not tell, the chunk size is the one that fits.
    Raises InputError where no call is left.
    """
    decoder = msgspec.json.Decoder(_Row)
    calls = Calls(source, notes, ordered=True)
    conversations = Conversations(calls)
    for place, line in numbered(files, notes):
        row = decoded(line, decoder, notes, place)
        if row is not None:
            _add(calls, conversations, place, row)
    return conversations.joined(chunk_tokens).finish(chunk_tokens=chunk_tokens, salt=salt)


def _add(calls: Calls, conversations: Conversations, place: Place, row: _Row) -> None:
    number = len(calls)
    if row.session_id is None:
        # Padded, so that calls at the same time stay in their order.
        session, before = f"{number:09d}", None
    else:
        session = f"{place.file}/{row.session_id}" if place.file else str(row.session_id)
        before = conversations.last(session)
    time_source = "logged"
    if row.timestamp is not None:
        start_us = round(row.timestamp * 1000)
    elif before is not None:
        start_us = before + round((row.delay or 0) * 1000)
        time_source = "order_only" if row.delay is None else "estimated"
    else:
        start_us, time_source = number, "order_only"
    calls.add(
        place,
        session,
        start_us,
        row.input_length,
        row.output_length or 0,
        row.hash_ids,
        scope=place.scope,
        chunk_tokens=row.block_tokens or row.block_size or 0,
        model=row.model,
        time_source=time_source,
    )
    if row.session_id is not None and len(calls) > number:
        conversations.add(session, number, start_us, row.hash_ids, row.context_mode)


def write(trace: Trace, file: BinaryIO, *, block_chunks: int | None = None) -> None:
    """Write a trace as Mooncake JSON lines, one call a line, in the order of its rows.

    Ids count chunks by first appearance; a partial last chunk has an id that occurs nowhere else,
    as readers of this format expect. `block_size` is added where it is not 512. Sessions, outputs
    and models do not survive. Streams: memory follows the number of distinct chunks and
    a block's references.
    """
    from agentkv_trace.trace.interchange.numbering import ByFirstAppearance
    from agentkv_trace.trace.paths import BLOCK_CHUNKS, Paths

    chunk_tokens = trace.meta.chunk_tokens
    extra = {} if chunk_tokens == USUAL_CHUNK_TOKENS else {"block_size": chunk_tokens}
    starts = trace.array("t_start_us")
    prompts = trace.array("prompt_tokens")
    outputs = trace.array("output_tokens")
    whole = Paths(trace)
    numbering = ByFirstAppearance(whole.keys.size)
    encoder = msgspec.json.Encoder()
    for block in whole.blocks(block_chunks=block_chunks or BLOCK_CHUNKS):
        calls = range(block.first, block.first + block.offsets.size - 1)
        partial = prompts[calls.start : calls.stop] % chunk_tokens > 0
        offsets, ids = numbering.ids(block, partial)
        lines = []
        for nth, call in enumerate(calls):
            lines.append(
                encoder.encode(
                    {
                        "timestamp": int(starts[call] - starts[0]) // 1000,
                        "input_length": int(prompts[call]),
                        "output_length": int(outputs[call]),
                        "hash_ids": ids[offsets[nth] : offsets[nth + 1]].tolist(),
                        **extra,
                    }
                )
            )
            lines.append(b"\n")
        file.write(b"".join(lines))
