"""What a folder holds beside the logs that stand where their agents put them."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_FILES = 10_000
"""As many files are looked at; a folder with more is no folder of logs."""
_NAME = re.compile(
    r"(^[^.]+|\.(jsonl|ndjson|json|traj|log|txt|out|db|sqlite3?|parquet))(\.zst|\.gz)?$",
    re.IGNORECASE,
)
_SQLITE = b"SQLite format 3\0"
_WHOLE = ("base_state.json", "manifest.json")
"""Logs that stand for their folder."""
_TREE = ("message", "part")
"""Beside the folder of session files that refer to them."""


def leftover(folder: Path, found: Iterable[Path]) -> Iterator[Path]:
    """Yield the files under a folder that could be logs and belong to none of those found.

    What stands in a folder that is a log as a whole belongs to it. Links that lead out of the
    folder are not followed.
    """
    listed = list(found)
    files = {path.resolve() for path in listed}
    names = {_plain(path) for path in listed}
    beside = {(path.parent, path.name.partition(".")[0]) for path in listed}
    owned = {place for path in listed if (place := _place(path)) is not None}
    inside = folder.resolve()
    count = 0
    for walked, folders, here in os.walk(folder):
        top = Path(walked)
        if top.resolve() in owned:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if name not in (".git", "node_modules"))
        for name in sorted(here):
            path = top / name
            if not _NAME.search(name) or not path.is_file() or path.resolve() in files:
                continue
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                continue
            # Of two copies of one log, one was chosen; what is told of a log stands beside it.
            if _plain(path) in names or (path.parent, path.name.partition(".meta.")[0]) in beside:
                continue
            count += 1
            if count > MAX_FILES:
                return
            yield path


def is_foreign_database(path: Path, start: bytes) -> bool:
    """Tell whether a file is a database without any table of messages or requests.

    Agents' databases are told by their names; under another name only their tables tell.
    """
    if not start.startswith(_SQLITE):
        return False
    try:
        uri = f"file:{quote(str(path.absolute()))}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as database:
            tables = {row[0] for row in database.execute("select name from sqlite_master")}
    except sqlite3.Error:
        return True
    return not ({"session", "message"} <= tables or "requests" in tables)


def _plain(path: Path) -> str:
    return path.name.removesuffix(".zst").removesuffix(".gz")


def _place(path: Path) -> Path | None:
    """Return the folder that a log stands for, if it is more than a file."""
    if path.is_dir():
        return path.resolve()
    if path.name in _WHOLE:
        return path.parent.resolve()
    if path.parent.name == "events":
        return path.parent.parent.resolve()
    for above in path.resolve().parents:
        if above.name == "session" and any((above.parent / name).is_dir() for name in _TREE):
            return above.parent
    return None
