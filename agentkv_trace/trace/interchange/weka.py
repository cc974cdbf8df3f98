"""Sessions of kv-cache-tester (also published as weka traces): one JSON document each.

Ids of 64 tokens are local to a document. What documents share has to be assumed: the first
`(tool_tokens + system_tokens) // block_size` chunks of sessions with the same model and the same
two lengths are taken as one head. A sub-agent is a session with a parent, with lengths and hence
a head of its own. Times are seconds from the document's first call, those in a sub-agent from its
start where they are below it; there is no common clock, so documents start together, or
`start_gap_s` apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xxhash import xxh3_64_intdigest

from agentkv_trace.trace.interchange.calls import Calls
from agentkv_trace.trace.interchange.weka_documents import (
    Document,
    Request,
    Subagent,
    documents,
    entry,
    time_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    import msgspec

    from agentkv_trace.notes import Notes
    from agentkv_trace.trace.interchange.lines import Place
    from agentkv_trace.trace.store import Trace

_MOST_NESTED = 32


def looks_like(head: bytes) -> bool:
    """Tell by its first bytes whether a file is such a session."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return (
        start.startswith(b"{")
        and b'"requests"' in start
        and b'"block_size"' in start
        and (b'"hash_id_scope"' in start or b'"hash_ids"' in start)
    )


def read(
    files: Iterable[tuple[str, Iterable[tuple[int, bytes]]]],
    notes: Notes,
    *,
    chunk_tokens: int | None = None,
    start_gap_s: float = 0.0,
    salt: bytes | None = None,
    **options: Any,  # noqa: ARG001
) -> Trace:
    """Read all documents, one a file or one a line, into one trace.

    Raises InputError where no call is left.
    """
    calls = Calls("weka", notes, ordered=True)
    names: set[str] = set()
    read_so_far = 0
    for number, (name, lines) in enumerate(files):
        notes.count("files")
        try:
            for place, document in documents(lines, notes, number, name):
                start_us = round(read_so_far * start_gap_s * 1e6)
                _Reading(calls, place, document, start_us, names).read()
                read_so_far += 1
        except OSError as error:
            notes.skip(f"file cannot be read ({error.strerror or 'damaged'})", name)
    notes.count("documents", read_so_far)
    if read_so_far > 1:
        # Documents have no common clock: how they overlap is an assumption.
        calls.time_source = ["estimated"] * len(calls)
    return calls.finish(chunk_tokens=chunk_tokens, salt=salt)


class _Reading:
    """One document on its way into the calls."""

    def __init__(
        self,
        calls: Calls,
        place: Place,
        document: Document,
        start_us: int,
        names: set[str],
    ) -> None:
        self._calls = calls
        self._place = place
        self._document = document
        self._start_us = start_us
        self._names = names
        local = document.hash_id_scope != "global"
        self._scope = place.scope if local else 0
        self._local = local
        # By its first id, a head that other documents are assumed to share: its local ids,
        # and what stands for them.
        self._heads: dict[int, tuple[Any, Any]] = {}
        self._marks: set[int] = set()

    def read(self) -> None:
        document = self._document
        self._stream(
            document.requests,
            session=self._name(document.id or "session"),
            parent=None,
            agent=None,
            base_us=self._start_us,
            head=(document.tool_tokens, document.system_tokens),
            level=0,
        )

    def _name(self, wanted: str) -> str:
        name, copies = wanted, 1
        while name in self._names:
            copies += 1
            name = f"{wanted}#{copies}"
        self._names.add(name)
        return name

    def _stream(
        self,
        requests: list[msgspec.Raw],
        *,
        session: str,
        parent: str | None,
        agent: str | None,
        base_us: int,
        head: tuple[int | None, int | None],
        level: int,
    ) -> None:
        first = True
        for raw in requests:
            found = entry(raw, self._calls.notes, self._place)
            if isinstance(found, Subagent):
                self._subagent(found, session, base_us, level)
            elif found is not None:
                if first and self._local:
                    self._register_head(found, head)
                self._add(found, session, parent, agent, base_us, first)
                first = False

    def _subagent(self, call: Subagent, parent: str, base_us: int, level: int) -> None:
        if level >= _MOST_NESTED:
            self._calls.notes.skip("sub-agents nested too deeply", self._place.name)
            return
        starts_us = base_us + round(call.t * 1e6)
        inner = [e for e in map(time_of, call.requests) if e is not None]
        relative = not inner or min(inner) < call.t
        self._stream(
            call.requests,
            session=self._name(f"{parent}/{call.agent_id or 'subagent'}"),
            parent=parent,
            agent=call.subagent_type or "subagent",
            base_us=starts_us if relative else base_us,
            head=(call.tool_tokens, call.system_tokens),
            level=level + 1,
        )

    def _register_head(self, call: Request, head: tuple[int | None, int | None]) -> None:
        """Take the first chunks of a session's first call as a head that documents share."""
        import numpy as np

        tool, system = head
        size = self._document.block_size
        if tool is None or system is None or not call.hash_ids:
            return
        chunks = min((tool + system) // size, call.input // size, len(call.hash_ids))
        if not chunks or call.hash_ids[0] in self._heads:
            return
        mark = xxh3_64_intdigest(repr((call.model, tool, system, size)).encode())
        # Two heads of one document are known to differ where their ids do.
        if mark in self._marks:
            return
        self._marks.add(mark)
        shared = np.arange(chunks, dtype=np.uint64) ^ np.uint64(mark)
        self._heads[call.hash_ids[0]] = np.array(call.hash_ids[:chunks], np.uint64), shared

    def _add(
        self,
        call: Request,
        session: str,
        parent: str | None,
        agent: str | None,
        base_us: int,
        first: bool,
    ) -> None:
        import numpy as np

        ids = np.array(call.hash_ids, np.uint64)
        mine = ids ^ np.uint64(self._scope)
        known = self._heads.get(call.hash_ids[0]) if call.hash_ids else None
        if known is not None:
            local, shared = known
            most = min(ids.size, local.size)
            differs = np.flatnonzero(ids[:most] != local[:most])
            same = int(differs[0]) if differs.size else most
            mine[:same] = shared[:same]
        start_us = base_us + round(call.t * 1e6)
        self._calls.add(
            self._place,
            session,
            start_us,
            call.input,
            call.out,
            mine.tobytes(),
            end_us=start_us + round((call.api_time or 0.0) * 1e6),
            chunk_tokens=self._document.block_size,
            parent_session=parent,
            agent=agent,
            model=call.model,
            kind="subagent" if first and parent is not None else "turn",
        )
