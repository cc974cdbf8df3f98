"""Events of the first generation as the chat messages they become."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentkv_trace.ingest.codex.records import Record, table, text, whole
from agentkv_trace.ingest.openhands.text import halved, with_prompt

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_CHARS = 30_000
NEVER_SENT = frozenset(
    {"null", "change_agent_state", "agent_state_changed", "pause", "resume", "condensation_request"}
)
_PLAIN = frozenset({"message", "finish", "system"})
_TOLD = (
    "repo_name",
    "repo_directory",
    "repo_branch",
    "repo_instructions",
    "runtime_hosts",
    "additional_agent_instructions",
    "date",
    "working_dir",
    "custom_secrets_descriptions",
    "conversation_instructions",
)
"""What a recall of the workspace may hold."""
_IMAGE = "![image](data:image/png;base64,"
_SEEN = "![image](data:image/png;base64, ...) already displayed to user"


@dataclass(slots=True)
class Said:
    """A message, and whether its text is only like what was sent."""

    message: Record
    is_rendered: bool = False


def kind_of(event: Record) -> str:
    """Return the kind of an action or an observation."""
    return text(event.get("action")) or text(event.get("observation")) or ""


def response_of(event: Record) -> Record:
    """Return the model's response that an event carries, or an empty object."""
    return table(table(event.get("tool_call_metadata")).get("model_response"))


@dataclass(slots=True)
class Messages:
    """Makes the messages of a prompt of the events that it holds."""

    max_chars: int = MAX_CHARS
    _pending: dict[str, Record] = field(default_factory=dict)
    _results: dict[str, Record] = field(default_factory=dict)
    _agents: set[str] = field(default_factory=set)

    def of(self, events: list[Record]) -> list[Said]:
        """Return the messages of a list of events, in the order in which they are sent."""
        found: list[Said] = []
        for event in events:
            found += self._action(event) if "action" in event else self._observation(event)
            found += self._complete()
        return list(_separated(found))

    def _action(self, event: Record) -> list[Said]:
        kind, args = kind_of(event), table(event.get("args"))
        source = event.get("source")
        response = response_of(event)
        if response and kind not in _PLAIN:
            self._pending[text(response.get("id")) or ""] = assistant_of(response)
            return []
        if kind == "system":
            return [Said(_message("system", [text(args.get("content")) or ""]))]
        role = "user" if source == "user" else "assistant"
        if kind == "message":
            return [Said(_message(role, [text(args.get("content")) or ""], _images(args)))]
        if kind == "finish":
            thought = _thought(args)
            said = text(table(assistant_of(response)).get("said")) or ""
            words = (
                f"{thought}\n{said}" if thought and said and thought != said else thought or said
            )
            return [Said(_message(role, [words]))]
        if kind == "run" and source == "user":
            return [Said(_message("user", [f"User executed the command:\n{args.get('command')}"]))]
        if kind in ("recall", "condensation"):
            return []
        if source == "agent":
            # An action without the model's response: its thought is all that is known of it.
            return [Said(_message("assistant", [_thought(args)]), is_rendered=True)]
        return []

    def _observation(self, event: Record) -> list[Said]:
        kind, extras = kind_of(event), table(event.get("extras"))
        if kind == "recall":
            return self._recalled(extras)
        parts = self._text(kind, event, extras)
        images = _images(extras) if kind == "run_ipython" else []
        metadata = table(event.get("tool_call_metadata"))
        if (call_id := text(metadata.get("tool_call_id"))) is None:
            return [Said(_message("user", [parts], images))]
        message = _message("tool", [parts], images)
        message |= {"tool_call_id": call_id, "name": metadata.get("function_name")}
        self._results[call_id] = message
        return []

    def _text(self, kind: str, event: Record, extras: Record) -> str:
        words = event.get("content") if isinstance(event.get("content"), str) else ""
        words = str(words)
        if kind == "run":
            shell = table(extras.get("metadata")) or {"exit_code": extras.get("exit_code", -1)}
            words = with_prompt(words, shell)
            if not event.get("tool_call_metadata"):
                words = f"\nObserved result of command executed by user:\n{words}"
        elif kind == "run_ipython":
            lines = words.split("\n")
            words = "\n".join(_SEEN if _IMAGE in line else line for line in lines)
        elif kind == "delegate":
            words = str(table(extras.get("outputs")).get("content", words))
        elif kind == "read":
            return words
        words = halved(words, self.max_chars)
        if kind == "error":
            words += "\n[Error occurred in processing last action]"
        elif kind == "user_rejected":
            words = f"OBSERVATION:\n{words}\n[Last action has been rejected by the user]"
        return words

    def _recalled(self, extras: Record) -> list[Said]:
        """Return what a recall adds. The log has its parts, not the words around them."""
        parts = []
        if extras.get("recall_type") == "workspace_context":
            told = [f"{key}: {extras[key]}" for key in _TOLD if extras.get(key)]
            parts = ["\n".join(told)] if told else []
        known = extras.get("microagent_knowledge")
        for each in known if isinstance(known, list) else ():
            name = text(table(each).get("name")) or ""
            if name in self._agents and extras.get("recall_type") == "knowledge":
                continue
            self._agents.add(name)
            parts.append(f"{table(each).get('trigger')}\n{table(each).get('content')}")
        return [Said(_message("user", parts), is_rendered=True)] if parts else []

    def _complete(self) -> Iterator[Said]:
        """Yield a response and its answers, in the order of its calls, once all are there."""
        for name, message in list(self._pending.items()):
            calls = [text(call.get("id")) or "" for call in message.get("tool_calls", ())]
            if all(call in self._results for call in calls):
                del self._pending[name]
                yield Said({key: value for key, value in message.items() if key != "said"})
                for call in calls:
                    yield Said(self._results.pop(call))


