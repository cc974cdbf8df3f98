"""From what the user named to the logs of each source, foreign traces and traces of our own."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from agentkv_trace.errors import InputError
from agentkv_trace.ingest.leftover import is_foreign_database, leftover
from agentkv_trace.ingest.reading import chunks
from agentkv_trace.ingest.registry import SOURCES, Source
from agentkv_trace.notes import Notes
from agentkv_trace.trace.interchange.registry import FORMATS, Format, recognise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Kind = TypeVar("Kind", Source, Format)

_PARQUET = b"PAR1"


@dataclass(slots=True)
class Found:
    """Files by what reads them, each once."""

    logs: dict[Source, list[Path]] = field(default_factory=dict)
    foreign: dict[Format, list[Path]] = field(default_factory=dict)
    traces: list[Path] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)
    """What was named and cannot be used, with the reason."""
    unknown: list[str] = field(default_factory=list)
    """Files inside named folders that were left out: logs that we do not know, with what they
    begin with, and logs beside agents' own that hold the same calls."""
    seen: set[Path] = field(default_factory=set)

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
                _add(found, found.logs, source, source.paths.find(root))
    return found


def named_logs(names: Iterable[str]) -> Found:
    """Return what is behind files, folders, globs and `format:path`.

    A name behind which there is nothing that we read is kept in `unusable`. Raises InputError
    where all are such.
    """
    found = Found()
    for name in names:
        wanted, rest = _split(name)
        if not rest:
            raise InputError("an empty name; name a log file or a folder of logs")
        paths = [Path(match) for match in sorted(glob(rest, recursive=True))]  # noqa: PTH207
        if not has_magic(rest) or Path(rest).exists():
            paths = [Path(rest)]
        if not paths:
            found.unusable.append(f"{rest}: no file matches; name a log file or a folder of logs")
        for path in paths:
            try:
                if path.is_dir():
                    _add_folder(found, path, wanted)
                else:
                    _add_file(found, path, wanted)
            except InputError as error:
                found.unusable.append(str(error))
            except OSError as error:
                found.unusable.append(f"{path}: cannot be read ({error.strerror or error})")
    if found.unusable and not found.paths():
        raise InputError("; ".join(found.unusable[:3]))
    return found


def _split(name: str) -> tuple[Source | Format | None, str]:
    prefix, colon, rest = name.partition(":")
    if colon:
        for known in (*SOURCES, *FORMATS):
            if prefix == known.name:
                return known, rest
    return None, name


def _add_folder(found: Found, folder: Path, wanted: Source | Format | None) -> None:
    if not os.access(folder, os.R_OK | os.X_OK):
        raise InputError(f"{folder}: this folder cannot be read; check its permissions")
    if isinstance(wanted, Format):
        files = sorted(path for path in folder.rglob("*.json*") if path.is_file())
        _add(found, found.foreign, wanted, files)
        if files:
            return
    sources = SOURCES if wanted is None else (wanted,)
    any_found = False
    for source in sources:
        if isinstance(source, Source) and not (source.generic and any_found):
            logs = source.paths.find(folder)
            any_found |= bool(logs)
            _add(found, found.logs, source, logs)
    if wanted is None:
        any_found |= _add_leftover(found, folder, generic=not any_found)
    if not any_found:
        known = ", ".join(source.title for source in sources)
        raise InputError(
            f"{folder}: no logs below this folder (looked for: {known}); "
            f"another tool's traces need their format, such as {FORMATS[0].name}:{folder}"
        )


def _add_leftover(found: Found, folder: Path, *, generic: bool) -> bool:
    """Add logs under other names than their agents give them; note what is none, by its content."""
    any_found = False
    for path in leftover(folder, found.paths()):
        try:
            start = _head(path)
        except (InputError, OSError):
            continue
        if start.startswith(_PARQUET):
            continue
        source = next((each for each in SOURCES if each.paths.looks_like(path, start)), None)
        if source is None or is_foreign_database(path, start):
            found.unknown.append(f"{path}: no log that we know (it begins with {_shape(start)})")
        elif generic or not source.generic:
            any_found = True
            _add(found, found.logs, source, [path])
        else:
            found.unknown.append(
                f"{path}: {source.title} beside agents' own; name {source.name}:{path} to read it"
            )
    return any_found


def _add_file(found: Found, path: Path, wanted: Source | Format | None) -> None:
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is no regular file; pipe it in and name it -")
    start = _head(path)
    if isinstance(wanted, Source):
        _add(found, found.logs, wanted, [path])
        return
    if isinstance(wanted, Format):
        _add(found, found.foreign, wanted, [path])
        return
    if start.startswith(_PARQUET):
        found.traces.extend(_unseen(found, [path]))
        return
    for source in SOURCES:
        if source.paths.looks_like(path, start):
            _add(found, found.logs, source, [path])
            return
    try:
        foreign = recognise(start)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if foreign is not None:
        _add(found, found.foreign, foreign, [path])
        return
    if not start:
        what = "nothing in it can be decompressed" if path.stat().st_size else "empty file"
        raise InputError(f"{path}: {what}; name a log file or a folder of logs")
    raise InputError(
        f"{path}: not a log that we know (it begins with {_shape(start)}); "
        f"force a format with {SOURCES[0].name}:{path}"
    )


def _add(found: Found, group: dict[Kind, list[Path]], kind: Kind, paths: Iterable[Path]) -> None:
    fresh = list(_unseen(found, paths))
    if fresh:
        group.setdefault(kind, []).extend(fresh)


def _unseen(found: Found, paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        whole = path.resolve()
        if whole not in found.seen:
            found.seen.add(whole)
            yield path


def _head(path: Path) -> bytes:
    """Return the first bytes of a file's content, decompressed."""
    try:
        return next(chunks(path, Notes()), b"")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None


def _shape(start: bytes) -> str:
    """Describe the first bytes of a file without showing its text."""
    if not start:
        return "nothing"
    if start.startswith((b"{", b"[")):
        return "JSON of another shape"
    if b"\0" in start:
        return "NUL or binary bytes: " + start[:8].hex(" ")
    return "text that is not JSON"
