"""Which files are trajectories of mini-swe-agent."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from agentkv_trace.ingest.walk import walk

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"\.(json|traj)(\.zst|\.gz)?$")
_FORMAT = re.compile(rb'"trajectory_format"\s*:\s*"mini-swe-agent')
_OF_INFO = re.compile(rb'"(mini_version|agent_type|exit_status)"\s*:')
_LIST = re.compile(rb'\s*\[\s*\{\s*"role"\s*:\s*"system"')
_CALL = re.compile(rb'"role"\s*:\s*"assistant"')
_COMMAND = re.compile(rb"```(bash|mswea_bash_command)\\n")
"""Each answer of its oldest versions holds one; their instructions do too."""


def roots(env: Mapping[str, str]) -> list[Path]:
    """Return the folders where mini-swe-agent keeps its last trajectory."""
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    if named := env.get("MSWEA_GLOBAL_CONFIG_DIR", "").strip():
        return [Path(named).expanduser()]
    config = env.get("XDG_CONFIG_HOME") or ""
    places = [Path(config) if config else home / ".config", home / "Library/Application Support"]
    return [place / "mini-swe-agent" for place in places]


def find(folder: Path) -> list[Path]:
    """Return the trajectories under a folder, told by their content, sorted by path."""
    return sorted(walk(folder, _NAME, looks_like))


def looks_like(path: Path, head: bytes) -> bool:
    """Tell from the first bytes of a file whether it is such a trajectory.

    In its oldest form that is a list of chat messages; since others write such lists too, it
    must hold the agent's commands, or its name must say that it is a trajectory.
    """
    if _FORMAT.search(head):
        return True
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"{") and b'"model_stats"' in head and b'"trajectory"' not in head:
        # Its messages may begin behind what we see.
        return _OF_INFO.search(head) is not None and b'"history"' not in head
    if ".traj" not in path.name and _COMMAND.search(head) is None:
        return False
    return _LIST.match(start) is not None and _CALL.search(head) is not None
