"""A conversation of the first generation to calls: its own, and those of its delegates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from agentkv_trace.ingest.codex.records import Record, table, text, whole
from agentkv_trace.ingest.openhands import times
from agentkv_trace.ingest.openhands.completions import with_tools
from agentkv_trace.ingest.openhands.draft import SOURCE, Draft, head, unseen
from agentkv_trace.ingest.openhands.stats import Stats, Totals
from agentkv_trace.ingest.openhands.v0_messages import (
    MAX_CHARS,
    Messages,
    assistant_of,
    kind_of,
    response_of,
    viewed,
)
from agentkv_trace.ingest.requests.messages import message_of
from agentkv_trace.ingest.requests.sessions import reply_of
from agentkv_trace.ingest.requests.times import micros
from agentkv_trace.ingest.requests.usage import Usage, usage_of
from agentkv_trace.trace.call import weakest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentkv_trace.ingest.requests.prompts import Place, Prompts

_NO_CALLS = frozenset(
    {"system", "recall", "change_agent_state", "null", "condensation_request", "pause", "resume"}
)
"""Actions of the agent that no model asked for."""


@dataclass(slots=True)
class Trajectory:
    """The events of a conversation, and what else is logged of it."""

    name: str
    events: list[Record]
    stats: Stats = field(default_factory=Stats)
    condensers: list[Record] = field(default_factory=list)
    """What the condenser got, one record a condensation."""
    max_chars: int = MAX_CHARS
    model: str | None = None


@dataclass(slots=True)
class _Agent:
    """The main agent or a delegate: its events so far."""

    name: str
    agent: str
    parent: str | None = None
    events: list[Record] = field(default_factory=list)
    calls: int = 0
    folded: bool = False
    tools: object = None


def drafts(one: Trajectory, prompts: Prompts) -> Iterator[Draft]:
    """Yield the calls of a conversation in the order of its events."""
    yield from _Reader(one, prompts).drafts()


class _Reader:
    """Walks through the events once, with the delegates that are at work on a stack."""

    def __init__(self, one: Trajectory, prompts: Prompts) -> None:
        self.one, self.prompts = one, prompts
        self.seen: set[str] = set()
        self.totals = Totals()
        self.condensed = 0
        self.delegates = 0
        self.order = 0
        self.before_us: int | None = None
        self.zone = self._zone() or 0

    def drafts(self) -> Iterator[Draft]:
        agents = [_Agent(self.one.name, SOURCE)]
        for event in self.one.events:
            kind = kind_of(event)
            self.totals.see(table(event.get("llm_metrics")).get("accumulated_token_usage"))
            if event.get("observation") == "delegate" and len(agents) > 1:
                agents.pop()
            agent = agents[-1]
            if event.get("action") == "system":
                agent.tools = table(event.get("args")).get("tools")
            if event.get("action") and event.get("source") == "agent" and kind not in _NO_CALLS:
                make = self._fold if kind == "condensation" else self._call
                draft = make(event, agent)
                if draft is not None:
                    self.order += 1
                    agent.calls += 1
                    yield draft
            agent.events.append(event)
            agent.folded |= kind == "condensation"
            if event.get("action") == "delegate":
                agents.append(self._delegate(event, agent))
            if (now := self._utc(event)) is not None:
                self.before_us = now

    def _delegate(self, event: Record, parent: _Agent) -> _Agent:
        self.delegates += 1
        number = "" if self.delegates == 1 else f"-{self.delegates}"
        kind = text(table(event.get("args")).get("agent")) or "delegate"
        return _Agent(f"{self.one.name}-delegate{number}", f"{SOURCE}:{kind}", parent.name)

    def _call(self, event: Record, agent: _Agent) -> Draft | None:
        response = response_of(event)
        name = text(response.get("id"))
        if name is not None and name in self.seen:
            return None
        self.seen.add(name or "")
        stats = self.one.stats
        stepped = self.totals.take()
        usage = stats.usage.get(name or "") or usage_of(response.get("usage")) or stepped
        model = stats.models.get(name or "") or text(response.get("model")) or self.one.model
        prompt, fidelity = self._prompt(agent, model)
        output = assistant_of(response) if response else _said(event)
        message = message_of({key: value for key, value in output.items() if key != "said"})
        kind = "fold" if agent.folded and agent.calls else "turn"
        agent.folded = False
        return Draft(
            name,
            prompt,
            self.prompts.behind(prompt, message),
            times.span(
                self._utc(event), stats.latency_us.get(name or ""), self.before_us, self.order
            ),
            model,
            usage,
            kind,
            fidelity,
            reply_of([message]),
            agent.name,
            agent.agent,
            agent.parent,
        )

    def _prompt(self, agent: _Agent, model: str | None) -> tuple[Place, str]:
        folder = None if agent.tools else agent.agent
        place = head(self.prompts, model, agent=folder or SOURCE)
        place = with_tools(self.prompts, place, agent.tools)
        rendered = False
        for said in Messages(self.one.max_chars).of(viewed(agent.events)):
            place = self.prompts.follow(place, msgspec.json.encode(said.message))
            rendered |= said.is_rendered
        return place, weakest(place.fidelity, "output_reformatted" if rendered else "exact")

    def _fold(self, event: Record, agent: _Agent) -> Draft | None:
        """Return the condenser's call, where there was one: it wrote a summary."""
        stepped = self.totals.take()
        args = table(event.get("args"))
        words = text(args.get("summary"))
        if words is None:
            return None
        told = self.one.condensers[self.condensed : self.condensed + 1]
        self.condensed += 1
        usage = _usage_of_condenser(told[0]) if told else None
        usage = usage or stepped
        model = self.one.model
        name = f"{agent.name}:{event.get('id')}"
        place = head(self.prompts, model, kind="compaction")
        prompt = unseen(self.prompts, place, name, usage.prompt if usage is not None else 0)
        reply = message_of({"role": "assistant", "content": words})
        return Draft(
            None,
            prompt,
            self.prompts.behind(prompt, reply),
            times.span(self._utc(event), None, self.before_us, self.order),
            model,
            usage,
            "compaction",
            "compaction_estimated",
            reply_of([reply]),
            agent.name,
            agent.agent,
            agent.parent,
        )

    def _utc(self, event: Record) -> int | None:
        value = event.get("timestamp")
        local = times.local_us(value)
        return local if local is None or times.has_zone(value) else local - self.zone

    def _zone(self) -> int | None:
        """Return the zone of the events' clock: responses say in UTC when they were made."""
        pairs: list[tuple[int, int]] = []
        for event in self.one.events:
            stamp, made = event.get("timestamp"), micros(response_of(event).get("created"))
            local = None if times.has_zone(stamp) else times.local_us(stamp)
            if local is not None and made is not None and "action" in event:
                pairs.append((local, made))
        return times.zone_us(pairs)


def _said(event: Record) -> Record:
    words = text(table(event.get("args")).get("content")) or ""
    return {"content": [{"type": "text", "text": words}], "role": "assistant"}


def _usage_of_condenser(record: Record) -> Usage | None:
    metrics = table(record.get("metrics"))
    return usage_of(table(record.get("response")).get("usage")) or usage_of(
        table(metrics.get("accumulated_token_usage"))
    )


def trajectory_of(
    name: str, events: list[Record], metrics: Record | None = None, settings: Record | None = None
) -> Trajectory:
    """Return a trajectory with the metrics and settings of an evaluation, if given."""
    stats = Stats()
    stats.add(metrics or {})
    told = table(metrics).get("condenser")
    llm = table(table(settings).get("llm_config"))
    return Trajectory(
        name,
        events,
        stats,
        [table(each) for each in told] if isinstance(told, list) else [],
        whole(llm.get("max_message_chars")) or MAX_CHARS,
        text(llm.get("model")),
    )
