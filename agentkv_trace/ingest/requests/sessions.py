"""Which requests belong together where no id says so: each goes on from an earlier one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentkv_trace.ingest.requests.prompts import Place, added

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentkv_trace.ingest.requests.messages import Message


@dataclass(slots=True)
class Reply:
    """What a response holds that tells it when it is sent again."""

    asks: frozenset[str] = frozenset()
    words: frozenset[int] = frozenset()

    def likeness(self, place: Place) -> int:
        """Return 2 where a message is this reply, 0 where it is another, 1 where it may be."""
        if self.asks:
            return 2 if self.asks.intersection(place.asks) else 0
        return 2 if self.words.intersection(place.words) else 1


def reply_of(messages: Iterable[Message]) -> Reply:
    """Return what tells a response, given as the messages it becomes in a prompt."""
    listed = list(messages)
    return Reply(
        frozenset(ask for message in listed for ask in message.asks),
        frozenset(word for message in listed for word in message.words),
    )


@dataclass(slots=True, eq=False)
class Session:
    """A conversation: its name, and where its last prompt ended."""

    name: str
    last: Place
    reply: Reply
    parent: str | None = None
    role: str | None = None
    """The type of sub-agent that its task was given to."""


@dataclass(slots=True)
class Sessions:
    """Finds the session of each request; take requests in the order in which they were sent.

    A request belongs to the session whose last prompt and reply it goes on from. Where its
    prompt was rewritten, it belongs to the session that made a tool call which it still holds.
    Else it opens a session.
    """

    tasks: dict[int, tuple[str, str | None]] = field(default_factory=dict)
    """Who gave a task to a sub-agent of which type, by the digest of the task."""
    _ends: dict[Place, list[Session]] = field(default_factory=dict)
    _made: dict[str, Session] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)

    def find(self, prompt: Place) -> Session | None:
        """Return the session that a prompt goes on from, or None."""
        after: Place | None = None
        place: Place | None = prompt
        while place is not None:
            if after is not None and (open_here := self._ends.get(place)):
                likeness = [one.reply.likeness(after) for one in open_here]
                if max(likeness):
                    return open_here[likeness.index(max(likeness))]
            after, place = place, place.parent
        return self._rewritten(prompt)

    def _rewritten(self, prompt: Place) -> Session | None:
        for place in up(prompt):
            for ask in place.asks:
                if (session := self._made.get(ask)) is not None:
                    return session
        return None

    def begin(self, prompt: Place, start_us: int, reply: Reply, name: str | None = None) -> Session:
        """Open a session; without a name, it follows from the first prompt and its time."""
        session = Session(name or self._name(prompt, start_us), prompt, reply)
        for place in up(prompt) if self.tasks else ():
            given = None if place.by_model else _first(self.tasks.get(w) for w in place.words)
            if given is not None:
                session.parent, session.role = given
        self._note(session, prompt, reply)
        return session

    def _name(self, prompt: Place, start_us: int) -> str:
        number = prompt.seed ^ (start_us * _SPREAD)
        while (name := f"{number & _LOW:016x}") in self._names:
            number += 1
        self._names.add(name)
        return name

    def go_on(self, session: Session, prompt: Place, reply: Reply) -> None:
        """Note the next request of a session."""
        self._ends[session.last].remove(session)
        if not self._ends[session.last]:
            del self._ends[session.last]
        self._note(session, prompt, reply)

    def _note(self, session: Session, prompt: Place, reply: Reply) -> None:
        session.last, session.reply = prompt, reply
        # The latest goes first where several could be meant.
        self._ends.setdefault(prompt, []).insert(0, session)
        for ask in reply.asks:
            self._made[ask] = session


_LOW = (1 << 64) - 1
_SPREAD = 0x9E3779B97F4A7C15


def _first(found: Iterable[tuple[str, str | None] | None]) -> tuple[str, str | None] | None:
    return next((each for each in found if each is not None), None)


def up(place: Place | None) -> Iterator[Place]:
    """Yield a place and those before it, last first."""
    while place is not None:
        yield place
        place = place.parent


def path_of(prompt: Place, later: Place | None, reply: Place) -> Place:
    """Return where prompt and output end: as the later prompt resends them, else with `reply`."""
    more = added(prompt, later) if later is not None else None
    end = prompt
    for place in more or ():
        if not place.by_model:
            break
        end = place
    return reply if end is prompt else end
