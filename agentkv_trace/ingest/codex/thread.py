"""The calls of one thread, from its records in the order in which they were written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.ingest.codex.copies import Copies
from agentkv_trace.ingest.codex.heads import COMPACTION_PROMPT, Heads
from agentkv_trace.ingest.codex.history import History, chained
from agentkv_trace.ingest.codex.items import NOT_SENT, Entry, entry_of, shell_result
from agentkv_trace.ingest.codex.pending import (
    Found,
    Pending,
    continues,
    is_summary,
    path_of,
    set_usage,
    size_reasoning,
    summary_path,
)
from agentkv_trace.ingest.codex.records import (
    Meta,
    Record,
    Usage,
    Vector,
    stamp,
    table,
    text,
    usage_of,
    whole,
)
from agentkv_trace.ingest.codex.times import Clock
from agentkv_trace.ingest.codex.totals import Totals
from agentkv_trace.trace.call import LoggedCall, weakest

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentkv_trace.notes import Notes

_SILENT = frozenset({"world_state", "inter_agent_communication_metadata"})
_REFORMATTING = ((0, 43), (0, 77))
"""From the first to before the second version, shell outputs are logged as JSON, sent as text."""
MAX_TOOL_SECONDS = 1e6
_BRIDGED = (0, 58)
"""Before this version a compaction puts user messages and summary into one item."""


class Thread:
    """A state machine: `feed` it records, take calls from `ready`, `finish` it."""

    def __init__(
        self, meta: Meta, notes: Notes, vectors_of: Callable[[str, str], list[Vector]] | None = None
    ) -> None:
        self.meta = meta
        self.ready: list[Found] = []
        self.history = History()
        self.heads = Heads(meta)
        self.copies = Copies(meta, vectors_of)
        self.damaged = False
        self.totals = Totals(meta.paginated)
        self._clock = Clock(meta.version, meta.stamp_us)
        self._notes = notes
        self._pending: Pending | None = None
        self._calls = 0
        self._batches = False
        self._resumed = False
        self._settings: object = None
        self._settings_last = False

    def inherit(self, parent: Thread) -> None:
        """Begin with another thread's history, as a fork by reference does."""
        self.history.copy_from(parent.history)
        self.heads.copy_from(parent.heads)
        self.totals.vector = parent.totals.vector

    # Records

    def feed(self, record: Record) -> None:
        """Take the next record of the thread's own file."""
        kind = text(record.get("type"))
        if "payload" not in record:
            self._bare(record)
            return
        self._clock.see(stamp(record.get("timestamp")))
        if self.copies.see_ordinal(whole(record.get("ordinal"))):
            self._release()
        payload = table(record["payload"])
        settings_last, self._settings_last = self._settings_last, False
        if kind == "response_item":
            self._item(payload, table(record.get("metadata")))
        elif kind == "event_msg":
            self._event(payload, settings_last)
        elif kind == "token_usage_record":
            self._usage_record(payload)
        elif kind == "turn_context":
            self._see_turn(payload)
            self.heads.see_turn_context(payload)
        elif kind == "compacted":
            self._compacted(payload)
        elif kind == "inter_agent_communication":
            self._item({"type": "agent_message", **payload}, {})
        elif kind == "session_meta":
            self.copies.see_meta(text(payload.get("id")), self._calls)
        elif kind not in _SILENT:
            self._notes.count("unknown records")

    def finish(self) -> None:
        """Give out the last call."""
        self._release()

    def _bare(self, record: Record) -> None:
        if record.get("record_type") == "state":
            self._batches = True
            if self._pending is not None:
                self._pending.new_batch = True
        elif "type" in record:
            self._item(record, {})
        elif "id" not in record:
            self._notes.count("unknown records")

    def _event(self, payload: Record, settings_last: bool) -> None:
        kind = text(payload.get("type"))
        if kind == "token_count":
            self._token_count(payload)
        elif kind in ("task_started", "turn_started"):
            self._resumed |= settings_last and self._has_calls
            self._clock.see_input()
            self._see_turn(payload)
        elif kind == "thread_settings_applied":
            settings = payload.get("thread_settings")
            # A resumed process applies the settings it finds; a person's change alters them.
            self._settings_last = settings == self._settings
            self._settings = settings
            self.heads.see_settings(table(settings))
        elif kind == "thread_rolled_back":
            self._release()
            self.history.roll_back(whole(payload.get("num_turns")) or 0)

    @property
    def _has_calls(self) -> bool:
        return self._calls > 0 or (self._pending is not None and not self._pending.copied)

    def _see_turn(self, payload: Record) -> None:
        if self.copies.see_turn(text(payload.get("turn_id"))):
            self._release()

    # Items

    def _item(self, item: Record, metadata: Record) -> None:
        if text(item.get("type")) in NOT_SENT:
            return
        entry = entry_of(item, whole(metadata.get("history_sequence")))
        if entry is None:
            self._notes.count("unknown records")
            return
        self.heads.see_item(entry)
        if entry.by_model:
            self._model_item(entry, metadata)
        elif self.history.append(entry, keep_orphans=self.damaged):
            self._clock.see_input()
            if entry.is_output:
                self._tool_output(entry, item)
            if (pending := self._pending) is not None:
                pending.answered |= entry.is_output
                pending.interrupted |= not entry.is_output
        else:
            self._notes.count("tool outputs without a call")

    def _tool_output(self, entry: Entry, item: Record) -> None:
        logged = shell_result(item)
        if logged is None:
            return
        seconds = logged.get("duration_seconds")
        if isinstance(seconds, int | float) and 0 <= seconds <= MAX_TOOL_SECONDS:
            self._clock.see_tool(seconds)
        version = self.meta.version
        if version is not None and _REFORMATTING[0] <= version < _REFORMATTING[1]:
            entry.fidelity = "output_reformatted"
            self.history.fidelity = weakest(self.history.fidelity, entry.fidelity)

    def _model_item(self, entry: Entry, metadata: Record) -> None:
        summarises = metadata.get("compaction_output") is True
        # A compaction samples all there is, but keeps the mark of the last turn before it.
        sequence = None if summarises else whole(metadata.get("sampled_through_sequence"))
        pending = self._pending
        if pending is None or not continues(pending, sequence, self._batches):
            pending = self._open(sequence)
        pending.outputs.append(entry)
        pending.answered = pending.new_batch = False
        pending.summarises |= summarises
        self._clock.see_output()
        self.history.append(entry)

    # Usage

    def _usage_record(self, payload: Record) -> None:
        self.totals.has_records = True
        usage = usage_of(payload.get("usage"))
        if usage is None:
            return
        thread = text(payload.get("thread_id"))
        own = thread in (None, self.meta.thread)
        pending = self._with_usage(usage, first=False)
        pending.response_id = text(payload.get("response_id"))
        self._clock.see_end(logged=True)
        pending.copied = self.copies.see_record(own)

    def _token_count(self, payload: Record) -> None:
        pending = self._pending
        waiting = pending is not None and pending.wants_usage
        news = self.totals.see(payload, waiting)
        if news.repeats:
            self._clock.see_marker()
        if news.usage is None:
            return
        if pending is not None and waiting:
            pending.resumed |= news.restarted
        else:
            self._resumed |= news.restarted
        pending = self._with_usage(news.usage, first=True)
        self._clock.see_end(logged=not (pending.interrupted or pending.answered))
        if pending.copied and not self.copies.matches(self.totals.vector):
            pending.copied = False

    def _with_usage(self, usage: Usage, first: bool) -> Pending:
        pending = self._pending
        if pending is None or not pending.wants_usage:
            pending = self._open(None)
            pending.usage_first = first
        pending.usage = usage
        return pending

    # Calls

    def _open(self, sequence: int | None) -> Pending:
        last = self._pending
        cut_off = last is not None and last.cut_off and not last.copied
        self._release()
        history, heads, copied = self.history, self.heads, self.copies.active
        size = len(history) if sequence is None else history.position_of(sequence)
        size = history.answer_open_calls(size)
        pending = self._pending = Pending(
            size=size,
            # Made now, since a late answer may still change what is behind it.
            prompt=None if copied else history.node_at(size, heads.root(heads.model, "turn")),
            started=self._clock.start(),
            fidelity=weakest(history.fidelity, heads.fidelity),
            copied=copied,
            model=heads.model,
            rewritten=history.rewritten,
            resumed=self._resumed,
            retried=cut_off,
            sequence=sequence,
        )
        history.rewritten = self._resumed = False
        return pending

    def _release(self, summary: str | None = None) -> None:
        """Give out the pending call; with `summary` (may be empty) it is a compaction."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        size_reasoning(pending.outputs, pending.usage)
        ended = self._clock.end()
        if pending.copied:
            if pending.usage is not None:
                self._notes.count("deduplicated calls")
            return
        kind = "compaction" if summary is not None else self._kind(pending)
        root = self.heads.root(pending.model, kind)
        if summary is None:
            prompt = pending.prompt or self.history.node_at(pending.size, root)
            path = path_of(pending, self.history, root, prompt)
        else:
            prompt = chained(root, self.history.entries[: pending.size])
            prompt = prompt.opaque(*COMPACTION_PROMPT)
            path = summary_path(pending, prompt, summary)
        start_us, end_us, source = self._clock.settle(pending.started, ended)
        call = LoggedCall(
            session=self.meta.thread,
            source="codex",
            agent=self.meta.agent,
            prompt=prompt,
            path=path,
            start_us=start_us,
            end_us=end_us,
            time_source=source,
            model=pending.model,
            parent_session=self.meta.parent or self.meta.forked_from or self.copies.parent,
            kind=kind,
            fidelity="compaction_estimated" if summary is not None else pending.fidelity,
        )
        set_usage(call, pending.usage, self._notes)
        self._calls += 1
        self.ready.append(Found(call, pending.response_id))

    def _kind(self, pending: Pending) -> str:
        first = self._calls == 0
        forked = self.meta.forked_from or (self.copies.parent and not self.meta.child)
        named = {
            "retry": pending.retried,
            "fork": first and bool(forked),
            "resume": pending.resumed,
            "subagent": first and self.meta.child,
            "fold": pending.rewritten and not first,
        }
        return next((kind for kind, holds in named.items() if holds), "turn")

    def _compacted(self, payload: Record) -> None:
        summary = text(payload.get("message")) or ""
        pending = self._pending
        if pending is None or not is_summary(pending, summary):
            pending = self._open(None)
        self._release(summary=summary)
        replacement = payload.get("replacement_history")
        items = [table(item) for item in replacement] if isinstance(replacement, list) else []
        version = self.meta.version
        self.history.fold(items, summary, bridged=version is not None and version < _BRIDGED)
        self._clock.see_input()
