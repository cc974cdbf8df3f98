"""Claude Code's transcripts to calls: every response once, over all files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from agentkv_trace.ingest.claude import records
from agentkv_trace.ingest.claude.scan import Scan
from agentkv_trace.ingest.claude.session import Session
from agentkv_trace.ingest.codex.records import table, text
from agentkv_trace.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from agentkv_trace.ingest.claude.scan import Scanned
    from agentkv_trace.trace.call import LoggedCall


def read(
    files: Sequence[Path], notes: Notes, on_bytes: Callable[[int], None] | None = None
) -> Iterator[LoggedCall]:
    """Yield the calls of transcripts, file by file.

    A response that several files hold is a call of one of them. A file that cannot be read is
    skipped and counted, and never loses the others. `on_bytes` is told how much was read, in
    bytes on disk. Raises InputError in strict mode.
    """
    scan = Scan(files, notes)
    sessions: set[str] = set()
    for file in scan.files:
        for call in _calls(file, scan, notes, on_bytes):
            sessions.add(call.session)
            yield call
    notes.count("sessions", len(sessions))


def parts(files: Sequence[Path]) -> list[list[Path]]:
    """Split files into those that share a session, a response, or a head."""
    scan = Scan(files, Notes())
    root: dict[Path | str, Path | str] = {}

    def find(name: Path | str) -> Path | str:
        while root.setdefault(name, name) != name:
            root[name] = name = root[root[name]]
        return name

    for file in scan.files:
        for name in (*file.sessions, *file.responses):
            root[find(name)] = find(file.path)
    for epoch in scan.epochs.values():
        if epoch.donor is not None:
            root[find(epoch.first)] = find(epoch.donor.first)
    groups: dict[Path | str, list[Path]] = {}
    for path in dict.fromkeys(files):
        groups.setdefault(find(path), []).append(path)
    return list(groups.values())


def _calls(
    file: Scanned, scan: Scan, notes: Notes, on_bytes: Callable[[int], None] | None
) -> Iterator[LoggedCall]:
    session = Session(file, scan, _agent_type(file.path), notes)
    try:
        for _, line in records.lines(file.path, notes, on_bytes):
            session.feed(line)
            if session.ready:
                yield from session.ready
                session.ready.clear()
    except OSError:
        notes.skip("unreadable file", str(file.path))
    session.finish()
    yield from session.ready


def _agent_type(path: Path) -> str | None:
    """Return the type of a sub-agent from the small file beside its transcript."""
    beside = path.with_name(f"{path.name.split('.')[0]}.meta.json")
    try:
        return text(table(msgspec.json.decode(beside.read_bytes())).get("agentType"))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
