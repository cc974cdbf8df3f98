"""Completions: what OpenHands sent and got, one file a call, as exact as a log can be."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from agentkv_trace.ingest import reading
from agentkv_trace.ingest.codex.records import Record, table, text
from agentkv_trace.ingest.openhands.draft import SOURCE, Draft, head
from agentkv_trace.ingest.openhands.v0_messages import assistant_of
from agentkv_trace.ingest.requests.answers import messages_of
from agentkv_trace.ingest.requests.messages import Message, message_of, texts_of, word_digest
from agentkv_trace.ingest.requests.records import Answer
from agentkv_trace.ingest.requests.sessions import reply_of
from agentkv_trace.ingest.requests.times import span_of
from agentkv_trace.ingest.requests.usage import usage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentkv_trace.ingest.requests.prompts import Place, Prompts
    from agentkv_trace.notes import Notes

NAME = re.compile(r"^(?P<model>.+?)-(?P<at>\d{9,11}\.\d+)(-[0-9a-f]{4})?(?P<error>-error)?\.json$")
CONDENSER = "You are maintaining a context-aware state summary"
"""How a condenser's instruction begins, in both generations."""


class Completion(msgspec.Struct):
    """The part of a file that tells of a call; messages stay as they are."""

    messages: list[Raw] | None = None
    input: list[Raw] | None = None
    instructions: str | None = None
    tools: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    usage_summary: dict[str, Any] | None = None
    timestamp: float | None = None
    latency_sec: float | None = None
    error: Any = None


_DECODER = msgspec.json.Decoder(Completion)


def files_in(folder: Path) -> list[Path]:
    """Return the completions in a folder, in the order of their stamps."""
    found = [path for path in folder.iterdir() if NAME.match(path.name) and path.is_file()]
    return sorted(found, key=lambda path: (_stamp(path.name), path.name))


def _stamp(name: str) -> float:
    found = NAME.match(name)
    return float(found["at"]) if found else 0.0


def read(
    path: Path, prompts: Prompts, notes: Notes, on_bytes: Callable[[int], None] | None = None
) -> Draft | None:
    """Return the call that a file holds; None, and a count, where there is none.

    Raises OSError where the file cannot be read.
    """
    size = path.stat().st_size
    if size > reading.MAX_LINE:
        notes.skip("file too large", str(path))
        return None
    data = path.read_bytes()
    notes.count("bytes", len(data))
    if on_bytes is not None:
        on_bytes(len(data))
    return draft_of(data, path.name, str(path), prompts, notes)


def draft_of(data: bytes, name: str, place: str, prompts: Prompts, notes: Notes) -> Draft | None:
    """Return the call of a completion's content; `place` is where it is, for messages."""
    if not data.strip(b"\0 \t\r\n"):
        notes.skip("file of NUL bytes" if data else "empty file", place)
        return None
    try:
        one = _DECODER.decode(data)
        if one.error is not None or one.response is None:
            notes.count("failed requests")
            return None
        return _draft(one, name, prompts)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        notes.skip("damaged completion", place)
        return None


def _draft(one: Completion, name: str, prompts: Prompts) -> Draft:
    response = table(one.response)
    kwargs = table(one.kwargs)
    named = NAME.match(name)
    model = named["model"].replace("__", "/") if named else text(response.get("model"))
    folds = _is_condenser(one)
    prompt = _prompt(one, kwargs, model, folds, prompts)
    output = _output(response, is_new=bool(one.tools))
    metadata = table(table(kwargs.get("extra_body")).get("metadata"))
    return Draft(
        response_id=text(response.get("id")),
        prompt=prompt,
        path=prompts.after(prompt, output),
        span=span_of(None, None, one.timestamp, one.latency_sec),
        model=model,
        usage=usage_of(response.get("usage")) or usage_of(one.usage_summary),
        kind="compaction" if folds else "turn",
        fidelity=prompt.fidelity,
        reply=reply_of(output),
        session=text(metadata.get("session_id")),
        tasks=tuple((word_digest(task), role) for task, role in _tasks(response)),
        is_linked=False,
        is_raw=True,
    )


def _prompt(
    one: Completion, kwargs: Record, model: str | None, folds: bool, prompts: Prompts
) -> Place:
    if folds:
        place = head(prompts, model, kind="compaction")
    elif one.tools:
        place = head(prompts, model, tools=[table(tool) for tool in one.tools])
    else:
        place = head(prompts, model, agent=SOURCE)
        place = with_tools(prompts, place, kwargs.get("tools"))
    if one.instructions:
        place = prompts.follow(place, msgspec.json.encode(one.instructions))
    return prompts.all_behind(place, one.messages or one.input or ())


def with_tools(prompts: Prompts, place: Place, tools: object) -> Place:
    """Return the place behind tools whose whole JSON is logged."""
    listed = tools if isinstance(tools, list) else []
    return prompts.all_behind(place, (msgspec.json.encode(tool) for tool in listed))


def _output(response: Record, *, is_new: bool) -> list[Message]:
    """Return a response as OpenHands sends it back, which is not as it came."""
    choices = response.get("choices")
    if not isinstance(choices, list) or not choices:
        return messages_of(msgspec.convert(response, Answer))
    message = assistant_of(response)
    words = str(message.pop("said", ""))
    calls = message.get("tool_calls", [])
    if is_new and calls:
        if not words.strip():
            del message["content"]
        for call in calls:
            call["function"]["arguments"] = _spaced(call["function"]["arguments"])
    return [message_of(message)] if message else []


def _spaced(arguments: object) -> object:
    """Return arguments as the second generation writes them: read, and written anew."""
    try:
        return json.dumps(json.loads(str(arguments)))
    except (ValueError, RecursionError):
        return arguments


def _is_condenser(one: Completion) -> bool:
    messages = one.messages or one.input or []
    if one.tools or len(messages) > 2:
        return False
    if (one.instructions or "").startswith(CONDENSER):
        return True
    first = table(msgspec.json.decode(messages[0])) if messages else {}
    return any(words.lstrip().startswith(CONDENSER) for words in texts_of(first))


def _tasks(response: Record) -> Iterator[tuple[str, str | None]]:
    """Yield the tasks that a response gives to sub-agents."""
    choices = response.get("choices")
    message = (
        table(table(choices[0]).get("message")) if isinstance(choices, list) and choices else {}
    )
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = table(table(call).get("function"))
        if function.get("name") not in ("task", "delegate"):
            continue
        try:
            arguments = table(msgspec.json.decode(text(function.get("arguments")) or "{}"))
        except msgspec.DecodeError:
            continue
        if (task := text(arguments.get("prompt"))) is not None:
            yield task, text(arguments.get("subagent_type"))
        for task in table(arguments.get("tasks")).values():
            if isinstance(task, str):
                yield task, None
