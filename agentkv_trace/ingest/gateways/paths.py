"""Which files are logs of gateways and tracers; none of them keeps them in a place of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentkv_trace.ingest.gateways.forms import form_of
from agentkv_trace.ingest.walk import walk

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_NAME = re.compile(r"\.(jsonl|ndjson|json|log|txt|out|db|sqlite3?)(\.zst|\.gz)?$")


def roots(env: Mapping[str, str]) -> list[Path]:  # noqa: ARG001
    """Return no folder: such logs are where a gateway's owner put them."""
    return []


def find(folder: Path) -> list[Path]:
    """Return the logs under a folder, told by their content, sorted by path."""
    return sorted(walk(folder, _NAME, looks_like))


def looks_like(path: Path, head: bytes) -> bool:
    """Tell from the first bytes of a file whether it is a log of a form that we know."""
    return form_of(path, head) is not None
