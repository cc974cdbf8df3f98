"""A trajectory and its steps, in the forms of three generations."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from agentkv_trace.ingest.codex.records import Record, table, text
from agentkv_trace.ingest.mini_swe import document

OMITTED = "Old output omitted ({} lines)"
"""What the first generation sends in place of an old observation."""
KEPT_OBSERVATIONS = 5
"""How many of the last users' messages its default configuration sends whole."""
_SENT_KEYS = ("role", "content", "tool_calls", "thinking_blocks")


class Step(msgspec.Struct):
    """A step: what was asked in full (`query`, at first called `messages`), and the response."""

    query: list[Raw] | None = None
    messages: list[Raw] | None = None
    response: Any = None

    @property
    def asked(self) -> list[Raw] | None:
        """The messages as they were sent; None where the step does not hold them."""
        return self.query or self.messages or None


class Trajectory(msgspec.Struct):
    """A run, or one attempt of a run."""

    trajectory: list[Step] = msgspec.field(default_factory=list)
    history: list[Any] = msgspec.field(default_factory=list)
    info: Any = None
    replay_config: Any = None

    @property
    def has_queries(self) -> bool:
        """Whether its steps hold what was sent."""
        return any(step.asked for step in self.trajectory)


class Run(Trajectory):
    """A file: of a run with several attempts, the best one is repeated beside them."""

    attempts: list[Trajectory] | None = None


def run_of(data: bytes) -> tuple[Run | None, bool]:
    """Return the run in a document, and whether it is whole."""
    found = document.decoded(data, Run)
    if found is not None:
        return found, True
    steps = document.whole_items(data, "trajectory") if b'"trajectory"' in data else []
    listed = document.whole_items(data, "history") if b'"history"' in data else []
    kept = [_step(step) for step in steps if isinstance(step, dict)]
    return (Run(trajectory=kept, history=listed) if kept or listed else None), False


def _step(value: Record) -> Step:
    return msgspec.json.decode(
        msgspec.json.encode(
            {
                key: each
                for key, each in value.items()
                if key == "response" or (key in ("query", "messages") and isinstance(each, list))
            }
        ),
        type=Step,
    )


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
