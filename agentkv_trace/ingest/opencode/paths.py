"""Where OpenCode keeps its logs, and which files of a folder are such logs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from agentkv_trace.ingest.opencode.database import MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DATABASE = re.compile(r"^opencode(-[\w.-]+)?\.db$")
_SESSION = re.compile(r"^ses_\w+\.json$")
_EXPORT = re.compile(rb'^\s*\{\s*"info"\s*:\s*\{')
_SESSION_ID = re.compile(rb'"id"\s*:\s*"ses_')
_TREE = re.compile(rb'"(projectID|directory)"\s*:')
_HEAD = 4096
_NO_LOGS = frozenset(
    {"message", "part", "session_diff", "snapshot", "log", "bin", "repos", "node_modules", ".git"}
)
"""Folders without session files: what belongs to a session is read with it."""


def roots(env: Mapping[str, str]) -> list[Path]:
    """Return the folders where logs are looked for.

    By OPENCODE_DATA_DIR (a list with commas), else XDG_DATA_HOME/opencode, else
    ~/.local/share/opencode.
    """
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    names = [part.strip() for part in env.get("OPENCODE_DATA_DIR", "").split(",")]
    found = [Path(name).expanduser() for name in names if name]
    if not found:
        data = env.get("XDG_DATA_HOME", "").strip()
        found = [(Path(data).expanduser() if data else home / ".local" / "share") / "opencode"]
    return list(dict.fromkeys(found))


def find(folder: Path) -> list[Path]:
    """Return the logs under a folder: databases, session files of the JSON tree, exports.

    Sorted by name. A session may be in several of them; reading takes it once. Links that lead
    out of the folder are not followed.
    """
    return sorted(_walk(folder))


def _walk(folder: Path) -> Iterator[Path]:
    inside = folder.resolve()
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _NO_LOGS)
        here = Path(place)
        for name in names:
            path = here / name
            if not (_DATABASE.match(name) or name.endswith(".json")):
                continue
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                continue
            if _is_log(path):
                yield path


def _is_log(path: Path) -> bool:
    if not path.is_file():
        return False
    if _DATABASE.match(path.name):
        return True
    if _SESSION.match(path.name) and _in_tree(path):
        return True
    try:
        with path.open("rb") as file:
            return looks_like(path, file.read(_HEAD))
    except OSError:
        return False


def looks_like(path: Path, head: bytes) -> bool:
    """Tell from a file's first bytes whether it is a database, a session file or an export.

    Which program wrote a database its tables tell, when it is read.
    """
    if head.startswith(MAGIC):
        return True
    head = head.lstrip(b"\xef\xbb\xbf")
    if not _SESSION_ID.search(head):
        return False
    if _EXPORT.match(head):
        return True
    return _in_tree(path) and _TREE.search(head) is not None


def _in_tree(path: Path) -> bool:
    return bool(_SESSION.match(path.name)) and "session" in path.parent.parts[-2:]
