"""Where Claude Code keeps its transcripts, and which files of a folder are such transcripts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from agentkv_trace.ingest.claude import records
from agentkv_trace.ingest.walk import walk

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"\.jsonl(\.zst|\.gz)?$")
_LINES = 64
"""Lines of a file's beginning that are looked at; bookkeeping comes before the first message."""
_TURN = re.compile(rb'"type":\s*"(?:user|assistant|system|attachment|progress)"')


def roots(env: Mapping[str, str]) -> list[Path]:
    """Return the folders of transcripts, by CLAUDE_CONFIG_DIR (a list with commas) or the defaults.

    Those are ~/.claude and claude in XDG_CONFIG_HOME (~/.config).
    """
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    named = [part.strip() for part in env.get("CLAUDE_CONFIG_DIR", "").split(",")]
    configs = [Path(name).expanduser() for name in named if name]
    if not configs:
        config = env.get("XDG_CONFIG_HOME") or ""
        configs = [home / ".claude", (Path(config) if config else home / ".config") / "claude"]
    return [config / "projects" for config in dict.fromkeys(configs)]


def find(folder: Path) -> list[Path]:
    """Return the transcripts under a folder, sessions and sub-agents, sorted by path.

    Told by what is in them, since journals of other kinds stand beside them. Links that lead out
    of the folder are not followed.
    """
    return sorted(walk(folder, _NAME, looks_like))


def looks_like(path: Path, head: bytes) -> bool:  # noqa: ARG001
    """Tell from the first bytes of a file whether it is a transcript with messages."""
    for line in head.split(b"\n")[:_LINES]:
        if not _TURN.search(line):
            continue
        if b'"sessionId"' in line and b'"uuid"' in line and b'"parentUuid"' in line:
            return True
        if any(record.type in records.TURNS and record.uuid for record in records.parsed(line)):
            return True
        # A first message longer than what we see.
        if line.lstrip().startswith(b'{"parentUuid":'):
            return True
    return False
