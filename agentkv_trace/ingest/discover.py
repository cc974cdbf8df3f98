"""From what the user named to the logs of each source."""

from __future__ import annotations

import os
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING

from agentkv_trace.errors import InputError
from agentkv_trace.ingest.reading import chunks
from agentkv_trace.ingest.registry import SOURCES, Source
from agentkv_trace.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Found = dict[Source, list[Path]]


def default_logs(env: Mapping[str, str] = os.environ) -> Found:
    """Return the logs in the agents' own folders on this machine."""
    found: Found = {}
    for source in SOURCES:
        for root in source.paths.roots(env):
            if root.is_dir():
                _add(found, source, source.paths.find(root))
    return found


def named_logs(names: Iterable[str]) -> Found:
    """Return the logs behind files, folders, globs and `format:path`.

    Raises InputError for a name behind which there is nothing that we read.
    """
    found: Found = {}
    for name in names:
        wanted, rest = _split(name)
        paths = [Path(match) for match in sorted(glob(rest, recursive=True))]  # noqa: PTH207
        if not has_magic(rest) or Path(rest).exists():
            paths = [Path(rest)]
        if not paths:
            raise InputError(f"{rest}: no file matches; name a log file or a folder of logs")
        for path in paths:
            _add_path(found, path, wanted)
    return found


def _split(name: str) -> tuple[Source | None, str]:
    prefix, colon, rest = name.partition(":")
    for source in SOURCES:
        if colon and prefix == source.name:
            return source, rest
    return None, name


def _add_path(found: Found, path: Path, wanted: Source | None) -> None:
    sources = SOURCES if wanted is None else (wanted,)
    if path.is_dir():
        logs = {source: source.paths.find(path) for source in sources}
        for source, paths in logs.items():
            _add(found, source, paths)
        if not any(logs.values()):
            known = ", ".join(source.title for source in sources)
            raise InputError(f"{path}: no logs below this folder (looked for: {known})")
        return
    start = _head(path)
    if wanted is not None:
        _add(found, wanted, [path])
        return
    for source in sources:
        if source.paths.looks_like(path, start):
            _add(found, source, [path])
            return
    if not start:
        raise InputError(f"{path}: empty file; name a log file or a folder of logs")
    raise InputError(
        f"{path}: not a log that we know (it begins with {_shape(start)}); "
        f"force a format with {SOURCES[0].name}:{path.name}"
    )


def _add(found: Found, source: Source, paths: Iterable[Path]) -> None:
    known = found.setdefault(source, [])
    seen = {path.resolve() for path in known}
    for path in paths:
        if path.resolve() not in seen:
            seen.add(path.resolve())
            known.append(path)
    if not known:
        del found[source]


def _head(path: Path) -> bytes:
    """Return the first bytes of a file's content, decompressed."""
    try:
        return next(chunks(path, Notes()), b"")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None


def _shape(start: bytes) -> str:
    """Describe the first bytes of a file without showing its text."""
    if start.startswith((b"{", b"[")):
        return "JSON of another shape"
    if b"\0" in start:
        return "NUL or binary bytes: " + start[:8].hex(" ")
    return "text that is not JSON"
