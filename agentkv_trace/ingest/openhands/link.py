"""Which call belongs to which session, and which of two records of one call counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentkv_trace.ingest.openhands.draft import SOURCE, Draft
from agentkv_trace.ingest.requests.calls import fill_usage
from agentkv_trace.ingest.requests.prompts import added
from agentkv_trace.ingest.requests.sessions import Session, Sessions, path_of, up
from agentkv_trace.trace.call import LoggedCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentkv_trace.ingest.requests.prompts import Place, Prompts
    from agentkv_trace.notes import Notes


@dataclass(slots=True)
class Linker:
    """Takes completions and conversations; gives calls, each once."""

    prompts: Prompts
    notes: Notes
    ends_us: dict[str, int] = field(default_factory=dict)
    """When responses ended, in UTC, as completions say."""
    _raw: dict[str, Draft] = field(default_factory=dict)
    _unnamed: list[Draft] = field(default_factory=list)
    _conversations: list[list[Draft]] = field(default_factory=list)

    def completion(self, draft: Draft) -> None:
        """Take a call as it was sent."""
        name = draft.response_id
        if name is None:
            self._unnamed.append(draft)
        elif name in self._raw:
            self.notes.count("deduplicated calls")
        else:
            self._raw[name] = draft
            if draft.span.source == "logged":
                self.ends_us[name] = draft.span.end_us

    def conversation(self, drafts: list[Draft]) -> None:
        """Take the calls of a conversation as its events tell them, in their order."""
        self._conversations.append(drafts)

    def calls(self) -> Iterator[LoggedCall]:
        """Yield all calls, session by session, each session's in order."""
        drafts = [draft for one in self._owned() for draft in one]
        drafts += [*self._raw.values(), *self._unnamed]
        for name, found in self._sessions(drafts).items():
            self.notes.count("sessions")
            for number, draft in enumerate(found):
                if number == 0 and draft.kind == "turn" and draft.parent is not None:
                    draft.kind = "subagent"
                self.notes.count("calls")
                later = next((one.prompt for one in found[number + 1 :] if _is_main(one)), None)
                yield self._call(name, draft, later)

    def _owned(self) -> Iterator[list[Draft]]:
        """Yield each conversation's own calls: those of a fork's origin are not the fork's."""
        owner: dict[str, int] = {}
        for number, one in enumerate(self._conversations):
            for draft in one:
                name = draft.response_id
                if name is None:
                    continue
                first = owner.setdefault(name, number)
                # A fork begins with metrics of its own.
                if first != number and draft.usage is not None and not self._has_usage(first, name):
                    owner[name] = number
        for number, one in enumerate(self._conversations):
            own: list[Draft] = []
            origin: str | None = None
            for draft in one:
                whose = owner.get(draft.response_id or "", number)
                if whose != number:
                    self.notes.count("deduplicated calls")
                    origin = self._conversations[whose][0].session
                    continue
                if origin is not None and not own and draft.session != origin:
                    draft.kind = "fork"
                if origin != draft.session:
                    draft.parent = draft.parent or origin
                own.append(self._merged(draft))
            yield own

    def _has_usage(self, number: int, name: str) -> bool:
        return any(
            draft.response_id == name and draft.usage is not None
            for draft in self._conversations[number]
        )

    def _merged(self, draft: Draft) -> Draft:
        """Return a call with its prompt, its times and at need its usage from its completion."""
        raw = self._raw.pop(draft.response_id or "", None)
        if raw is None:
            return draft
        if raw.prompt is not draft.prompt:
            draft.prompt, draft.path, draft.is_raw = raw.prompt, raw.path, True
        draft.fidelity = raw.fidelity
        draft.usage = draft.usage or raw.usage
        draft.span = raw.span if raw.span.source == "logged" else draft.span
        draft.tasks = raw.tasks
        return draft

    def _sessions(self, drafts: list[Draft]) -> dict[str, list[Draft]]:
        """Return calls by session, in order of time; those without one by what they go on from."""
        chains = Sessions()
        named: dict[str, Session] = {}
        held: dict[int, Draft] = {}
        found: dict[str, list[Draft]] = {}
        for draft in sorted(drafts, key=lambda each: each.span.start_us):
            if not _is_main(draft) and draft.session is None:
                # Whose call this was shows where its summary is sent.
                held |= dict.fromkeys(draft.reply.words, draft)
                continue
            session = chains.find(draft.prompt) if draft.session is None else None
            session = session or named.get(draft.session or "")
            if session is not None and not _is_main(draft):
                found[session.name].append(draft)
                continue
            if session is None:
                session = chains.begin(
                    draft.prompt, draft.span.start_us, draft.reply, draft.session
                )
                named[session.name] = session
            else:
                if not draft.is_linked and added(session.last, draft.prompt) is None:
                    draft.kind = "fold"
                chains.go_on(session, draft.prompt, draft.reply)
            mine = found.setdefault(session.name, [])
            if held and (fold := _summary_in(draft.prompt, held)) is not None:
                mine.append(_adopted(fold, session))
            mine.append(_adopted(draft, session))
            chains.tasks |= {word: (session.name, role) for word, role in draft.tasks}
        for draft in {id(each): each for each in held.values()}.values():
            session = chains.begin(draft.prompt, draft.span.start_us, draft.reply)
            found[session.name] = [_adopted(draft, session)]
        return found

    def _call(self, name: str, draft: Draft, later: Place | None) -> LoggedCall:
        path = draft.path
        if draft.is_raw and _is_main(draft):
            path = path_of(draft.prompt, later, draft.path)
        call = LoggedCall(
            session=name,
            source=SOURCE,
            agent=draft.agent,
            prompt=draft.prompt.node,
            path=path.node,
            start_us=draft.span.start_us,
            end_us=draft.span.end_us,
            time_source=draft.span.source,
            model=draft.model,
            parent_session=draft.parent,
            kind=draft.kind,
            fidelity=draft.fidelity,
        )
        if draft.usage is not None:
            fill_usage(call, draft.usage, self.notes)
        return call


def _is_main(draft: Draft) -> bool:
    return draft.kind != "compaction"


def _summary_in(prompt: Place, held: dict[int, Draft]) -> Draft | None:
    """Take the call whose summary a prompt holds, or None."""
    for place in up(prompt):
        for word in () if place.by_model else place.words:
            if (draft := held.get(word)) is not None:
                for each in draft.reply.words:
                    held.pop(each, None)
                return draft
    return None


def _adopted(draft: Draft, session: Session) -> Draft:
    """Return a call with what is known of its session."""
    if draft.session is None:
        draft.session, draft.parent = session.name, session.parent
        if session.parent is not None:
            draft.agent = f"{SOURCE}:{session.role or 'subagent'}"
    return draft
