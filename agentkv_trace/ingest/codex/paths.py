"""Where Codex keeps its logs, and which files of a folder are such logs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ROLLOUT = re.compile(r"^rollout-.+\.jsonl(\.zst)?$")
_TYPES = (
    b"session_meta|response_item|event_msg|turn_context|compacted|world_state"
    b"|token_usage_record|inter_agent_communication"
)
_ENVELOPE = re.compile(
    rb'\{"timestamp":"[^"]{10,40}",(?:"ordinal":\d+,)?"type":"(?:' + _TYPES + rb')"'
)
_ENOUGH = 1 << 16
_FIRST_BARE = re.compile(
    rb'\s*\{"id":"[0-9a-f-]{36}","timestamp":"[^"]{10,40}","instructions":|\{"record_type":"state"\}'
)


def roots(env: Mapping[str, str]) -> list[Path]:
    """Return the folders where logs are looked for, by CODEX_HOME (a list with commas) or ~/.codex.

    A folder for trace bundles (CODEX_ROLLOUT_TRACE_ROOT) comes after them.
    """
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    names = [part.strip() for part in env.get("CODEX_HOME", "").split(",")]
    found = [Path(name).expanduser() for name in names if name] or [home / ".codex"]
    if bundles := env.get("CODEX_ROLLOUT_TRACE_ROOT", "").strip():
        found.append(Path(bundles).expanduser())
    return list(dict.fromkeys(found))


def find(folder: Path) -> list[Path]:
    """Return rollouts and manifests of trace bundles under a folder, sorted by name.

    Of one rollout's copies the active one goes before the archived, the plain one before the
    compressed. Links that lead out of the folder are not followed.
    """
    best: dict[str, Path] = {}
    bundles: list[Path] = []
    for path in _walk(folder):
        if path.name == "manifest.json":
            bundles.append(path)
            continue
        name = path.name.removesuffix(".zst")
        if name not in best or _rank(path) < _rank(best[name]):
            best[name] = path
    return [best[name] for name in sorted(best)] + sorted(bundles)


def _walk(folder: Path) -> Iterator[Path]:
    inside = folder.resolve()
    for place, folders, names in os.walk(folder):
        folders.sort()
        here = Path(place)
        for name in names:
            is_manifest = name == "manifest.json" and here.name.startswith("trace-")
            if not is_manifest and not _ROLLOUT.match(name):
                continue
            path = here / name
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                continue
            if path.is_file():
                yield path


def _rank(path: Path) -> tuple[bool, bool, str]:
    return "archived_sessions" in path.parts, path.suffix == ".zst", str(path)


def looks_like(path: Path, head: bytes) -> bool:
    """Tell from the first bytes of a file whether it is a rollout or a bundle's manifest."""
    if path.name == "manifest.json" and b'"raw_event_log"' in head and b'"trace_id"' in head:
        return True
    if _ENVELOPE.search(head) or _FIRST_BARE.search(head):
        return True
    return any(_is_record(line) for line in head.split(b"\n")[:20])


def _is_record(line: bytes) -> bool:
    """Tell whether a whole line is a record, whatever the order of its keys."""
    try:
        record = msgspec.json.decode(line.strip(b"\0\r \xef\xbb\xbf"))
    except (msgspec.DecodeError, RecursionError):
        return False
    if not isinstance(record, dict):
        return False
    kind = record.get("type")
    if isinstance(record.get("payload"), dict):
        return "timestamp" in record and kind in _TYPES.decode().split("|")
    if record.get("record_type") == "state" or {"id", "timestamp", "instructions"} <= set(record):
        return True
    return kind in ("function_call", "function_call_output") and "call_id" in record
