"""A trajectory and its steps, in the forms of three generations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from agentkv_trace.ingest.codex.records import Record, table, text
from agentkv_trace.ingest.mini_swe import document

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.notes import Notes

OMITTED = "Old output omitted ({} lines)"
"""What the first generation sends in place of an old observation."""
KEPT_OBSERVATIONS = 5
"""How many of the last users' messages its default configuration sends whole."""
_SENT_KEYS = ("role", "content", "tool_calls", "thinking_blocks")


class Step(msgspec.Struct):
    """A step: what was asked in full (`query`, at first called `messages`), and the response."""

    query: Raw = Raw(b"null")
    messages: Raw = Raw(b"null")
    response: Any = None

    @property
    def asked(self) -> list[Raw]:
        """The messages as they were sent; empty where the step does not hold them."""
        return _listed(self.query) or _listed(self.messages)


@dataclass(slots=True)
class Trajectory:
    """A run, or one attempt of a run."""

    trajectory: list[Step]
    history: list[Raw]
    info: Any = None
    replay_config: Any = None

    @property
    def has_queries(self) -> bool:
        """Whether its steps hold what was sent."""
        return any(step.asked for step in self.trajectory)


@dataclass(slots=True)
class Run(Trajectory):
    """A file: of a run with several attempts, the best one is repeated beside them."""

    attempts: list[Trajectory] = field(default_factory=list)


def run_of(data: bytearray, path: Path, notes: Notes) -> Run | None:
    """Return the run in a document; of one that is cut off, its whole steps.

    What is of other types than these is taken as missing.
    """
    fields = document.decoded(data, dict[str, Raw], notes)
    if fields is not None:
        run = _run(fields)
        if not (run.attempts or run.trajectory or run.history):
            notes.skip("no trajectory", str(path))
            return None
        return run
    steps = document.whole_raws(data, "trajectory") if b'"trajectory"' in data else []
    history = document.whole_raws(data, "history") if b'"history"' in data else []
    damaged = bool(steps or history)
    notes.skip("document is cut off or damaged" if damaged else "no trajectory", str(path))
    return Run(_steps(steps), history) if damaged else None


def _run(fields: dict[str, Raw]) -> Run:
    attempts = [
        found
        for raw in _listed(fields.get("attempts"))
        if (found := document.decoded(bytes(raw), dict[str, Raw])) is not None
    ]
    return Run(*_parts(fields), [Trajectory(*_parts(attempt)) for attempt in attempts])


def _parts(fields: dict[str, Raw]) -> tuple[list[Step], list[Raw], Any, Any]:
    return (
        _steps(_listed(fields.get("trajectory"))),
        _listed(fields.get("history")),
        _value(fields.get("info")),
        _value(fields.get("replay_config")),
    )


def _steps(raws: list[Raw]) -> list[Step]:
    found = []
    for raw in raws:
        try:
            found.append(msgspec.json.decode(raw, type=Step))
        except (msgspec.DecodeError, RecursionError):
            continue
    return found


def _listed(raw: Raw | None) -> list[Raw]:
    try:
        return [] if raw is None else msgspec.json.decode(raw, type=list[Raw])
    except (msgspec.DecodeError, RecursionError):
        return []


def _value(raw: Raw | None) -> Any:
    try:
        return None if raw is None else msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def model_of(run: Trajectory) -> str | None:
    """Return the model that a run's configuration names; it is JSON, or a string of it."""
    config = run.replay_config
    if isinstance(config, str):
        config = document.decoded(config.encode(), dict)
    agent = table(table(config).get("agent"))
    model = table(agent.get("model"))
    return text(model.get("name")) or text(model.get("model_name"))


def version_of(run: Trajectory) -> str | None:
    """Return the version that wrote a run."""
    return text(table(run.info).get("swe_agent_version"))


def sent(item: Record) -> Record:
    """Return a message of a history as it is sent."""
    message = {key: item[key] for key in _SENT_KEYS if item.get(key) is not None}
    ids = item.get("tool_call_ids")
    if item.get("role") == "tool" and isinstance(ids, list) and ids:
        message["tool_call_id"] = ids[0]
    return message


def elided(history: list[Record]) -> list[Record]:
    """Return a history of the first generation as a request holds it.

    Of the users' messages the first and the last few are whole, of the others one line tells
    how many lines they had; demonstrations do not count.
    """
    observed = [
        at for at, item in enumerate(history) if item.get("role") == "user" and not _is_demo(item)
    ]
    omitted = set(observed[1 : max(1, len(observed) - KEPT_OBSERVATIONS)])
    return [
        {**item, "content": OMITTED.format(_lines(item))} if at in omitted else item
        for at, item in enumerate(history)
    ]


def _is_demo(item: Record) -> bool:
    return bool(item.get("is_demo"))


def _lines(item: Record) -> int:
    content = item.get("content")
    return len(content.splitlines()) if isinstance(content, str) else 0
