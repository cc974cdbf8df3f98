"""OpenHands logs to calls: events, completions or both, and none counted twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentkv_trace.ingest import reading
from agentkv_trace.ingest.codex.records import Record, table, text
from agentkv_trace.ingest.openhands import completions, files, load, paths, v0, v1
from agentkv_trace.ingest.openhands.draft import SOURCE, Draft
from agentkv_trace.ingest.openhands.link import Linker
from agentkv_trace.ingest.openhands.stats import Stats
from agentkv_trace.ingest.requests.messages import word_digest
from agentkv_trace.ingest.requests.prompts import Prompts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from agentkv_trace.notes import Notes
    from agentkv_trace.trace.call import LoggedCall

    OnBytes = Callable[[int], None] | None

_HEAD = 1 << 16


def read(files: Sequence[Path], notes: Notes, on_bytes: OnBytes = None) -> Iterator[LoggedCall]:
    """Yield the calls of OpenHands' logs, session by session.

    `files` are what `paths.find` returns, or single files of those kinds. Completions come
    first: where a conversation's events are given too, they are the prompts of its calls. A file
    that cannot be read is skipped and counted, and never loses the others. Raises InputError in
    strict mode.
    """
    reader = _Reader(notes, on_bytes)
    sorted_files = [(reader.kind_of(path), path) for path in dict.fromkeys(files)]
    for kind, path in sorted_files:
        if kind == "completion":
            reader.completions(path)
    events = [(kind, path) for kind, path in sorted_files if kind not in ("completion", None)]
    for kind, path in sorted(events, key=lambda each: each[1].parts):
        notes.count("files")
        try:
            reader.events(kind or "", path)
        except OSError:
            notes.skip("unreadable file", str(path))
    yield from reader.linker.calls()


@dataclass(slots=True)
class _Reader:
    notes: Notes
    on_bytes: OnBytes
    prompts: Prompts = field(default_factory=Prompts)
    linker: Linker = field(init=False)
    _tasks: dict[str, dict[int, str | None]] = field(default_factory=dict)
    _folders: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.linker = Linker(self.prompts, self.notes)

    def kind_of(self, path: Path) -> str | None:
        """Return what a path is; None, and a count, where it is none of ours."""
        if path.is_dir():
            return "completion"
        try:
            with path.open("rb") as file:
                head = file.read(_HEAD)
        except OSError:
            self.notes.skip("unreadable file", str(path))
            return None
        if path.name == paths.STATE:
            return "state"
        kind = paths.kind_of(path, head)
        if kind is None and path.parent.name == "events":
            # A damaged first event still shows where the others are.
            names = ((paths.EVENT, "event"), (paths.OLD_EVENT, "old event"))
            kind = next((kind for name, kind in names if name.match(path.name)), None)
        if kind is None and completions.NAME.match(path.name):
            kind = "completion"
        if kind is None:
            self.notes.skip("no log of OpenHands", str(path))
        return kind

    def completions(self, path: Path) -> None:
        """Take the completions in a folder, or one."""
        for each in completions.files_in(path) if path.is_dir() else [path]:
            self.notes.count("files")
            try:
                draft = completions.read(each, self.prompts, self.notes, self.on_bytes)
            except OSError:
                self.notes.skip("unreadable file", str(each))
                continue
            if draft is not None:
                self.linker.completion(draft)

    def events(self, kind: str, path: Path) -> None:
        """Take a conversation, an evaluation or a trajectory."""
        if kind in ("state", "event"):
            folder = path.parent if path.name == paths.STATE else path.parent.parent
            if folder not in self._folders:
                self._folders.add(folder)
                self._conversation(load.conversation(path, self.notes, self.on_bytes))
        elif kind == "old event":
            if path.parent not in self._folders:
                self._folders.add(path.parent)
                name, events = load.old_events(path, self.notes, self.on_bytes)
                self._trajectory(name, events)
        elif kind == "trajectory":
            name, events = load.trajectory(path, self.notes, self.on_bytes)
            self._any(name, events, {}, {})
        else:
            for number, record in reading.objects(path, self.notes, on_bytes=self.on_bytes):
                self._evaluation(record, path, number)

    def _evaluation(self, record: Record, path: Path, number: int) -> None:
        history = record.get("history")
        events = [table(each) for each in files.flat(history)] if isinstance(history, list) else []
        if not any("timestamp" in event or "source" in event for event in events):
            self.notes.skip("evaluation without events that tell of calls", str(path), number)
            return
        name = text(record.get("instance_id")) or load.name_of(events)
        if isinstance(record.get("attempt"), int) and record["attempt"] > 1:
            name += f"#{record['attempt']}"
        self._any(name, events, table(record.get("metrics")), table(record.get("metadata")))

    def _any(self, name: str, events: list[Record], metrics: Record, settings: Record) -> None:
        if not load.is_new(events):
            self._trajectory(name, events, metrics, settings)
            return
        stats = Stats()
        stats.add(metrics)
        state: Record = {"agent": {"llm": table(settings.get("llm_config") or settings.get("llm"))}}
        self._conversation(v1.Conversation(name, events, state, stats))

    def _trajectory(
        self,
        name: str,
        events: list[Record],
        metrics: Record | None = None,
        settings: Record | None = None,
    ) -> None:
        one = v0.trajectory_of(name, events, metrics, settings)
        self.linker.conversation(list(v0.drafts(one, self.prompts)))

    def _conversation(self, one: v1.Conversation) -> None:
        for name, data in v1.completions_in(one.events):
            draft = completions.draft_of(data, name, one.name, self.prompts, self.notes)
            if draft is not None:
                self.linker.completion(draft)
        one.ends_us = self.linker.ends_us
        words = v1.first_words(one.events)
        if one.parent is not None:
            given = self._tasks.get(one.parent, {})
            role = given.get(word_digest(words)) if words is not None else None
            one.agent = f"{SOURCE}:{role or 'subagent'}"
        self._tasks[one.name] = {word_digest(task): role for task, role in v1.tasks_of(one.events)}
        found: list[Draft] = list(v1.drafts(one, self.prompts))
        if one.events or one.state:
            self.linker.conversation(found)
        else:
            self.notes.count("conversations without events")
