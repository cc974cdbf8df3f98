"""Which files are trajectories of SWE-agent."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentkv_trace.ingest.walk import walk

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_NAME = re.compile(r"\.(traj|json)(\.zst|\.gz)?$")
_STEPS = re.compile(rb'"trajectory"\s*:\s*\[\s*(\{\s*"|\])')
_OF_STEP = re.compile(rb'"(action|observation|thought|execution_time)"\s*:')
_FIRST = re.compile(rb'\s*\{\s*"(trajectory|environment|attempts|history|info|replay_config)"\s*:')


def roots(env: Mapping[str, str]) -> list[Path]:  # noqa: ARG001
    """Return no folder: trajectories are where a run was told to put them."""
    return []


def find(folder: Path) -> list[Path]:
    """Return the trajectories under a folder, told by their content, sorted by path."""
    return sorted(walk(folder, _NAME, looks_like))


def looks_like(path: Path, head: bytes) -> bool:  # noqa: ARG001
    """Tell from the first bytes of a file whether it is such a trajectory."""
    start = head.removeprefix(b"\xef\xbb\xbf")
    if _FIRST.match(start) is None or (steps := _STEPS.search(start)) is None:
        return False
    return _OF_STEP.search(start, steps.end() - 1) is not None or b'"history"' in start
