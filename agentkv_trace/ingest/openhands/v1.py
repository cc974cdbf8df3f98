"""A conversation of the second generation (the agent SDK) to calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentkv_trace.ingest.codex.records import Record, table, text
from agentkv_trace.ingest.openhands import times
from agentkv_trace.ingest.openhands.draft import INSTRUCTION_TOKENS, SOURCE, Draft, head, unseen
from agentkv_trace.ingest.openhands.stats import Stats, Totals, stats_of, totals_in
from agentkv_trace.ingest.openhands.v1_messages import Entry, entry_of, style_of
from agentkv_trace.ingest.openhands.v1_view import View, tools_of
from agentkv_trace.ingest.requests.messages import message_of, word_digest
from agentkv_trace.ingest.requests.sessions import Reply, reply_of
from agentkv_trace.trace.call import weakest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentkv_trace.ingest.requests.prompts import Prompts
    from agentkv_trace.ingest.requests.times import Span
    from agentkv_trace.ingest.requests.usage import Usage

_OF_AGENT = frozenset({"ActionEvent", "MessageEvent", "Condensation"})


@dataclass(slots=True)
class Conversation:
    """What is logged of a conversation; `ends_us` holds true ends by response id, if known."""

    name: str
    events: list[Record]
    state: Record = field(default_factory=dict)
    stats: Stats | None = None
    agent: str = SOURCE
    parent: str | None = None
    ends_us: dict[str, int] = field(default_factory=dict)
    files_us: list[tuple[int, int]] = field(default_factory=list)
    """Local stamps of events and when their files were written: they tell the zone as well."""


def tasks_of(events: list[Record]) -> Iterator[tuple[str, str | None]]:
    """Yield what a conversation gave to sub-agents: each task's text and the agent's type."""
    types: dict[str, str] = {}
    for event in events:
        action = table(event.get("action"))
        kind = action.get("kind")
        if kind == "TaskAction" and (task := text(action.get("prompt"))) is not None:
            yield task, text(action.get("subagent_type"))
        elif kind == "DelegateAction":
            names, given = action.get("ids"), action.get("agent_types")
            if isinstance(names, list) and isinstance(given, list):
                types |= {str(name): str(each) for name, each in zip(names, given, strict=False)}
            for name, task in table(action.get("tasks")).items():
                if isinstance(task, str):
                    yield task, types.get(name)


def first_words(events: list[Record]) -> str | None:
    """Return the text of the first message that a user, or a parent, wrote."""
    for event in events:
        entry = entry_of(event) if event.get("kind") == "MessageEvent" else None
        if entry is not None and entry.role == "user" and entry.parts:
            return text(entry.parts[0].get("text"))
    return None


def completions_in(events: list[Record]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of completions that a remote run sent as events."""
    for event in events:
        if event.get("kind") == "LLMCompletionLogEvent":
            data = text(event.get("log_data"))
            if data is not None:
                yield text(event.get("filename")) or "", data.encode()


def drafts(one: Conversation, prompts: Prompts) -> Iterator[Draft]:
    """Yield the calls of a conversation in the order of its events."""
    yield from _Reader(one, prompts).drafts()


