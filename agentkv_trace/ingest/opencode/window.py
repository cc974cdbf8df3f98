"""Which messages a prompt holds, and in which order."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentkv_trace.ingest.opencode.records import Message, Version, text
from agentkv_trace.ingest.opencode.sent import sent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.ingest.opencode.chat import Moment, Sent

_SUMMARY_FIRST = (1, 14, 40)
"""From this version on, a compaction's summary goes before the messages it left, not behind."""


def arrange(messages: Sequence[Message], version: Version) -> list[Message]:
    """Return the messages from the newest completed compaction on, in the order of prompts.

    That is: the request to compact, its summary, the tail it left as it was, all later ones.
    """
    answered: dict[str, int] = {}
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if message.checkpoint:
            return list(messages[at:])
        if message.role == "user" and message.id in answered:
            request = message.part("compaction")
            if request is None:
                # Long ago a summary stood for what was before it, without a request.
                return list(messages[answered[message.id] :])
            tail = text(request.data.get("tail_start_id"))
            return _with_tail(messages, at, answered[message.id], tail, version)
        if _is_complete_summary(message):
            answered.setdefault(message.parent or "", at)
    orphan = answered.get("")
    return list(messages if orphan is None else messages[orphan:])


def _with_tail(
    messages: Sequence[Message], request: int, summary: int, tail: str | None, version: Version
) -> list[Message]:
    start = next((at for at in range(request) if messages[at].id == tail), request)
    if start == request:
        return list(messages[request:])
    if version < _SUMMARY_FIRST:
        return list(messages[start:])
    return [
        *messages[request : summary + 1],
        *messages[start:request],
        *messages[summary + 1 :],
    ]


def _is_complete_summary(message: Message) -> bool:
    return (
        message.role == "assistant"
        and message.is_summary
        and bool(message.data.get("finish"))
        and message.error is None
    )


@dataclass(slots=True)
class _State:
    """What the last prompt was made from; while nothing else changes, it only grows."""

    upto: int = 0
    removed: int = 0
    cleared: int = 0
    model: tuple[str, str] = ("", "")
    plain: bool = False
    sent: list[Sent] = field(default_factory=list)


class Prompts:
    """The chat messages of one prompt after another; each costs only what it adds."""

    def __init__(self, messages: list[Message], version: Version) -> None:
        self._messages = messages
        self._version = version
        self._removals = sorted(m.removed_ms for m in messages if m.removed_ms is not None)
        self._clearings = sorted(
            ms for m in messages for part in m.parts if (ms := part.cleared_ms) is not None
        )
        self._state = _State()

    def before(self, index: int, moment: Moment, reminded: frozenset[str]) -> list[Sent]:
        """Return what a call sends whose answer is the message at `index`.

        `reminded` are ids of user messages that came while the model worked.
        """
        state = self._state
        removed = bisect_right(self._removals, moment.at_ms)
        cleared = bisect_right(self._clearings, moment.at_ms)
        fresh = self._messages[state.upto : index]
        grows = (
            state.plain
            and (removed, cleared, moment.model) == (state.removed, state.cleared, state.model)
            and not reminded
            and not any(m.checkpoint or m.is_summary for m in fresh)
        )
        if grows:
            added = [m for m in fresh if _is_there(m, moment.at_ms)]
        else:
            state.sent = []
            alive = [m for m in self._messages[:index] if _is_there(m, moment.at_ms)]
            added = arrange(alive, self._version)
        for message in added:
            state.sent += sent(message, moment, message.id in reminded)
        state.upto, state.removed, state.cleared = index, removed, cleared
        state.model, state.plain = moment.model, not reminded
        return state.sent

    def to_compact(self, index: int, moment: Moment) -> list[Sent]:
        """Return the history that a compaction before 1.18 sends in full."""
        alive = [m for m in self._messages[:index] if _is_there(m, moment.at_ms)]
        kept = arrange(alive, self._version)
        request = kept[-1].part("compaction") if kept else None
        tail = text(request.data.get("tail_start_id")) if request is not None else None
        end = next((at for at, m in enumerate(kept) if m.id == tail), len(kept))
        return [one for message in kept[:end] for one in sent(message, moment)]


def _is_there(message: Message, at_ms: int) -> bool:
    return message.removed_ms is None or message.removed_ms > at_ms
