"""From what the user named to the logs of each source, foreign traces and traces of our own."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from agentkv_trace.errors import InputError
from agentkv_trace.ingest.reading import chunks
from agentkv_trace.ingest.registry import SOURCES, Source
from agentkv_trace.notes import Notes
from agentkv_trace.trace.interchange.registry import FORMATS, Format, recognise

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Kind = TypeVar("Kind", Source, Format)

_PARQUET = b"PAR1"


@dataclass(slots=True)
class Found:
    """Files by what reads them, each once."""

    logs: dict[Source, list[Path]] = field(default_factory=dict)
    foreign: dict[Format, list[Path]] = field(default_factory=dict)
    traces: list[Path] = field(default_factory=list)

    def paths(self) -> list[Path]:
        """Return all files."""
        groups = [*self.logs.values(), *self.foreign.values(), self.traces]
        return [path for paths in groups for path in paths]


def default_logs(env: Mapping[str, str] = os.environ) -> Found:
    """Return the logs in the agents' own folders on this machine."""
    found = Found()
    for source in SOURCES:
        for root in source.paths.roots(env):
            if root.is_dir():
                _add(found.logs, source, source.paths.find(root))
    return found


def named_logs(names: Iterable[str]) -> Found:
    """Return what is behind files, folders, globs and `format:path`.

    Raises InputError for a name behind which there is nothing that we read.
    """
    found = Found()
    for name in names:
        wanted, rest = _split(name)
        paths = [Path(match) for match in sorted(glob(rest, recursive=True))]  # noqa: PTH207
        if not has_magic(rest) or Path(rest).exists():
            paths = [Path(rest)]
        if not paths:
            raise InputError(f"{rest}: no file matches; name a log file or a folder of logs")
        for path in paths:
            if path.is_dir():
                _add_folder(found, path, wanted)
            else:
                _add_file(found, path, wanted)
    return found


def _split(name: str) -> tuple[Source | Format | None, str]:
    prefix, colon, rest = name.partition(":")
    if colon:
        for known in (*SOURCES, *FORMATS):
            if prefix == known.name:
                return known, rest
    return None, name


def _add_folder(found: Found, folder: Path, wanted: Source | Format | None) -> None:
    if isinstance(wanted, Format):
        files = sorted(path for path in folder.rglob("*.json*") if path.is_file())
        _add(found.foreign, wanted, files)
        if files:
            return
    sources = SOURCES if wanted is None else (wanted,)
    any_found = False
    for source in sources:
        if isinstance(source, Source) and not (source.generic and any_found):
            logs = source.paths.find(folder)
            any_found |= bool(logs)
            _add(found.logs, source, logs)
    if not any_found:
        known = ", ".join(source.title for source in sources)
        raise InputError(f"{folder}: no logs below this folder (looked for: {known})")


def _add_file(found: Found, path: Path, wanted: Source | Format | None) -> None:
    start = _head(path)
    if isinstance(wanted, Source):
        _add(found.logs, wanted, [path])
        return
    if isinstance(wanted, Format):
        _add(found.foreign, wanted, [path])
        return
    if start.startswith(_PARQUET):
        found.traces.append(path)
        return
    for source in SOURCES:
        if source.paths.looks_like(path, start):
            _add(found.logs, source, [path])
            return
    try:
        foreign = recognise(start)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if foreign is not None:
        _add(found.foreign, foreign, [path])
        return
    if not start:
        raise InputError(f"{path}: empty file; name a log file or a folder of logs")
    raise InputError(
        f"{path}: not a log that we know (it begins with {_shape(start)}); "
        f"force a format with {SOURCES[0].name}:{path.name}"
    )


def _add(found: dict[Kind, list[Path]], kind: Kind, paths: Iterable[Path]) -> None:
    known = found.get(kind, [])
    seen = {path.resolve() for path in known}
    for path in paths:
        if path.resolve() not in seen:
            seen.add(path.resolve())
            known.append(path)
    if known:
        found[kind] = known


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
