"""The records of request logs to requests, each with the end of its prompt in one tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from agentkv_trace.ingest import reading
from agentkv_trace.ingest.codex.records import text
from agentkv_trace.ingest.requests import answers, records
from agentkv_trace.ingest.requests.prompts import Place, Prompts
from agentkv_trace.ingest.requests.sessions import Reply, reply_of
from agentkv_trace.ingest.requests.times import Span, span_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentkv_trace.ingest.requests.messages import Message
    from agentkv_trace.ingest.requests.usage import Usage
    from agentkv_trace.notes import Notes

SOURCE = "requests"


@dataclass(slots=True)
class Request:
    """A request that got an answer."""

    span: Span
    prompt: Place
    output: list[Message]
    usage: Usage | None
    model: str | None
    session: str | None
    parent: str | None
    agent: str | None
    kind: str | None
    reply: Reply
    place: tuple[str, int]
    fidelity: str | None = None
    before: Place | None = None
    """Where the prompt ended that came before in the same conversation, if any."""
    later: Place | None = None
    """Where the next prompt ends that goes on from this one, if any."""


def records_in(
    path: Path, notes: Notes, on_bytes: Callable[[int], None] | None = None
) -> Iterator[tuple[int, bytes | msgspec.Raw]]:
    """Yield the records of a file with their lines: of JSON lines, or of one value or array.

    Raises OSError where the file cannot be read.
    """
    count = reading.counter(notes, on_bytes)
    if path.suffix == ".json" and path.stat().st_size <= reading.MAX_LINE:
        data = path.read_bytes()
        try:
            if data.lstrip().startswith(b"["):
                values = msgspec.json.decode(data, type=list[msgspec.Raw])
            else:
                values = [msgspec.json.decode(data, type=msgspec.Raw)]
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        else:
            count(len(data))
            for value in values:
                yield 1, value
            return
    yield from reading.lines(path, notes, count)


class Reader:
    """Lines to requests."""

    def __init__(self, notes: Notes) -> None:
        self.prompts = Prompts()
        self.found: list[Request] = []
        self._notes = notes
        self._ends: dict[str, Place] = {}
        self._unknown = 0

    def take(self, line: bytes | msgspec.Raw, path: Path, number: int) -> None:
        """Read one record."""
        record = records.envelope_of(line)
        pieces = [record]
        if record is None:
            # Behind a record that was cut off, the next begins as all do in this log.
            data = bytes(line)
            starts = [data[: data.find(b":") + 1]] if data.startswith(b'{"') else []
            parts = reading.decode(data, self._notes, path, number, starts)
            pieces = [records.envelope_of(msgspec.json.encode(part)) for part in parts]
        for piece in pieces:
            if piece is not None:
                self._record(piece, path, number)

    def _record(self, record: records.Envelope, path: Path, number: int) -> None:
        if records.was_cached(record):
            self._notes.count("answers from a gateway's cache")
            return
        answer = answers.answer_of(record)
        if records.has_failed(record, answer):
            self._notes.count("failed requests")
            return
        usage = records.usage_in(record, answer)
        body = records.body_of(record)
        if body is None and usage is None:
            self._notes.skip("record without a request", str(path), number)
            return
        body = body or record
        model = text(body.model) or text(record.model) or text(answer.model)
        try:
            prompt = self._prompt(body, model)
        except (msgspec.DecodeError, RecursionError):
            self._notes.skip("damaged message in a request", str(path), number)
            return
        if prompt is None and usage is None:
            self._notes.skip("record without prompt and usage", str(path), number)
            return
        output = answers.messages_of(answer)
        request = Request(
            span=_span(record, answer, len(self.found)),
            prompt=prompt or self._opaque(model, usage),
            output=output,
            usage=usage,
            model=model,
            session=records.session_of(record, body),
            parent=records.parent_of(record),
            agent=records.agent_of(record),
            kind=records.kind_of(record),
            reply=reply_of(output),
            place=(str(path), number),
            fidelity="usage_only" if prompt is None else None,
        )
        if (name := text(answer.id)) is not None and prompt is not None:
            self._ends[name] = self.prompts.after(prompt, output)
        self.found.append(request)

    def _prompt(self, body: records.Body, model: str | None) -> Place | None:
        """Return the end of a prompt in the order in which servers render it; None if unknown."""
        prompts = self.prompts
        if (before := text(body.previous_response_id)) is not None:
            if before not in self._ends or body.input is None:
                return None
            return prompts.all_behind(self._ends[before], _items(body.input))
        place = prompts.head(SOURCE, model)
        if body.tools:
            place = prompts.all_behind(place, body.tools)
        if body.instructions:
            place = prompts.follow(place, msgspec.json.encode(body.instructions))
        if bytes(body.system) not in (b"", b"null", b'""', b"[]"):
            place = prompts.follow(place, body.system)
        if body.messages is not None:
            return prompts.all_behind(place, body.messages)
        return None if body.input is None else prompts.all_behind(place, _items(body.input))

    def _opaque(self, model: str | None, usage: Usage | None) -> Place:
        self._unknown += 1
        head = self.prompts.head(SOURCE, model, "unknown")
        name = f"{SOURCE}:{len(self.found)}:{self._unknown}".encode()
        return Place(head.node.opaque(name, usage.prompt if usage else 0), self._unknown, head, 1)


def _items(value: list[msgspec.Raw] | str) -> list[msgspec.Raw] | list[bytes]:
    if isinstance(value, str):
        return [msgspec.json.encode({"role": "user", "content": value})]
    return value


def _span(record: records.Envelope, answer: records.Answer, order: int) -> Span:
    request = record.request
    starts = (record.t_start, record.t_recv, record.startTime, record.start_time)
    start = _first(*starts, record.started_at, request and request.timestamp)
    ends = (record.t_end, record.t_done, record.endTime, record.end_time, record.completed_at)
    end = _first(*ends, record.logged_at, answer.timestamp)
    at = _first(record.timestamp, record.created_at)
    return span_of(start, end, at, _first(record.latency_sec, record.response_time), order)


def _first(*values: object) -> object:
    return next((value for value in values if value is not None), None)
