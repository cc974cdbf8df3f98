"""Which files are request logs; no program keeps them in a place of its own."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from agentkv_trace.ingest.requests import records

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"\.(jsonl|ndjson|json)(\.zst|\.gz)?$")
_COMPLETION = re.compile(r"-\d{9,11}\.\d+(-[0-9a-f]{4})?(-error)?\.json$")
"""What OpenHands calls its completions, which its own ingester joins with events."""
_CONVERSATION = re.compile(
    rb'"messages"\s*:\s*\[\s*\{|"input"\s*:\s*(\[\s*\{|")|"previous_response_id"\s*:\s*"'
)
_ASKED = re.compile(
    rb'"(model|request|body|tools|usage|response|prompt_tokens|startTime|t_start|t_recv)"\s*:'
)
_OTHERS = (b'"trajectory_format"', b'"info"', b'"payload"', b'"parentUuid"', b'"sessionId"')
"""In logs of agents that are no request logs."""


def roots(env: Mapping[str, str]) -> list[Path]:  # noqa: ARG001
    """Return no folder: request logs are where a proxy's owner put them."""
    return []


def find(folder: Path) -> list[Path]:
    """Return the files under a folder whose first record is a request, sorted by path.

    OpenHands' completions are left to its own ingester, links out of the folder alone.
    """
    inside = folder.resolve()
    found = []
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in names:
            path = Path(place, name)
            if not _NAME.search(name) or _COMPLETION.search(name) or not path.is_file():
                continue
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                continue
            if looks_like(path, _head(path)):
                found.append(path)
    return sorted(found)


def looks_like(path: Path, head: bytes) -> bool:  # noqa: ARG001
    """Tell from the first bytes of a file whether its first record is a request to a model."""
    line = head.lstrip(b"\xef\xbb\xbf\0 \t\r\n").split(b"\n", 1)[0]
    if not line.startswith(b"{"):
        return False
    record = records.envelope_of(line.rstrip())
    if record is not None:
        body = records.body_of(record)
        told = (bytes(record.response), record.usage, record.request, record.body, record.model)
        return body is not None and (body.model is not None or any(told))
    # A first record longer than what we see: it is judged by its keys.
    if any(word in line for word in _OTHERS):
        return False
    return _CONVERSATION.search(line) is not None and _ASKED.search(line) is not None


def _head(path: Path) -> bytes:
    from agentkv_trace.ingest.reading import chunks
    from agentkv_trace.notes import Notes

    try:
        return next(chunks(path, Notes()), b"")
    except OSError:
        return b""
