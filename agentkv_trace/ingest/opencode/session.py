"""The calls of one session, from its messages in their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from agentkv_trace.ingest.opencode.chat import Block, Moment, Sent
from agentkv_trace.ingest.opencode.prompts import (
    COMPACTION_HEAD_TOKENS,
    TITLE_TOKENS,
    Chain,
    Heads,
    chained,
)
from agentkv_trace.ingest.opencode.records import Message, Session, digest, table, text, version_of
from agentkv_trace.ingest.opencode.sent import ABORTED, blocks, is_skipped, sent, spoken
from agentkv_trace.ingest.opencode.times import span
from agentkv_trace.ingest.opencode.usage import Usage, usage_of
from agentkv_trace.ingest.opencode.window import Prompts
from agentkv_trace.trace.call import LoggedCall, Node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentkv_trace.notes import Notes

_FLATTENED = (1, 18)
"""From this version on, a compaction sends the history as one text, outputs cut short."""
_COMPACTION_PROMPT = ("compaction prompt", 330)
"""What a compaction before that asks for, behind the history."""
_BYTES_PER_TOKEN = 4


@dataclass(slots=True)
class _Step:
    """A step of an assistant message that the model answered."""

    message: Message
    index: int
    at: int
    block: Block
    usage: Usage | None
    retried: bool


class Calls:
    """Makes the calls of one session; `copied` are the messages that came from another one."""

    def __init__(
        self, session: Session, copied: frozenset[str], origin: str | None, notes: Notes
    ) -> None:
        self._session = session
        self._version = version_of(session.version)
        self._messages = session.messages
        self._copied = copied
        self._origin = origin
        self._notes = notes
        self._by_id = {message.id: message for message in session.messages}
        self._heads = Heads(session)
        self._prompts = Prompts(session.messages, self._version)
        self._chain = Chain()
        self._made = 0
        self._spoken = 0
        self._cut_off = False

    def all(self) -> Iterator[LoggedCall]:
        """Yield the calls in the order in which they were made."""
        for index, message in enumerate(self._messages):
            if message.role != "assistant" or message.id in self._copied:
                continue
            steps = self._steps(message, index)
            if not steps and message.error is not None and not blocks(message):
                self._notes.count("requests without a response")
            for step in steps:
                yield from self._title(step)
                yield self._call(step)
                self._cut_off = message.completed_ms is None and not message.data.get("finish")

    def _steps(self, message: Message, index: int) -> list[_Step]:
        """Return the steps that are calls: all that ended, and one that was cut off at the end."""
        found: list[_Step] = []
        steps = blocks(message)
        retried = message.part("retry") is not None
        for at, block in enumerate(steps):
            last = at == len(steps) - 1
            if block.finish is None and not last:
                # A stream that broke off; the request was sent again.
                self._notes.count("broken streams")
                retried = True
                continue
            tokens = block.finish.data.get("tokens") if block.finish else None
            usage = usage_of(tokens, self._version)
            if usage is None and last:
                usage = usage_of(message.data.get("tokens"), self._version)
            if usage is None and block.finish is None:
                if block.start is None:
                    # A command of the user's own, or a sub-agent's start, kept as if it was asked.
                    continue
                if message.error not in (None, ABORTED):
                    self._notes.count("broken streams")
                    continue
            found.append(_Step(message, index, at, block, usage, retried))
            retried = False
        return found

    def _call(self, step: _Step) -> LoggedCall:
        message, usage = step.message, step.usage
        moment = Moment(message.created_ms, message.model, self._version)
        own = spoken(message, step.block, moment)
        asked = self._by_id.get(message.parent or "")
        rewritten = False
        if message.is_summary:
            prompt, path = self._compaction(step, own, asked)
            fidelity = "compaction_estimated"
        else:
            prompt, path, fidelity, rewritten = self._turn(step, moment, own, asked)
        start_us, end_us, exact = span(message, step.block, self._before(step), self._version)
        call = LoggedCall(
            session=self._session.id,
            source="opencode",
            agent=self._agent(message),
            prompt=prompt,
            path=path,
            start_us=start_us,
            end_us=end_us,
            time_source="logged" if exact else "estimated",
            model=message.model[1] or None,
            parent_session=self._session.parent or self._origin,
            kind=self._kind(step, rewritten),
            fidelity=fidelity,
        )
        if usage is not None:
            if usage.cached > usage.prompt:
                self._notes.count("cached tokens above the prompt's")
            call.output_tokens = usage.output
            call.logged_prompt_tokens = usage.prompt
            call.logged_cached_tokens = min(usage.cached, usage.prompt)
            call.usage_source = "logged"
        self._made += 1
        return call

    def _turn(
        self, step: _Step, moment: Moment, own: list[Sent], asked: Message | None
    ) -> tuple[Node, Node, str, bool]:
        """Return prompt, path, the prompt's fidelity, and whether it left the last path early."""
        root = self._heads.root(step.message, asked)
        before = self._prompts.before(step.index, moment, self._reminded(step.index))
        earlier, dropped = self._own_earlier(step, moment)
        content = [*before, *earlier]
        rewritten = self._chain.shared(content) < self._spoken
        prompt, fidelity = self._chain.end(root, content)
        said = [*content, *dropped, *own]
        path, _ = self._chain.end(root, said)
        self._spoken = len(content if is_skipped(step.message) else said)
        return prompt, path, fidelity, rewritten

    def _own_earlier(self, step: _Step, moment: Moment) -> tuple[list[Sent], list[Sent]]:
        """Return what earlier steps of the same message added, and what broken streams left."""
        parts = blocks(step.message)[: step.at]
        ended = max((at + 1 for at, block in enumerate(parts) if block.finish), default=0)
        dropped = [one for b in parts[ended:] for one in spoken(step.message, b, moment)]
        if not ended:
            return [], dropped
        inside = {id(part) for block in parts[:ended] for part in block.parts}
        copy = Message(
            step.message.id,
            step.message.data,
            [p for p in step.message.parts if id(p) in inside or p.type == "step-start"],
            memo=step.message.memo,
        )
        return sent(copy, moment), dropped

    def _compaction(self, step: _Step, own: list[Sent], asked: Message | None) -> tuple[Node, Node]:
        root = self._heads.root(step.message, asked, "compaction")
        message, usage = step.message, step.usage
        moment = Moment(message.created_ms, message.model, self._version, without_media=True)
        history = self._prompts.to_compact(step.index, moment)
        if self._version < _FLATTENED:
            for one in history:
                root = chained(root, one)
            prompt = root.opaque(_COMPACTION_PROMPT[0].encode(), _COMPACTION_PROMPT[1])
        else:
            size = sum(len(p) for one in history for p in one.pieces if isinstance(p, bytes))
            tokens = usage.prompt if usage is not None else size // _BYTES_PER_TOKEN
            identity = digest(f"{self._session.id}\0{message.id}".encode())
            prompt = root.opaque(b"flattened\0" + identity, tokens - COMPACTION_HEAD_TOKENS)
        path = prompt
        for one in own:
            path = chained(path, one)
        return prompt, path

    def _title(self, step: _Step) -> Iterator[LoggedCall]:
        """Yield the request for a message's title, where the log holds what it answered."""
        asked = self._by_id.get(step.message.parent or "")
        title = text(table(asked.data.get("summary")).get("title")) if asked else None
        if asked is None or not title or asked.memo.get("title"):
            return
        prompt = Node.head("opencode", self._session.version, "title")
        prompt = prompt.opaque(b"title instructions", TITLE_TOKENS)
        for one in sent(asked, Moment(asked.created_ms, ("", ""), self._version)):
            prompt = chained(prompt, one)
        asked.memo["title"] = Sent("title", [])
        at_us = step.message.created_ms * 1000
        answer = msgspec.json.encode({"role": "assistant", "content": title})
        yield LoggedCall(
            session=self._session.id,
            source="opencode",
            agent=self._agent(step.message),
            prompt=prompt,
            path=prompt.text(answer),
            start_us=at_us,
            end_us=at_us,
            time_source="estimated",
            parent_session=self._session.parent or self._origin,
            kind="title",
            fidelity="head_estimated",
        )

    def _reminded(self, index: int) -> frozenset[str]:
        """Return the user messages that came while the model worked, before the call at `index`."""
        if self._session.second_schema:
            return frozenset()
        waiting: list[Message] = []
        for at in range(index - 1, -1, -1):
            message = self._messages[at]
            if message.role == "user":
                waiting.append(message)
            elif message.role == "assistant" and message.data.get("finish"):
                done = message.completed_ms or 0
                request = self._by_id.get(message.parent or "")
                part = request.part("compaction") if request and message.is_summary else None
                goes_on = part is not None and part.data.get("auto") is True and not message.error
                return frozenset(m.id for m in waiting if goes_on or m.created_ms < done)
        return frozenset()

    def _before(self, step: _Step) -> Block | None:
        return blocks(step.message)[step.at - 1] if step.at else None

    def _agent(self, message: Message) -> str:
        name = text(message.data.get("agent")) or text(message.data.get("mode"))
        if self._session.parent is None or not name:
            return "opencode"
        return f"opencode:{name}"

    def _kind(self, step: _Step, rewritten: bool) -> str:
        first = self._made == 0
        named = {
            "compaction": step.message.is_summary,
            "retry": step.retried,
            "fork": first and bool(self._copied),
            "resume": self._cut_off,
            "subagent": first and self._session.parent is not None,
            "fold": rewritten and not first,
        }
        return next((kind for kind, holds in named.items() if holds), "turn")
