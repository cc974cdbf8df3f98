"""The calls of a foreign trace as they are read, in flat columns, until the trace is made."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any

from agentkv_trace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from agentkv_trace.notes import Notes
    from agentkv_trace.trace.interchange.lines import Place
    from agentkv_trace.trace.store import Trace

CHUNK_SIZES = (512, 16, 32, 64, 128, 256, 1024, 2048, 4096)
"""Chunk sizes to try where a trace does not tell its own, the most common first."""


@dataclass(slots=True)
class Calls:
    """Columns with one value per call, and all chunk ids in one flat array.

    `ordered`: the calls of a session were added in their order; else time orders them.
    """

    source: str
    notes: Notes
    ordered: bool = False
    session: list[str] = field(default_factory=list)
    parent_session: list[str | None] = field(default_factory=list)
    agent: list[str] = field(default_factory=list)
    model: list[str | None] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)
    time_source: list[str] = field(default_factory=list)
    start_us: array[int] = field(default_factory=lambda: array("q"))
    end_us: array[int] = field(default_factory=lambda: array("q"))
    prompt_tokens: array[int] = field(default_factory=lambda: array("q"))
    output_tokens: array[int] = field(default_factory=lambda: array("q"))
    index: array[int] = field(default_factory=lambda: array("q"))
    scope: array[int] = field(default_factory=lambda: array("Q"))
    told_chunk_tokens: array[int] = field(default_factory=lambda: array("q"))
    ids: array[int] = field(default_factory=lambda: array("Q"))
    offsets: array[int] = field(default_factory=lambda: array("q", [0]))
    places: list[Place] = field(default_factory=list)
    _counts: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.session)

    def add(
        self,
        place: Place,
        session: str,
        start_us: int,
        prompt_tokens: int,
        output_tokens: int,
        ids: Sequence[int] | bytes,
        *,
        end_us: int | None = None,
        scope: int = 0,
        chunk_tokens: int = 0,
        parent_session: str | None = None,
        agent: str | None = None,
        model: str | None = None,
        kind: str = "turn",
        time_source: str = "logged",
    ) -> None:
        """Take one call, or count it as skipped where an id is no 64-bit number.

        `chunk_tokens` is what the call itself says (0: nothing); `ids` is a list or the bytes of
        a uint64 array. Calls of another `scope` share nothing with this one.
        """
        try:
            if isinstance(ids, bytes):
                self.ids.frombytes(ids)
            else:
                self.ids.extend(array("Q", ids))
        except OverflowError:
            self.notes.skip("chunk id does not fit 64 bits", place.name, place.line)
            return
        self.offsets.append(len(self.ids))
        self.session.append(session)
        self.parent_session.append(parent_session)
        self.agent.append(self.source if agent is None else agent)
        self.model.append(model or None)
        self.kind.append(kind)
        self.time_source.append(time_source)
        self.start_us.append(start_us)
        self.end_us.append(start_us if end_us is None else max(end_us, start_us))
        self.prompt_tokens.append(prompt_tokens)
        self.output_tokens.append(output_tokens)
        self.index.append(self._counts[session])
        self.scope.append(scope)
        self.told_chunk_tokens.append(chunk_tokens)
        self.places.append(place)
        if self.ordered:
            self._counts[session] += 1

    def chunk_tokens(self, given: int | None = None) -> int:
        """Return the chunk size: as given, as the first call that tells, or as the ids fit.

        Raises InputError where there is no call, or no usual chunk size fits half of them.
        """
        import numpy as np

        from agentkv_trace.trace.ids import fits

        if not len(self):
            raise InputError(self._nothing())
        if given is not None:
            if given < 1:
                raise InputError(f"chunk size of {given} tokens: give a number above 0")
            return given
        told = next((size for size in self.told_chunk_tokens if size), 0)
        if told:
            return told
        counts = self._id_counts()
        prompts = np.frombuffer(self.prompt_tokens, np.int64)
        good = {size: int(fits(counts, prompts, size).sum()) for size in CHUNK_SIZES}
        best = max(CHUNK_SIZES, key=lambda size: good[size])
        if 2 * good[best] < len(self):
            raise InputError(
                f"{self.places[0].name}: numbers of chunk ids fit no chunk size from "
                f"{min(CHUNK_SIZES)} to {max(CHUNK_SIZES)} tokens; give the chunk size"
            )
        return best

    def finish(self, *, chunk_tokens: int | None = None, salt: bytes | None = None) -> Trace:
        """Return the trace of all calls whose ids fit the chunk size; others are counted.

        Raises InputError where no call is left.
        """
        import numpy as np

        from agentkv_trace.trace.ids import fits, trace_from_ids

        size = self.chunk_tokens(chunk_tokens)
        counts = self._id_counts()
        prompts = np.frombuffer(self.prompt_tokens, np.int64)
        told = np.frombuffer(self.told_chunk_tokens, np.int64)
        same = (told == 0) | (told == size)
        keep = same & fits(counts, prompts, size)
        for call in np.flatnonzero(~keep).tolist():
            place = self.places[call]
            reason = (
                f"ids do not fit the prompt's length at {size} tokens per chunk"
                if same[call]
                else f"chunks of another size than {size} tokens"
            )
            self.notes.skip(reason, place.name, place.line)
        if not keep.any():
            raise InputError(self._nothing())
        ids = np.frombuffer(self.ids, np.uint64) if self.ids else np.empty(0, np.uint64)
        everything = bool(keep.all())

        def words(values: list[Any]) -> list[Any]:
            return values if everything else list(compress(values, keep))

        def numbers(values: array[int], kind: Any = np.int64) -> Any:
            return np.frombuffer(values, kind)[keep]

        self.notes.count("calls", int(keep.sum()))
        notes = self.notes
        return trace_from_ids(
            session=words(self.session),
            t_start_us=numbers(self.start_us),
            t_end_us=numbers(self.end_us),
            prompt_tokens=prompts[keep],
            output_tokens=numbers(self.output_tokens),
            ids=ids if everything else ids[np.repeat(keep, counts)],
            offsets=np.concatenate([[0], np.cumsum(counts[keep])]),
            chunk_tokens=size,
            source=self.source,
            agent=words(self.agent),
            model=words(self.model),
            parent_session=words(self.parent_session),
            index=numbers(self.index) if self.ordered else None,
            scope=numbers(self.scope, np.uint64),
            kind=words(self.kind),
            time_source=words(self.time_source),
            sources={
                self.source: {
                    **dict(sorted(notes.counts.items())),
                    "skipped": dict(sorted(notes.skipped.items())),
                }
            },
            salt=salt,
        )

    def _id_counts(self) -> npt.NDArray[np.int64]:
        """Return int64[calls], how many ids each call has."""
        import numpy as np

        offsets = np.frombuffer(self.offsets, np.int64)
        return offsets[1:] - offsets[:-1]

    def _nothing(self) -> str:
        for reason in self.notes.skipped:
            return f"{self.notes.examples[reason][0]}: {reason}; no call is left: name another file"
        return "no call in these files; name another file"
