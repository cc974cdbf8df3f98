"""aiperf's `mooncake_trace` with `hash_ids`: Mooncake rows with sessions, delays and turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentkv_trace.trace.interchange import mooncake

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentkv_trace.notes import Notes
    from agentkv_trace.trace.store import Trace


def looks_like(head: bytes) -> bool:
    """Tell by its first bytes whether a file is such a trace."""
    line = head.lstrip(b"\xef\xbb\xbf \t\r\n").split(b"\n", 1)[0]
    return mooncake.looks_like(line) and (b'"session_id"' in line or b'"delay"' in line)


def read(
    files: Iterable[tuple[str, Iterable[tuple[int, bytes]]]], notes: Notes, **options: Any
) -> Trace:
    """Read all files into one trace, as `mooncake.read` does."""
    return mooncake.read(files, notes, **{**options, "source": "aiperf"})
