"""Where OpenHands keeps its logs, and which files and folders are such logs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from agentkv_trace.ingest.openhands.completions import NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

EVENT = re.compile(r"^event-(\d{5,})-[0-9a-fA-F-]{8,}\.json$")
"""An event of the second generation."""
OLD_EVENT = re.compile(r"^(\d+)\.json$")
STATE = "base_state.json"
CHILDREN = "subagents"

_SKIPPED = frozenset({"event_cache", "observations", "node_modules", ".git"})
_NEW_EVENT = re.compile(
    rb'^\{\s*"id":\s*"[^"]{8,64}",\s*"timestamp":\s*"[^"]+",\s*"source":\s*"\w+"'
)
_FIRST_EVENT = re.compile(rb'^\{\s*"id":\s*\d+,\s*"timestamp":\s*"[^"]+",\s*"source":\s*"\w+"')
_STATE = re.compile(rb'^\{\s*"id":\s*"[0-9a-f-]{32,36}",\s*"agent":\s*\{')
_SENT = re.compile(rb'^\{\s*"(context_window|llm_path)":|"(fncall_messages|latency_sec)":')
_EVALUATION = re.compile(rb'^\{.{0,200}"instance_id"\s*:', re.DOTALL)
_IN_EVALUATION = (b'"history"', b'"test_result"', b'"instruction"', b'"instance"')
_ARRAY = re.compile(rb"^\[\s*\[?\s*\{")


def roots(env: Mapping[str, str]) -> list[Path]:
    """Return the folders where conversations are kept, existing or not.

    OPENHANDS_CONVERSATIONS_DIR or ~/.openhands/conversations, and the sessions of the first
    generation in FILE_STORE_PATH or ~/.openhands.
    """
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    named = env.get("OPENHANDS_CONVERSATIONS_DIR", "").strip()
    store = env.get("FILE_STORE_PATH", "").strip()
    conversations = Path(named).expanduser() if named else home / ".openhands" / "conversations"
    older = Path(store).expanduser() if store else home / ".openhands"
    return list(dict.fromkeys([conversations, older / "sessions"]))


def find(folder: Path) -> list[Path]:
    """Return the logs under a folder, sorted: a path for each conversation and what else there is.

    A conversation is its `base_state.json`, or its first event where that is missing (of the
    first generation always); completions are their folder; evaluations (`output*.jsonl`) and
    exported trajectories are files. A parent comes before its sub-agents. Links that lead out
    of the folder are not followed.
    """
    inside = folder.resolve()
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        here = Path(place)
        names = [name for name in names if _is_inside(here / name, inside)]
        if STATE in names:
            found.append(here / STATE)
            continue
        new = sorted(name for name in names if EVENT.match(name))
        old = sorted((name for name in names if OLD_EVENT.match(name)), key=_number)
        if here.name == "events" and (new or old):
            if not (here.parent / STATE).is_file():
                found.append(here / (new or old)[0])
            continue
        if any(NAME.match(name) for name in names):
            found.append(here)
        found += [here / name for name in names if _is_export(here / name)]
    return sorted(found, key=lambda path: path.parts)


def _number(name: str) -> int:
    return int(name.split(".")[0])


def _is_inside(path: Path, folder: Path) -> bool:
    return not path.is_symlink() or path.resolve().is_relative_to(folder)


def _is_export(path: Path) -> bool:
    if path.suffix not in (".json", ".jsonl") or NAME.match(path.name):
        return False
    try:
        with path.open("rb") as file:
            head = file.read(1 << 18)
    except OSError:
        return False
    return kind_of(path, head) in ("evaluation", "trajectory")


def kind_of(path: Path, head: bytes) -> str | None:
    """Return what a file is, by its first bytes: None where it is no log of OpenHands.

    `state`, `event`, `old event`, `completion`, `evaluation` or `trajectory`. The name decides
    only where a file begins like any request.
    """
    head = head.lstrip(b"\xef\xbb\xbf\0 \t\r\n")
    if _STATE.match(head) and b'"llm"' in head:
        return "state"
    if _FIRST_EVENT.match(head):
        return "old event"
    if _NEW_EVENT.match(head):
        return "event"
    if _SENT.search(head) or (head.startswith(b'{"messages"') and NAME.match(path.name)):
        return "completion"
    if _EVALUATION.match(head) and any(word in head for word in _IN_EVALUATION):
        return "evaluation"
    if _ARRAY.match(head) and b'"source"' in head and b'"timestamp"' in head:
        words = (b'"action"', b'"observation"', b'"kind"', b'"llm_message"')
        return "trajectory" if any(word in head for word in words) else None
    return None


def looks_like(path: Path, head: bytes) -> bool:
    """Tell from the first bytes of a file whether OpenHands wrote it."""
    return kind_of(path, head) is not None