def assistant_of(response: Record) -> Record:
    """Return a response as the message that is sent back; `said` is its text alone."""
    choices = response.get("choices")
    if not isinstance(choices, list) or not choices:
        return {}
    message = table(table(choices[0]).get("message"))
    said = message.get("content") if isinstance(message.get("content"), str) else ""
    said = str(said)
    found = _message("assistant", [said] if said.strip() else [])
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        found["tool_calls"] = [_called(table(call)) for call in calls]
    return found | {"said": said}


def _called(call: Record) -> Record:
    function = table(call.get("function"))
    named = {"name": function.get("name"), "arguments": function.get("arguments")}
    return {"id": call.get("id"), "type": "function", "function": named}


def _thought(args: Record) -> str:
    thought = args.get("thought")
    if isinstance(thought, dict):
        thought = thought.get("text")
    return thought if isinstance(thought, str) else ""


def _images(fields: Record) -> list[str]:
    urls = fields.get("image_urls")
    return [url for url in urls if isinstance(url, str) and url.strip()] if urls else []


def _message(role: str, texts: list[str], images: list[str] | None = None) -> Record:
    parts: list[Record] = [{"type": "text", "text": words} for words in texts]
    parts += [{"type": "image_url", "image_url": {"url": url}} for url in images or ()]
    return {"content": parts, "role": role}


def _separated(found: list[Said]) -> Iterator[Said]:
    """Yield messages, with an empty line before each user's that follows another user's."""
    before = None
    for said in found:
        message = said.message
        if message["role"] == "user" == before and message["content"]:
            first = message["content"][0]
            if "text" in first:
                parts = [{"type": "text", "text": "\n\n" + first["text"]}, *message["content"][1:]]
                said = Said(message | {"content": parts}, said.is_rendered)
        before = message["role"]
        yield said


def viewed(events: list[Record]) -> list[Record]:
    """Return the events that a prompt holds: forgotten ones left out, the last summary put in."""
    gone: set[int] = set()
    summary: tuple[str, int] | None = None
    for event in events:
        if event.get("action") != "condensation":
            continue
        args = table(event.get("args"))
        ids, start = args.get("forgotten_event_ids"), whole(args.get("forgotten_events_start_id"))
        end = whole(args.get("forgotten_events_end_id"))
        if isinstance(ids, list):
            gone.update(each for each in ids if isinstance(each, int))
        elif start is not None and end is not None:
            gone.update(range(start, end + 1))
        words, offset = args.get("summary"), whole(args.get("summary_offset"))
        if isinstance(words, str) and offset is not None:
            summary = words, offset
    kept = [
        event
        for event in events
        if event.get("id") not in gone
        and kind_of(event) not in NEVER_SENT
        and event.get("action") != "condensation"
    ]
    if summary is not None:
        # An offset behind the end has been seen; a list takes it as the end.
        kept.insert(summary[1], {"observation": "condense", "content": summary[0]})
    return _begun(kept, events)


def _begun(kept: list[Record], events: list[Record]) -> list[Record]:
    """Put the first user's message behind the system's, where it is not there."""
    place = 1 if kept and kept[0].get("action") == "system" else 0
    if len(kept) > place and _is_user(kept[place]):
        return kept
    first = next((event for event in events if _is_user(event)), None)
    return kept if first is None else [*kept[:place], first, *kept[place:]]


def _is_user(event: Record) -> bool:
    return event.get("action") == "message" and event.get("source") == "user"
