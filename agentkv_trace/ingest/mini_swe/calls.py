"""Trajectories of mini-swe-agent to calls: each response has the messages before it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import xxhash

from agentkv_trace.ingest.codex.records import Record, table, text, whole
from agentkv_trace.ingest.mini_swe import document
from agentkv_trace.ingest.requests.answers import messages_of
from agentkv_trace.ingest.requests.calls import fill_usage
from agentkv_trace.ingest.requests.messages import Message, message_of
from agentkv_trace.ingest.requests.prompts import Place, Prompts
from agentkv_trace.ingest.requests.records import Answer
from agentkv_trace.ingest.requests.times import micros
from agentkv_trace.ingest.requests.usage import usage_of
from agentkv_trace.trace.call import LoggedCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from agentkv_trace.notes import Notes

SOURCE = "mini-swe"
_Run = TypeVar("_Run")
INPUT_LAG_US, ANSWER_LAG_US = 10_000, 15_000
"""From a tool's end to the request, and from the response to its stamp, at the median."""
_SECOND_US = 1_000_000
_UNSENT = ("extra", "function_call", "provider_specific_fields")


class Trajectory(msgspec.Struct):
    """A file of version 1 or 2; its messages are decoded one by one."""

    messages: list[msgspec.Raw]
    info: Any = None
    trajectory_format: Any = None


@dataclass(frozen=True, slots=True)
class _Session:
    """What a file says of all its calls."""

    name: str
    model: str | None
    chosen: frozenset[str]
    """Models that took turns, where several did."""
    about: tuple[str | None, str | None]
    """Version, and class of the model, from which its tools follow."""
    has_responses: bool

    def head(self, model: str | None) -> tuple[str | None, ...]:
        """Return what the hidden head of a model's prompts depends on."""
        version, kind = self.about
        return SOURCE, version, model, kind


def read(
    files: Sequence[Path], notes: Notes, on_bytes: Callable[[int], None] | None = None
) -> Iterator[LoggedCall]:
    """Yield the calls of trajectories, file by file.

    A file that is cut off gives the calls whose messages are whole; one that cannot be read is
    skipped and counted. Raises InputError in strict mode.
    """
    prompts = Prompts()
    for path, name, found in runs(files, _trajectory, notes, on_bytes):
        any_call = False
        for call in _calls(found, name, prompts, notes, path):
            any_call = True
            notes.count("calls")
            yield call
        notes.count("sessions", any_call)


def runs(
    files: Sequence[Path],
    parse: Callable[[bytearray, Path, Notes], _Run | None],
    notes: Notes,
    on_bytes: Callable[[int], None] | None,
) -> Iterator[tuple[Path, str, _Run]]:
    """Yield each file that `parse` makes something of, with the name of its run; copies once."""
    paths = list(dict.fromkeys(files))
    names = Counter(map(name_of, paths))
    seen: set[str] = set()
    for path in paths:
        notes.count("files")
        data = document.load(path, notes, on_bytes)
        found = None if data is None else parse(data, path, notes)
        if found is None or data is None:
            continue
        name = name_of(path)
        if names[name] > 1:
            # The same task was run more than once, or a run was copied.
            name = f"{name}-{xxhash.xxh3_64_hexdigest(data)[:8]}"
            if name in seen:
                notes.count("copies")
                continue
            seen.add(name)
        yield path, name, found


def parts(files: Sequence[Path]) -> list[list[Path]]:
    """Split files by the name of their task: runs of one task are told apart when read together."""
    groups: dict[str, list[Path]] = {}
    for path in dict.fromkeys(files):
        groups.setdefault(name_of(path), []).append(path)
    return list(groups.values())


def name_of(path: Path) -> str:
    """Return the name of a trajectory's task: that of the file without its endings."""
    name = path.name.removesuffix(".zst").removesuffix(".gz").removesuffix(".json")
    return name.removesuffix(".traj")


def _trajectory(data: bytearray, path: Path, notes: Notes) -> Trajectory | None:
    found = document.decoded(data, Trajectory, notes)
    if found is None and (listed := document.decoded(data, list[msgspec.Raw], notes)) is not None:
        found = Trajectory(listed)
    if found is not None:
        return found
    messages = document.whole_raws(data, "messages")
    notes.skip("document is cut off or damaged" if messages else "no trajectory", str(path))
    return Trajectory(messages) if messages else None


class _Peek(msgspec.Struct):
    """What tells whether a message is a response, or holds one."""

    object: Any = None
    model: Any = None
    model_name: Any = None
    extra: Any = None


def _models(found: Trajectory) -> Iterator[tuple[str | None, str | None]]:
    """Yield the model of each response that messages are or hold, and the one that was chosen."""
    for raw in found.messages:
        try:
            peek = msgspec.json.decode(raw, type=_Peek)
        except (msgspec.DecodeError, RecursionError):
            continue
        inner = table(table(peek.extra).get("response"))
        if peek.object == "response":
            yield text(peek.model), text(peek.model_name)
        elif inner:
            yield text(inner.get("model")), text(peek.model_name)


