"""Broken prompts made from the sample logs: request logs that differ in one habit each.

    python tests/broken_prompts.py FOLDER

writes `FOLDER/<name>.jsonl` for the unbroken requests and every variant. A request is what an
agent sends: tools, then items (system prompt first); its answer is the items that the model
wrote. All words are made up here or in sample_traces.
"""

from __future__ import annotations

import copy
import json
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkv_trace.ingest.codex import calls, paths
from agentkv_trace.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentkv_trace.trace.call import Node

Json = dict[str, Any]
Request = Json
SAMPLES = Path(__file__).parents[1] / "sample_traces" / "codex"
SESSIONS = 3
MODEL = "tide-1"
BYTES_PER_TOKEN = 4
MODEL_ITEMS = ("reasoning", "function_call", "custom_tool_call")
WORDS = ("tide", "moon", "gauge", "harbour", "datum", "chart", "spring", "neap")


def tool(name: str) -> Json:
    properties = {
        word: {"type": "string", "description": f"The {word} that {name} works on."}
        for word in WORDS[: 3 + len(name) % 4]
    }
    parameters = {"type": "object", "properties": properties, "required": [WORDS[0]]}
    return {
        "type": "function",
        "name": name,
        "description": f"Use {name} to look after the tables. " * 3,
        "parameters": parameters,
    }


TOOLS = [tool(f"{verb}_{noun}") for verb in ("read", "write") for noun in WORDS[1:4]]


def message(role: str, text: str) -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def rules(extra: str = "") -> Json:
    words = [f"Rule {n}: mind the {WORDS[n % 8]} before the {WORDS[n % 5]}." for n in range(60)]
    return message("system", "You keep tide tables.\n" + extra + "\n".join(words))


def base() -> list[Request]:
    """Return the requests of some sample sessions, each as one body with what came back."""
    found: list[Request] = []
    logs = sorted(paths.find(SAMPLES))[:SESSIONS]
    for number, log in enumerate(logs):
        before: list[Json] = []
        for call in calls.read([log], Notes()):
            path = items_of(call.path)
            end = len(items_of(call.prompt))
            prompt = path[:end]
            if prompt[: len(before)] != before:
                raise ValueError(f"{log.name}: its prompts only grow")
            before = prompt
            found.append(
                {
                    "session": f"s{number}",
                    "t_start": call.start_us * 1000,
                    "t_end": call.end_us * 1000,
                    "body": {"model": MODEL, "tools": TOOLS, "input": [rules(), *prompt]},
                    "response": {"output": path[end:]},
                }
            )
    return found


