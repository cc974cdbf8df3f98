"""What some logs hold, without making a trace of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkv_trace.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentkv_trace.ingest.discover import Found


@dataclass(frozen=True, slots=True)
class Survey:
    """One agent's logs: counts, bytes, and UTC microseconds of the first and last call.

    Times are 0 where no call has one.
    """

    source: str
    title: str
    logs: int
    size: int
    sessions: int
    calls: int
    first_us: int
    last_us: int


def survey(found: Found, on_bytes: Callable[[int], None] | None = None) -> Iterator[Survey]:
    """Read the logs of each source and say what they hold; bad ones are left out."""
    for source, paths in found.logs.items():
        sessions: set[str] = set()
        calls, first, last = 0, 0, 0
        for call in source.calls.read(paths, Notes(), on_bytes):
            sessions.add(call.session)
            first = min(first or call.start_us, call.start_us)
            last = max(last, call.end_us)
            calls += 1
        size = sum(map(_size, paths))
        yield Survey(source.name, source.title, len(paths), size, len(sessions), calls, first, last)


def _size(path: Path) -> int:
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sum(each.stat().st_size for each in files)
