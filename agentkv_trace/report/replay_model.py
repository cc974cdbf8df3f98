"""What `replay` says: one frozen result, from which every format is rendered.

The JSON output has exactly these fields (`schemas/replay.schema.json`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentkv_trace.replay.onset import Point

SCHEMA = "agentkv-trace/replay/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFacts:
    """The trace behind a replay; families are sessions with their sub-agents."""

    calls: int
    sessions: int
    families: int
    prompt_tokens: int
    chunk_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOnset:
    """From how many agents on one GPU with one host size thrashes; None: not up to max_agents.

    Each number of agents in `points` ran the same `calls`, of which `rejected_calls` are larger
    than the pool and count nowhere.
    """

    gpu: str
    host_bytes: int
    agents: int | None
    max_agents: int
    factor: float
    calls: int
    rejected_calls: int
    computed_tokens: int
    compulsory_tokens: int
    points: tuple[Point, ...]
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCap:
    """How many agents may be active for the shortest makespan on one GPU with one host size."""

    gpu: str
    host_bytes: int
    agents: int
    makespan_s: float
    without_s: float
    makespans: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """All replays of one command.

    gpus: names by id. runs: one flat row each (`replay.sweep.rows`); series: samples over time of
    each run, empty unless asked for.
    """

    trace: ReplayFacts
    model: str
    gpus: dict[str, str]
    options: dict[str, Any]
    timeline: dict[str, Any]
    runs: tuple[dict[str, Any], ...]
    series: tuple[dict[str, list[float]], ...] = ()
    onsets: tuple[ReplayOnset, ...] = ()
    caps: tuple[ReplayCap, ...] = ()
    notes: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    schema: str = SCHEMA