class _Reader:
    """Walks through the events once."""

    def __init__(self, one: Conversation, prompts: Prompts) -> None:
        llm = table(table(one.state.get("agent")).get("llm"))
        self.one, self.prompts = one, prompts
        self.model = text(llm.get("model"))
        self.folder = text(table(one.state.get("workspace")).get("working_dir"))
        self.stats = one.stats or stats_of(table(one.state.get("stats")).get("usage_to_metrics"))
        self.style = style_of(llm, one.events)
        self.view = View(prompts, self.style)
        self.totals = Totals()
        self.zone = self._zone() or 0
        self.tools: list[Record] = []
        self.seen: set[str] = set()
        self.before_us: int | None = None
        self.rewritten = False

    def drafts(self) -> Iterator[Draft]:
        events = self.one.events
        for at, event in enumerate(events):
            kind = event.get("kind")
            name = text(event.get("llm_response_id"))
            if kind == "SystemPromptEvent":
                self.tools = tools_of(event) or self.tools
            elif kind == "ConversationStateUpdateEvent":
                self._snapshot(event)
            entries = len(self.view.entries)
            head_before = self.view.head
            self.view.move(event)
            self.rewritten |= self.view.head != head_before and entries > 0
            if kind in _OF_AGENT and name is not None and name not in self.seen:
                self.seen.add(name)
                yield self._draft(event, name, at)
            self.view.add(event)
            self.rewritten |= kind == "Condensation"
            if (now := self._utc(event)) is not None:
                self.before_us = now

    def _draft(self, event: Record, name: str, at: int) -> Draft:
        stats, usage = self.stats, self.stats.usage.get(name)
        stepped = self.totals.take()
        usage = usage or stepped
        end = self.one.ends_us.get(name) or stats.end_us.get(name) or self._utc(event)
        model = stats.models.get(name) or self.model
        when = times.span(end, stats.latency_us.get(name), self.before_us, len(self.seen))
        if event.get("kind") == "Condensation":
            return self._fold(event, name, model, usage, when)
        tools = self.tools
        place = head(self.prompts, model, tools=tools, agent=self.one.agent, folder=self.folder)
        prompt = self.view.prompt(place)
        output = list(_batch(self.one.events, at, name))
        path = self.view.behind(prompt, output)
        kind = "fold" if self.rewritten and len(self.seen) > 1 else "turn"
        self.rewritten = False
        asks = frozenset(each.call_id for each in output if each.call_id is not None)
        words = frozenset(word_digest(part["text"]) for part in output[0].parts if part.get("text"))
        return Draft(
            name,
            prompt,
            path,
            when,
            model,
            usage,
            kind,
            weakest(prompt.fidelity, "exact" if self.style.is_native else "output_reformatted"),
            Reply(asks, words),
            self.one.name,
            self.one.agent,
            self.one.parent,
        )

    def _fold(
        self, event: Record, name: str, model: str | None, usage: Usage | None, when: Span
    ) -> Draft:
        words = event.get("summary") if isinstance(event.get("summary"), str) else ""
        place = head(self.prompts, model, kind="compaction")
        tokens = usage.prompt - INSTRUCTION_TOKENS if usage is not None else 0
        prompt = unseen(self.prompts, place, name, tokens)
        reply = message_of({"role": "assistant", "content": words})
        return Draft(
            name,
            prompt,
            self.prompts.behind(prompt, reply),
            when,
            model,
            usage,
            "compaction",
            "compaction_estimated",
            reply_of([reply]),
            self.one.name,
            self.one.agent,
            self.one.parent,
        )

    def _snapshot(self, event: Record) -> None:
        """Take the totals of a remote run."""
        value = table(event.get("value"))
        if event.get("key") == "full_state":
            llm = table(table(value.get("agent")).get("llm"))
            self.model = self.model or text(llm.get("model"))
            value = table(value.get("stats"))
        elif event.get("key") != "stats":
            return
        self.totals.see(*totals_in(value.get("usage_to_metrics")))

    def _utc(self, event: Record) -> int | None:
        value = event.get("timestamp")
        local = times.local_us(value)
        return local if local is None or times.has_zone(value) else local - self.zone

    def _zone(self) -> int | None:
        """Return the zone of the events' clock, from stamps of the same responses in UTC."""
        ends = self.stats.end_us | self.one.ends_us
        local: dict[str, int] = {}
        for event in self.one.events:
            name, stamp = text(event.get("llm_response_id")), event.get("timestamp")
            when = None if times.has_zone(stamp) else times.local_us(stamp)
            if name is not None and when is not None:
                local.setdefault(name, when)
        zone = times.zone_us([(local[name], ends[name]) for name in local.keys() & ends.keys()])
        if zone is None:
            zone = times.zone_of_costs(sorted(local.values()), self.stats.costs_us)
        return times.zone_us(self.one.files_us) if zone is None else zone


def _batch(events: list[Record], at: int, name: str) -> Iterator[Entry]:
    """Yield the entries of a response: a message, or actions that stand behind one another."""
    for number in range(at, len(events)):
        event = events[number]
        is_action = event.get("kind") == "ActionEvent"
        if number > at and (not is_action or text(event.get("llm_response_id")) != name):
            return
        if (entry := entry_of(event)) is not None:
            yield entry
        if not is_action:
            return
