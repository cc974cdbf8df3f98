"""What a source tells of its logs to have them scrubbed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentkv_trace.ingest.scrub.document import Kept


class Form(Enum):
    """How the content of a file is laid out."""

    lines = "JSON lines"
    document = "one JSON text"
    payloads = "named payloads"
    database = "SQLite"


class Member(NamedTuple):
    """A file of a log; from `anchor` on, its place tells the reader something."""

    path: Path
    anchor: Path
    form: Form


@dataclass(frozen=True, slots=True)
class Rules:
    """What stays of a source's logs, and the files that belong to one.

    `start` is how a record begins, where one before it was cut off (None: as the first one did).
    `markers` are patterns of texts that stay wherever they stand, since a reader goes by them.
    """

    kept: Kept
    start: re.Pattern[bytes] | None
    members: Callable[[Path], Iterator[Member]]
    markers: tuple[bytes, ...] = ()
