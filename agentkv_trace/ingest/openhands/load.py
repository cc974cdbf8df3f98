"""From the path of a log to its events, whatever was lost, doubled or damaged."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentkv_trace.ingest.codex.records import Record, text
from agentkv_trace.ingest.openhands import files, times
from agentkv_trace.ingest.openhands.paths import CHILDREN, EVENT, OLD_EVENT, STATE
from agentkv_trace.ingest.openhands.v1 import Conversation
from agentkv_trace.ingest.requests.messages import digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agentkv_trace.notes import Notes

    OnBytes = Callable[[int], None] | None

_FILE_US = 5_000_000
"""How soon after an event's stamp its file was written, at most."""


def conversation(path: Path, notes: Notes, on_bytes: OnBytes = None) -> Conversation:
    """Return a conversation of the second generation from its `base_state.json` or an event."""
    folder = path.parent if path.name == STATE else path.parent.parent
    state: Record = {}
    if (folder / STATE).is_file():
        found = _objects(folder / STATE, notes, on_bytes)
        state = found[0] if found else {}
    numbered = _numbered(folder / "events", EVENT)
    events, places = _events(numbered, notes, on_bytes)
    parent = folder.parent.parent.name if folder.parent.name == CHILDREN else None
    one = Conversation(_hex(folder.name), events, state, parent=parent and _hex(parent))
    for at in {0, len(events) - 1} if events else ():
        local, written = times.local_us(events[at].get("timestamp")), _written_us(places[at])
        if local is not None and written is not None:
            zone = times.zone_us([(local, written)])
            if zone is not None and 0 <= written - (local - zone) <= _FILE_US:
                one.files_us.append((local, written))
    if len({times.zone_us([pair]) for pair in one.files_us}) != 1 or len(one.files_us) < 2:
        # A copied file tells when it was copied.
        one.files_us = []
    return one


def old_events(path: Path, notes: Notes, on_bytes: OnBytes = None) -> tuple[str, list[Record]]:
    """Return name and events of a conversation of the first generation, from one of its events."""
    events, _ = _events(_numbered(path.parent, OLD_EVENT), notes, on_bytes)
    return path.parent.parent.name, events


def trajectory(path: Path, notes: Notes, on_bytes: OnBytes = None) -> tuple[str, list[Record]]:
    """Return name and events of an exported trajectory; its name follows from its first events."""
    events = _objects(path, notes, on_bytes)
    return name_of(events), events


def name_of(events: list[Record]) -> str:
    """Return a name for events that carry none, the same for each copy of them."""
    stamps = [str(event.get("timestamp")) for event in events[:4]]
    return digest("\n".join(stamps)).hex()[:16]


def is_new(events: list[Record]) -> bool:
    """Tell whether events are of the second generation."""
    return any("kind" in event and "action" not in event for event in events[:3]) or any(
        text(event.get("kind")) in ("ActionEvent", "SystemPromptEvent") for event in events[:10]
    )


def _numbered(folder: Path, name: re.Pattern[str]) -> list[tuple[int, Path]]:
    found = [
        (int(match[1][:12]), path)
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (match := name.match(path.name)) and path.is_file()
    ]
    return sorted(found, key=lambda each: (each[0], each[1].name))


def _events(
    numbered: list[tuple[int, Path]], notes: Notes, on_bytes: OnBytes
) -> tuple[list[Record], list[Path]]:
    """Return events in the order of their numbers, each id once, and their files."""
    events: list[Record] = []
    places: list[Path] = []
    seen: set[object] = set()
    before = None
    for number, path in numbered:
        if before is not None and number > before + 1:
            notes.count("missing events", number - before - 1)
        if number == before:
            notes.count("events with the same number")
        before = number
        for event in _objects(path, notes, on_bytes):
            name = event.get("id")
            if not isinstance(name, str | int) or name in seen:
                notes.count("events with the same id" if name in seen else "events without an id")
                continue
            seen.add(name)
            events.append(event)
            places.append(path)
    return events, places


def _objects(path: Path, notes: Notes, on_bytes: OnBytes) -> list[Record]:
    try:
        return files.objects(path, notes, on_bytes)
    except OSError:
        notes.skip("unreadable file", str(path))
        return []


def _written_us(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns // 1000
    except OSError:
        return None


def _hex(name: str) -> str:
    plain = name.replace("-", "").lower()
    return plain if re.fullmatch(r"[0-9a-f]{32}", plain) else name
