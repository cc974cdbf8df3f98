"""Trajectories of SWE-agent to calls: each step's query, or what its history tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import xxhash

from agentkv_trace.ingest.codex.records import Record, table, text
from agentkv_trace.ingest.mini_swe import document
from agentkv_trace.ingest.mini_swe.calls import parts as parts
from agentkv_trace.ingest.mini_swe.calls import runs
from agentkv_trace.ingest.requests.messages import message_of
from agentkv_trace.ingest.requests.prompts import Place, Prompts, added
from agentkv_trace.ingest.requests.sessions import path_of
from agentkv_trace.ingest.swe_agent.records import (
    Run,
    Trajectory,
    elided,
    model_of,
    run_of,
    sent,
    version_of,
)
from agentkv_trace.trace.call import LoggedCall, weakest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from agentkv_trace.notes import Notes

SOURCE = "swe-agent"


def read(
    files: Sequence[Path], notes: Notes, on_bytes: Callable[[int], None] | None = None
) -> Iterator[LoggedCall]:
    """Yield the calls of trajectories, file by file, each attempt of a run as a session.

    A file that is cut off gives the calls whose steps are whole; one that cannot be read is
    skipped and counted. Raises InputError in strict mode.
    """
    reader = _Reader(notes)
    for path, name, run in runs(files, run_of, notes, on_bytes):
        yield from reader.run(run, name, path)


class _Reader:
    """Makes the calls of runs, with one tree of all their prompts."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._prompts = Prompts()
        self._known: dict[tuple[int, int], Place] = {}

    def run(self, run: Run, name: str, path: Path) -> Iterator[LoggedCall]:
        """Yield the calls of a file: of each attempt, where there are several."""
        if not run.attempts:
            yield from self._session(run, run, name, path)
            return
        for number, attempt in enumerate(run.attempts):
            yield from self._session(attempt, run, f"{name}-{number}", path)

    def _session(self, found: Trajectory, run: Run, name: str, path: Path) -> Iterator[LoggedCall]:
        model = model_of(found) or model_of(run)
        head = self._prompts.head(SOURCE, version_of(found) or version_of(run), model)
        if table(table(found.info).get("model_stats")).get("tokens_sent") is not None:
            self._notes.count("totals that the client estimated, not used")
        if found.has_queries:
            yield from self._counted(self._of_queries(found, head), name, model, "exact")
            return
        for agent, prompts in self._of_history(found, head, path):
            session = name if agent is None else f"{name}-{agent}"
            yield from self._counted(prompts, session, model, "output_reformatted")

    def _of_queries(self, found: Trajectory, head: Place) -> list[tuple[Place, Place]]:
        """Return for each step the ends of its prompt, and of its prompt with the response."""
        ends = []
        for step in found.trajectory:
            asked = step.asked
            if not asked:
                continue
            place = head
            for raw in asked:
                place = self._follow(place, raw)
            ends.append((place, self._said(place, step.response)))
        return ends

    def _follow(self, place: Place, raw: msgspec.Raw) -> Place:
        key = (id(place), xxhash.xxh3_64_intdigest(raw))
        found = self._known.get(key)
        if found is None:
            try:
                message = table(msgspec.json.decode(raw))
            except (msgspec.DecodeError, RecursionError):
                message = {}
            found = self._known[key] = self._prompts.behind(place, message_of(sent(message)))
        return found

    def _said(self, place: Place, response: object) -> Place:
        words = text(response)
        if words is None:
            return place
        return self._prompts.behind(place, message_of({"role": "assistant", "content": words}))

    def _of_history(
        self, found: Trajectory, head: Place, path: Path
    ) -> Iterator[tuple[str | None, list[tuple[Place, Place]]]]:
        """Yield each agent of a history with its calls; the first one's name is None."""
        items = [table(item) for item in document.each(found.history, self._notes, path)]
        agents = list(dict.fromkeys(text(item.get("agent")) for item in items if item))
        for number, agent in enumerate(agents):
            own = [item for item in items if item and text(item.get("agent")) == agent]
            ends = []
            for at, item in enumerate(own):
                if item.get("role") == "assistant" and not item.get("is_demo"):
                    place = self._all(head, elided(own[:at]))
                    ends.append((place, self._all(place, [item])))
            if ends:
                yield (agent if number else None), ends

    def _all(self, place: Place, items: Iterable[Record]) -> Place:
        return self._prompts.after(place, (message_of(sent(item)) for item in items))

    def _counted(
        self, ends: list[tuple[Place, Place]], name: str, model: str | None, fidelity: str
    ) -> Iterator[LoggedCall]:
        for number, (prompt, said) in enumerate(ends):
            before = ends[number - 1][0] if number else None
            later = ends[number + 1][0] if number + 1 < len(ends) else None
            goes_on = before is None or added(before, prompt) is not None
            self._notes.count("calls")
            yield LoggedCall(
                session=name,
                source=SOURCE,
                agent=SOURCE,
                prompt=prompt.node,
                path=path_of(prompt, later, said).node,
                start_us=number,
                end_us=number,
                time_source="order_only",
                model=model,
                kind="turn" if goes_on else "fold",
                fidelity=weakest(fidelity, prompt.fidelity),
            )
        self._notes.count("sessions", bool(ends))
