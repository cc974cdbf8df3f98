"""What `replay` says: one frozen result, from which every format is rendered.

The JSON output has exactly these fields (`schemas/replay.schema.json`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SCHEMA = "agentkv-trace/replay/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFacts:
    """The trace behind a replay."""

    calls: int
    sessions: int
    families: int
    prompt_tokens: int
    chunk_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOnset:
    """From how many agents on one GPU with one host size thrashes."""

    gpu: str
    host_bytes: int
    agents: int | None
    max_agents: int
    computed_tokens: int
    compulsory_tokens: int
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCap:
    """How many sessions at a time serve the load fastest on one GPU with one host size."""

    gpu: str
    host_bytes: int
    agents: int
    makespan_s: float
    without_s: float
    makespans: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """All replays of one command.

    runs: one flat row each (`replay.sweep.rows`); series: samples over time of each run, empty
    unless asked for.
    """

    trace: ReplayFacts
    model: str
    options: dict[str, Any]
    timeline: dict[str, Any]
    runs: tuple[dict[str, Any], ...]
    series: tuple[dict[str, list[float]], ...] = ()
    onsets: tuple[ReplayOnset, ...] = ()
    caps: tuple[ReplayCap, ...] = ()
    notes: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    schema: str = SCHEMA
