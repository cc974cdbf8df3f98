"""Raw request logs to calls: every prompt as it was sent, sessions by id or by prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv_trace.ingest.requests.prompts import Prompts, added
from agentkv_trace.ingest.requests.reader import SOURCE, Reader, Request, records_in
from agentkv_trace.ingest.requests.sessions import Session, Sessions, path_of
from agentkv_trace.trace.call import LoggedCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from agentkv_trace.ingest.requests.usage import Usage
    from agentkv_trace.notes import Notes


def read(
    files: Sequence[Path], notes: Notes, on_bytes: Callable[[int], None] | None = None
) -> Iterator[LoggedCall]:
    """Yield the calls of request logs, session by session.

    All requests are taken in before the first call comes out, since a log is in the order in
    which requests ended and many logs spread over files; what is held of a request is the end of
    its prompt in a tree of all prompts. A file that cannot be read is skipped and counted.
    Raises InputError in strict mode.
    """
    reader = Reader(notes)
    for path in dict.fromkeys(files):
        notes.count("files")
        try:
            for number, line in records_in(path, notes, on_bytes):
                notes.count("lines")
                reader.take(line, path, number)
        except OSError:
            notes.skip("unreadable file", str(path))
    found = sorted(reader.found, key=lambda one: (one.span.start_us, one.span.end_us, one.place))
    yield from calls_of(found, reader.prompts, notes)


def calls_of(found: list[Request], prompts: Prompts, notes: Notes) -> Iterator[LoggedCall]:
    """Yield the calls of requests, given in order of time, session by session."""
    linker = _Linker()
    for request in found:
        linker.add(request)
    for name, requests in linker.sessions.items():
        notes.count("sessions")
        for number, request in enumerate(requests):
            notes.count("calls")
            yield _call(name, request, number == 0, prompts, notes)


class _Linker:
    """Puts requests into sessions, and links each with what it goes on from."""

    def __init__(self) -> None:
        self.sessions: dict[str, list[Request]] = {}
        self._loose = Sessions()
        self._named: dict[str, Sessions] = {}
        self._latest: dict[Session, Request] = {}

    def add(self, request: Request) -> None:
        """Take the next request in order of time."""
        named = request.session
        if named is not None and request.kind in _ASIDE:
            self.sessions.setdefault(named, []).append(request)
            return
        chains = self._loose if named is None else self._named.setdefault(named, Sessions())
        chain = chains.find(request.prompt) if request.fidelity is None else None
        if chain is None:
            chain = chains.begin(request.prompt, request.span.start_us, request.reply)
            earlier = self.sessions.get(named, []) if named is not None else []
            # In a session by id, a prompt that goes on from nothing is one written anew.
            request.before = next(
                (each.prompt for each in reversed(earlier) if each.kind not in _ASIDE), None
            )
        else:
            previous = self._latest[chain]
            previous.later, request.before = request.prompt, previous.prompt
            chains.go_on(chain, request.prompt, request.reply)
        self._latest[chain] = request
        self.sessions.setdefault(named or chain.name, []).append(request)


_ASIDE = ("compaction", "title")
"""Kinds of calls that no later prompt goes on from."""


def _call(name: str, request: Request, first: bool, prompts: Prompts, notes: Notes) -> LoggedCall:
    prompt, usage = request.prompt, request.usage
    kind = request.kind or "turn"
    if kind == "turn" and first and request.parent is not None:
        kind = "subagent"
    elif kind == "turn" and request.before is not None and request.fidelity is None:
        kind = "turn" if added(request.before, prompt) is not None else "fold"
    call = LoggedCall(
        session=name,
        source=SOURCE,
        agent=request.agent or SOURCE,
        prompt=prompt.node,
        path=path_of(prompt, request.later, prompts.after(prompt, request.output)).node,
        start_us=request.span.start_us,
        end_us=request.span.end_us,
        time_source=request.span.source,
        model=request.model,
        parent_session=request.parent,
        kind=kind,
        fidelity=request.fidelity or prompt.fidelity,
    )
    if usage is not None:
        fill_usage(call, usage, notes)
    return call


def fill_usage(call: LoggedCall, usage: Usage, notes: Notes) -> None:
    """Give a call its logged usage; cached tokens above the prompt's are clamped and counted."""
    if usage.cached is not None and usage.cached > usage.prompt:
        notes.count("cached tokens above the prompt's")
    call.output_tokens = usage.output
    call.logged_prompt_tokens = usage.prompt
    call.logged_cached_tokens = None if usage.cached is None else min(usage.cached, usage.prompt)
    call.usage_source = "logged"