def _session(found: Trajectory, name: str) -> _Session:
    info = table(found.info)
    config = table(info.get("config"))
    models = list(_models(found))
    named = text(table(config.get("model")).get("model_name"))
    model = named or next((model for model, _ in models if model is not None), None)
    chosen = frozenset(name for _, name in models if name is not None)
    about = text(info.get("mini_version")), text(config.get("model_type"))
    return _Session(name, model, chosen, about, bool(models))


def _response(message: Record) -> Record:
    """Return the response that a message holds or is; empty where it is none."""
    if message.get("object") == "response":
        return message
    return table(table(message.get("extra")).get("response"))


def _calls(
    found: Trajectory, name: str, prompts: Prompts, notes: Notes, path: Path
) -> Iterator[LoggedCall]:
    session = _session(found, name)
    # Each model has a cache, and so a prompt, of its own.
    places = {name: prompts.head(*session.head(name)) for name in (session.model, *session.chosen)}
    clock = _Clock()
    for each in document.each(found.messages, notes, path):
        message = table(each)
        extra = table(message.get("extra"))
        role = text(message.get("role"))
        if not message or role == "exit":
            continue
        response = _response(message)
        # Where answers hold their responses, an assistant's message without any is a person's.
        by_model = "extra" in message or not session.has_responses
        is_answer = message is response or (role == "assistant" and by_model)
        sent = _sent(message)
        if is_answer or response or _is_error(extra):
            # A reply in a wrong form is not kept: only the error that it led to is sent.
            said = sent if is_answer else _reply(response, extra)
            model = text(message.get("model_name"))
            model = model if model in session.chosen else session.model
            ends = places[model], prompts.after(places[model], said)
            yield _call(session, model, ends, response, clock, extra, notes)
        else:
            clock.see_input(extra)
        places = {name: prompts.after(place, sent) for name, place in places.items()}


def _is_error(extra: Record) -> bool:
    """Tell whether a message reports a reply in a wrong form, whether it holds the reply or not."""
    return extra.get("interrupt_type") == "FormatError"


def _sent(message: Record) -> list[Message]:
    """Return a message as it is sent: without what is the agent's own, and empty fields."""
    if message.get("object") == "response":
        output = message.get("output")
        return [message_of(item) for item in output] if isinstance(output, list) else []
    fields = {
        key: value for key, value in message.items() if key not in _UNSENT and value is not None
    }
    return [message_of(fields)]


def _reply(response: Record, extra: Record) -> list[Message]:
    if not response and (words := text(extra.get("model_response"))) is not None:
        return [message_of({"role": "assistant", "content": words})]
    choices, output = response.get("choices"), response.get("output")
    answer = Answer(
        choices=choices if isinstance(choices, list) else None,
        output=output if isinstance(output, list) else None,
    )
    return messages_of(answer)


class _Clock:
    """When calls began and ended, from stamps of seconds since 1970."""

    def __init__(self) -> None:
        self._input_us: int | None = None
        self._order = 0

    def see_input(self, extra: Record) -> None:
        """Note the end of a tool."""
        at = micros(extra.get("timestamp"))
        if at is not None:
            self._input_us = max(at, self._input_us or 0)

    def span(self, extra: Record, response: Record) -> tuple[int, int, str]:
        """Return start and end in UTC microseconds, and how far to trust them."""
        self._order += 1
        at = micros(extra.get("timestamp"))
        created = whole(response.get("created")) or whole(response.get("created_at"))
        created_us = None if created is None else created * _SECOND_US
        start = None if self._input_us is None else self._input_us + INPUT_LAG_US
        if at is not None:
            end = at - ANSWER_LAG_US
        elif created_us is not None:
            # A whole second, in which the response was made.
            end = max(created_us, start or 0)
        elif start is None:
            return self._order, self._order, "order_only"
        else:
            end = start
        if start is None:
            start = end if created_us is None else created_us
            # A second is as much as is known: the middle of it is nearest.
            start += min(_SECOND_US, max(0, end - start)) // 2
        start = min(start, end)
        self._input_us = end
        return start, end, "estimated"


def _call(
    session: _Session,
    model: str | None,
    ends: tuple[Place, Place],
    response: Record,
    clock: _Clock,
    extra: Record,
    notes: Notes,
) -> LoggedCall:
    start_us, end_us, time_source = clock.span(extra, response)
    prompt, path = ends
    call = LoggedCall(
        session=session.name,
        source=SOURCE,
        agent=SOURCE,
        prompt=prompt.node,
        path=path.node,
        start_us=start_us,
        end_us=end_us,
        time_source=time_source,
        model=model,
        fidelity=prompt.fidelity,
    )
    if (usage := usage_of(response.get("usage"))) is not None:
        fill_usage(call, usage, notes)
    return call
