"""The calls of one session or sub-agent, from its responses and compactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from agentkv_trace.ingest.claude.relation import relation
from agentkv_trace.ingest.codex.items import Opaque
from agentkv_trace.trace.call import LoggedCall, weakest

if TYPE_CHECKING:
    from agentkv_trace.ingest.claude.heads import Epoch
    from agentkv_trace.ingest.claude.messages import Sent, Step
    from agentkv_trace.ingest.claude.records import Usage
    from agentkv_trace.ingest.claude.tree import Region, Response
    from agentkv_trace.notes import Notes
    from agentkv_trace.trace.call import Node

INPUT_LAG_US = 19_000
"""From the newest input line to the request, at the median."""
END_LAG_US = 25_000
"""From the end of a compaction's response to the line that marks it."""
COMPACTION_PROMPT = Opaque(b"claude compaction prompt", 1290)
"""Stands for the request at the end of a compaction's prompt, which no log holds."""
BYTES_PER_TOKEN = 3.6
"""Until a session's own usage tells."""

MAX_PLACEHOLDER = 32
"""Larger outputs are never placeholders: those are what was counted when the stream began."""
MESSAGE_BYTES = 150
"""Of a message's JSON that no output token stands for."""


@dataclass(slots=True)
class Times:
    """Start and end in UTC microseconds, and how far to trust them."""

    start_us: int
    end_us: int
    source: str = "estimated"


@dataclass(slots=True)
class Pending:
    """A call that is known as far as its lines came."""

    own: bool
    """Whether this file owns it; else it is history that another file's session made."""
    session: str
    parent: str | None
    model: str | None
    kind: str
    root: Node
    step: Step
    times: Times
    response: Response | None = None
    usage: Usage | None = None
    summary: str | None = None


class Track:
    """A session's or a sub-agent's calls: `begin` or `compact`, `close`, then take from `ready`."""

    def __init__(self, agent: str, notes: Notes, ready: list[LoggedCall]) -> None:
        self.agent = agent
        self.epoch: Epoch | None = None
        self.pending: Pending | None = None
        self.last: Usage | None = None
        self.own_calls = 0
        self.copied = False
        self.compacted = False
        self.new_head = False
        self._seen = False
        self._last_us = 0
        self._bytes = self._tokens = 0
        self._notes = notes
        self._ready = ready

    @property
    def has_calls(self) -> bool:
        """Whether any call is known, copies included."""
        return self._seen

    def begin(self, pending: Pending, region: Region | None) -> None:
        """Take the next call; `region` is its prompt behind the response before it."""
        self.close(region, pending.usage)
        if not pending.own:
            self.copied = True
        elif self._seen and pending.kind == "turn" and not self._goes_on(region):
            pending.kind = "fold"
        if pending.usage is not None:
            self._relate(pending, region)
        self._seen = True
        self._notes.count("calls" if pending.own else "deduplicated calls")
        self.own_calls += pending.own
        self.pending = pending
        self._last_response = pending.response
        if pending.response is not None:
            self.compacted = self.new_head = False

    _last_response: Response | None = None

    def _goes_on(self, region: Region | None) -> bool:
        return region is None or (
            region.before is not None and region.before is self._last_response
        )

    def _relate(self, pending: Pending, region: Region | None) -> None:
        usage, before = pending.usage, self.last
        if usage is None:
            return
        if before is not None and pending.own and usage.read + before.read + before.written:
            verdict = relation(
                before,
                usage,
                compacted=self.compacted,
                new_head=self.new_head,
                blocks=0 if region is None else region.blocks,
                pause_us=pending.times.start_us - self._last_us,
            )
            self._notes.count(f"cache reads {verdict}")
        self.last, self._last_us = usage, pending.times.start_us

    def close(self, region: Region | None = None, later: Usage | None = None) -> None:
        """Give out the pending call; `region` is the next prompt where it goes on from it."""
        pending, self.pending = self.pending, None
        if pending is None:
            return
        step = pending.step
        added = 0
        if pending.response is not None:
            step = pending.response.said()
            if region is not None and region.before is pending.response and region.said is not None:
                added = _size(region.step) if region.step is not region.said else 0
                step = region.said
            else:
                later = None
        usage = pending.usage
        output = None if usage is None else usage.output
        if usage is not None and pending.response is not None:
            output = self._output(usage, later, _size(step), added)
        if not pending.own:
            return
        prompt = pending.step.end(pending.root)
        path = step.end(pending.root)
        fidelity = weakest("head_estimated", pending.step.fidelity)
        if pending.kind == "compaction":
            fidelity = "compaction_estimated"
            prompt = path = prompt.opaque(COMPACTION_PROMPT.identity, COMPACTION_PROMPT.tokens)
            if pending.summary is not None:
                words = {"role": "assistant", "content": pending.summary}
                path = prompt.text(msgspec.json.encode(words))
        call = LoggedCall(
            session=pending.session,
            source="claude",
            agent=self.agent,
            prompt=prompt,
            path=path,
            start_us=pending.times.start_us,
            end_us=pending.times.end_us,
            time_source=pending.times.source,
            model=pending.model,
            parent_session=pending.parent,
            kind=pending.kind,
            fidelity=fidelity,
            output_tokens=output,
        )
        if usage is not None:
            call.logged_prompt_tokens = usage.prompt
            call.logged_cached_tokens = usage.read
            call.usage_source = "logged"
        self._ready.append(call)

    def _output(self, usage: Usage, later: Usage | None, said: int, added: int) -> int | None:
        """Return the output's tokens; where a placeholder was logged, by the next prompt's growth.

        `said` and `added` are bytes of the next prompt: of this output, and of what follows it.
        """
        rate = self._bytes / self._tokens if self._tokens > 0 else BYTES_PER_TOKEN
        grown = None if later is None else later.prompt - usage.prompt - added / rate
        if later is not None and later.prompt > usage.prompt:
            self._bytes += said + added
            self._tokens += later.prompt - usage.prompt
        seems_small = grown is not None and grown > 10 * usage.output + 100 + added / rate / 2
        is_small = usage.output * 3 * rate < said - MESSAGE_BYTES
        if usage.output > MAX_PLACEHOLDER or not (is_small or seems_small):
            return usage.output
        self._notes.count("output sizes that are placeholders")
        if grown is None:
            return None
        return max(1, usage.output, round(max(grown, said / rate)))


def _size(step: Step) -> int:
    return sum(_bytes(sent) for sent in step.sent)


def _bytes(sent: Sent) -> int:
    return sum(len(piece) for piece in sent.pieces if isinstance(piece, bytes))
