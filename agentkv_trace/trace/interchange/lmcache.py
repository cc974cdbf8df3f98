"""What an LMCache server looked up (`--lookup-hash-log-dir`), JSON lines.

`chunk_hashes` are the chained hashes of the full chunks of a prompt of `seq_len` tokens; the
lower 64 bits of each serve as its id. Every request is a session of its own, outputs are not
logged, and models share nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from xxhash import xxh3_64_intdigest

from agentkv_trace.trace.interchange.calls import Calls
from agentkv_trace.trace.interchange.lines import (
    BlockTokens,
    Seconds,
    Tokens,
    decoded,
    numbered,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentkv_trace.notes import Notes
    from agentkv_trace.trace.store import Trace

_64_BITS = (1 << 64) - 1


class _Row(msgspec.Struct):
    timestamp: Seconds
    chunk_size: BlockTokens
    seq_len: Tokens
    chunk_hashes: list[str]
    request_id: str = ""
    model_name: str = ""


def looks_like(head: bytes) -> bool:
    """Tell by its first bytes whether a file is such a log."""
    line = head.lstrip(b"\xef\xbb\xbf \t\r\n").split(b"\n", 1)[0]
    return line.startswith(b"{") and b'"chunk_hashes"' in line and b'"seq_len"' in line


def read(
    files: Iterable[tuple[str, Iterable[tuple[int, bytes]]]],
    notes: Notes,
    *,
    chunk_tokens: int | None = None,
    salt: bytes | None = None,
    **options: Any,  # noqa: ARG001
) -> Trace:
    """Read all files of a rotated log into one trace.

    Raises InputError where no call is left.
    """
    decoder = msgspec.json.Decoder(_Row)
    calls = Calls("lmcache", notes)
    for place, line in numbered(files, notes):
        row = decoded(line, decoder, notes, place)
        if row is None:
            continue
        try:
            ids = [int(digest, 16) & _64_BITS for digest in row.chunk_hashes]
        except ValueError:
            notes.skip("chunk hash is no hexadecimal number", place.name, place.line)
            continue
        calls.add(
            place,
            row.request_id or f"{len(calls):09d}",
            round(row.timestamp * 1e6),
            row.seq_len,
            0,
            ids,
            scope=xxh3_64_intdigest(row.model_name.encode()),
            chunk_tokens=row.chunk_size,
            model=row.model_name,
        )
    return calls.finish(chunk_tokens=chunk_tokens, salt=salt)