def items_of(node: Node | None) -> list[Json]:
    """Return the items of a prompt; reasoning, which is unreadable there, in words of ours."""
    items: list[Json] = []
    while node is not None and node.parent is not None:
        if node.tokens is None:
            item = json.loads(node.content)
            if item.get("role") != "developer":
                items.append(item)
        else:
            words = f"I weigh the {WORDS[node.tokens % 8]}. " * (1 + node.tokens // 20)
            text = {"type": "summary_text", "text": words}
            items.append({"type": "reasoning", "summary": [text]})
        node = node.parent
    return items[::-1]


def numbered(requests: list[Request]) -> list[tuple[int, Json]]:
    """Return each request's place in its session and its body."""
    seen: dict[str, int] = {}
    places = []
    for request in requests:
        place = seen[request["session"]] = seen.get(request["session"], -1) + 1
        places.append((place, request["body"]))
    return places


# The variants: each changes the requests in place. Names of classes and causes go with them.

Variant = tuple["Callable[[list[Request]], None]", str, str | None]


def date_in_system_prompt(requests: list[Request]) -> None:
    for place, body in numbered(requests):
        body["input"][0] = rules(f"It is 2026-10-05T08:{place // 60:02}:{place % 60:02}Z.\n")


def random_id_in_first_message(requests: list[Request]) -> None:
    chance = random.Random(1)
    for _, body in numbered(requests):
        first = user_at(body, 0)
        body["input"][first] = with_text(body["input"][first], f"run {chance.randbytes(8).hex()}: ")


def shuffled_tools(requests: list[Request]) -> None:
    for place, body in numbered(requests):
        body["tools"] = TOOLS[place % 6 :] + TOOLS[: place % 6]


def unstable_tool_keys(requests: list[Request]) -> None:
    for place, body in numbered(requests):
        body["tools"] = [turned(each, place % 4) for each in TOOLS]


def unstable_argument_keys(requests: list[Request]) -> None:
    for place, body in numbered(requests):
        for at, item in enumerate(body["input"]):
            if item["type"] == "function_call":
                arguments = turned(json.loads(item["arguments"]), place)
                body["input"][at] = item | {"arguments": json.dumps(arguments)}


def pruned_outputs(requests: list[Request]) -> None:
    """From calls 12 and 18 on, the outputs before them but the last few are cleared."""
    for place, body in numbered(requests):
        outputs = [at for at, item in enumerate(body["input"]) if "output" in item]
        kept = 12 if place >= 18 else 6 if place >= 12 else 0
        for at in outputs[:kept]:
            body["input"][at] = body["input"][at] | {"output": "[cleared]"}


def early_compaction(requests: list[Request]) -> None:
    """Every six calls the history gives way to a summary."""
    folded: dict[str, int] = {}
    place_of: dict[str, int] = {}
    for request, (place, body) in zip(requests, numbered(requests), strict=True):
        session, items = request["session"], body["input"]
        if place and place % 6 == 0:
            folded[session] = len(items)
            place_of[session] = place
        if session in folded:
            words = " ".join(WORDS[(n * place_of[session] // 6) % 8] for n in range(200))
            summary = message("user", f"Notes so far: {words}.")
            first = user_at(body, 0)
            body["input"] = [*items[: first + 1], summary, *items[folded[session] :]]


def reasoning_dropped(requests: list[Request]) -> None:
    """Reasoning is sent back once, with the answer of the tool, and never again."""
    for _, body in numbered(requests):
        items = body["input"]
        last = max((n for n, item in enumerate(items) if made_by_model(item)), default=0)
        start = last
        while start and made_by_model(items[start - 1]):
            start -= 1
        body["input"] = [
            item for n, item in enumerate(items) if item["type"] != "reasoning" or n >= start
        ]


def second_system_message(requests: list[Request]) -> None:
    for place, body in numbered(requests):
        if place >= 8:
            body["input"].insert(1, message("system", "Mind the summer time. " * 10))


def model_switched(requests: list[Request]) -> None:
    for place, body in numbered(requests):
        if place >= 10:
            body["model"] = "tide-2"


def trailing_whitespace(requests: list[Request]) -> None:
    for place, body in numbered(requests):
        if place >= 9:
            first = user_at(body, 0)
            body["input"][first] = with_text(body["input"][first], "", " \n")


def growing_notes(requests: list[Request]) -> None:
    for place, body in numbered(requests):
        body["input"][0] = rules("".join(f"Note: {WORDS[n % 8]} was seen.\n" for n in range(place)))


def reverted(requests: list[Request]) -> None:
    """Call 12 goes back to where call 6 was and asks anew; later ones go on from there."""
    early: dict[str, int] = {}
    late: dict[str, int] = {}
    again = message("user", "No: begin again, from the harbour's own gauge, and mind the datum.")
    for request, (place, body) in zip(requests, numbered(requests), strict=True):
        session, items = request["session"], body["input"]
        if place in (6, 12):
            (early if place == 6 else late)[session] = len(items)
        if place >= 12:
            body["input"] = [*items[: early[session]], again, *items[late[session] :]]


def tool_added(requests: list[Request]) -> None:
    for place, body in numbered(requests):
        if place >= 7:
            body["tools"] = [*TOOLS, tool("plot_curve")]


def session_in_head(requests: list[Request]) -> None:
    for request in requests:
        request["body"]["input"][0] = rules(f"Your session is 7f3a90c{request['session'][1:]}b2.\n")


VARIANTS: dict[str, Variant] = {
    "date in the system prompt": (date_in_system_prompt, "head_changed", "date"),
    "random id in the first message": (random_id_in_first_message, "message_edited", "id"),
    "shuffled tools": (shuffled_tools, "tools_changed", "tool_order"),
    "unstable key order in tools": (unstable_tool_keys, "tools_changed", "serialisation"),
    "unstable key order in arguments": (unstable_argument_keys, "message_edited", "serialisation"),
    "pruned tool outputs": (pruned_outputs, "pruned", None),
    "early compaction": (early_compaction, "history_folded", "frequent_folds"),
    "reasoning dropped": (reasoning_dropped, "reasoning_dropped", None),
    "a second system message": (second_system_message, "head_changed", "inserted"),
    "model switched": (model_switched, "model_changed", None),
    "whitespace at the end of a message": (trailing_whitespace, "message_edited", "whitespace"),
    "growing notes in the system prompt": (growing_notes, "head_changed", "growing"),
    "reverted": (reverted, "reverted", None),
    "tool added": (tool_added, "tools_changed", "tools_differ"),
    "session id in the head": (session_in_head, "head_changed", "session_head"),
}


def made(name: str | None = None) -> list[Request]:
    """Return the unbroken requests, or those of a variant, in order of time, with usage."""
    requests = sorted(base(), key=lambda request: request["t_start"])
    requests = copy.deepcopy(requests)
    if name is not None:
        VARIANTS[name][0](requests)
    for request in requests:
        size = len(prompt_bytes(request))
        usage = {"input_tokens": size // BYTES_PER_TOKEN, "output_tokens": 100}
        request["response"]["usage"] = usage
    return requests


def encoded(item: Json) -> bytes:
    return json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode()


def prompt_bytes(request: Request) -> bytes:
    """Return what a server reads of a request, the model's name aside."""
    body = request["body"]
    return b"".join(map(encoded, [*body["tools"], *body["input"]]))


def path_bytes(request: Request) -> bytes:
    return prompt_bytes(request) + b"".join(map(encoded, request["response"]["output"]))


def write(requests: list[Request], path: Path) -> Path:
    lines = (json.dumps(request, ensure_ascii=False) + "\n" for request in requests)
    path.write_text("".join(lines), encoding="utf-8")
    return path


# Helpers


def made_by_model(item: Json) -> bool:
    return item["type"] in MODEL_ITEMS or item.get("role") == "assistant"


def user_at(body: Json, which: int) -> int:
    """Return the place of the first or last user message that a person wrote."""
    users = [
        at
        for at, item in enumerate(body["input"])
        if item.get("role") == "user" and not item["content"][0]["text"].startswith("<")
    ]
    return users[which]


def with_text(item: Json, before: str, after: str = "") -> Json:
    changed = copy.deepcopy(item)
    changed["content"][0]["text"] = before + changed["content"][0]["text"] + after
    return changed


def turned(value: Any, by: int) -> Any:
    """Return a value with the keys of its objects turned by some places."""
    if isinstance(value, dict):
        keys = list(value)
        cut = by % len(keys) if keys else 0
        return {key: turned(value[key], by) for key in keys[cut:] + keys[:cut]}
    return [turned(each, by) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for variant in (None, *VARIANTS):
        write(made(variant), folder / f"{(variant or 'unbroken').replace(' ', '-')}.jsonl")
