"""Sessions of aiperf's `mooncake_trace`: turns that carry their whole prompt, or only what is new.

Its rows do not have to say which. A session's turns are taken as whole prompts where
`context_mode` says so or where a later turn begins with the first turn's first chunk, and else as
what is new: the prompt of such a turn is all earlier inputs and outputs, and then its own input,
in one stream of tokens that is cut into chunks anew. What an output says is not known; it is
content that no other session has.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.trace.interchange.calls import Calls

_WHOLE, _NEW = "message_array", "deltas"
"""How the values of `context_mode` begin."""


@dataclass(slots=True)
class _Session:
    calls: list[int] = field(default_factory=list)
    start_us: int = 0
    first_id: int | None = None
    whole: bool | None = None


class Conversations:
    """Collects which calls make a session, and joins the turns that carry only what is new."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._sessions: dict[str, _Session] = {}

    def last(self, session: str) -> int | None:
        """Return the start of a session's last call, or None where it has none."""
        known = self._sessions.get(session)
        return known.start_us if known else None

    def add(
        self, session: str, call: int, start_us: int, ids: Sequence[int], mode: str | None
    ) -> None:
        """Note a call of a session, in order."""
        known = self._sessions.setdefault(session, _Session())
        known.calls.append(call)
        known.start_us = max(known.start_us, start_us)
        if mode is not None and mode.startswith((_WHOLE, _NEW)):
            known.whole = mode.startswith(_WHOLE)
        elif known.whole is None and ids:
            if known.first_id is None:
                known.first_id = ids[0]
            elif ids[0] == known.first_id:
                known.whole = True

    def joined(self, chunk_tokens: int | None) -> Calls:
        """Return the calls, with whole prompts where turns carried only what is new."""
        new = [s for s in self._sessions.values() if len(s.calls) > 1 and not s.whole]
        if not new:
            return self._calls
        calls = self._calls
        calls.notes.count("sessions of new input only", len(new))
        size = calls.chunk_tokens(chunk_tokens)
        prompts: dict[int, tuple[int, array[int]]] = {}
        for number, session in enumerate(new):
            stream = _Stream(size)
            for call in session.calls:
                ids = calls.ids[calls.offsets[call] : calls.offsets[call + 1]]
                tokens = calls.prompt_tokens[call]
                if len(ids) not in (tokens // size, -(-tokens // size)):
                    continue
                for nth, chunk in enumerate(ids):
                    stream.add(chunk, min(size, tokens - nth * size))
                stream.add(("tail", number, call), tokens - min(tokens, len(ids) * size))
                prompts[call] = stream.tokens, array("Q", stream.ids)
                stream.add(("output", number, call), calls.output_tokens[call])
        _replace(calls, prompts)
        return calls


class _Stream:
    """A prompt that grows piece by piece; `ids` are those of its full chunks."""

    def __init__(self, size: int) -> None:
        self.ids = array("Q")
        self.tokens = 0
        self._size = size
        self._open: list[tuple[object, int, int]] = []
        self._room = size

    def add(self, content: object, tokens: int) -> None:
        start = 0
        self.tokens += tokens
        while start < tokens:
            taken = min(self._room, tokens - start)
            self._open.append((content, start, taken))
            start += taken
            self._room -= taken
            if not self._room:
                self.ids.append(self._id())
                self._open = []
                self._room = self._size

    def _id(self) -> int:
        content, _, taken = self._open[0]
        # A chunk that is one whole id keeps it, so that first turns share with all others.
        if taken == self._size and isinstance(content, int):
            return content
        return xxh3_64_intdigest(repr(self._open).encode())


def _replace(calls: Calls, prompts: dict[int, tuple[int, array[int]]]) -> None:
    ids, offsets = array("Q"), array("q", [0])
    for call in range(len(calls)):
        if call in prompts:
            calls.prompt_tokens[call], mine = prompts[call]
            ids.extend(mine)
        else:
            ids.extend(calls.ids[calls.offsets[call] : calls.offsets[call + 1]])
        offsets.append(len(ids))
    calls.ids, calls.offsets = ids, offsets
