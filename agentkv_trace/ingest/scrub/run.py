"""From logs to a folder of scrubbed logs."""

from __future__ import annotations

import os
import secrets
import sqlite3
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from agentkv_trace.errors import InputError
from agentkv_trace.ingest.scrub.cipher import Words
from agentkv_trace.ingest.scrub.document import Scrubber
from agentkv_trace.ingest.scrub.files import scrub_file
from agentkv_trace.ingest.scrub.names import replaced
from agentkv_trace.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentkv_trace.ingest.discover import Found
    from agentkv_trace.ingest.registry import Source
    from agentkv_trace.ingest.scrub.rules import Member, Rules


@dataclass(slots=True)
class Scrubbed:
    """What was written, and what was not."""

    files: dict[Path, Path] = field(default_factory=dict)
    """The copy of each file."""
    notes: Notes = field(default_factory=Notes)


def rules_of(source: Source) -> Rules:
    """Return what stays of a source's logs."""
    name = source.name.replace("-", "_")
    module = import_module(f"agentkv_trace.ingest.scrub.{name}")
    return cast("Rules", module.RULES)


def members_of(found: Found) -> dict[Source, list[Member]]:
    """Return all files of some logs by source, each once.

    Raises InputError for what is no agent's log: traces hold no text.
    """
    for path in (*found.traces, *(path for paths in found.foreign.values() for path in paths)):
        raise InputError(
            f"{path}: is a trace and holds no text; share it as it is, or made with ingest --salt"
        )
    members: dict[Source, list[Member]] = {}
    for source, paths in found.logs.items():
        listed = [each for path in paths for each in rules_of(source).members(path)]
        members[source] = list({each.path: each for each in listed}.values())
    return members


def scrub(
    members: dict[Source, list[Member]],
    folder: Path,
    seed: str | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Scrubbed:
    """Write scrubbed copies of files below `folder`, which exists.

    Names of files and folders are replaced too; folders above all of the logs are left out. The
    same seed gives the same replacements; without one they are random. A file that cannot be read
    is skipped and counted, and never loses the others.
    """
    key = secrets.token_bytes(64) if seed is None else blake2b(seed.encode()).digest()
    done = Scrubbed()
    if not any(members.values()):
        return done
    root = _root([each for listed in members.values() for each in listed])
    for source, listed in members.items():
        rules = rules_of(source)
        words = Words(key, rules.markers)
        scrubber = Scrubber(words, rules.kept, rules.start)
        for member in listed:
            place = member.path.absolute().relative_to(root)
            out = folder.joinpath(*(replaced(part, words) for part in place.parts))
            out.parent.mkdir(parents=True, exist_ok=True)
            try:
                written = scrub_file(member, out, scrubber, done.notes, on_bytes)
            except (OSError, sqlite3.DatabaseError) as error:
                if getattr(error, "filename", None) == str(out):
                    raise
                written = False
                done.notes.skip("unreadable file", str(member.path))
            if written:
                done.files[member.path] = out
            else:
                out.unlink(missing_ok=True)
    return done


def _root(members: list[Member]) -> Path:
    return Path(os.path.commonpath([each.anchor.absolute() for each in members]))
