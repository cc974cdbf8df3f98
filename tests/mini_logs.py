"""Trajectories of mini-swe-agent and SWE-agent of our own making, in the shapes of each version."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.call import Node

Json = dict[str, Any]
AT = 1_790_000_000.0


def system(words: str = "You mend sails.") -> Json:
    return {"role": "system", "content": words}


def user(words: str, **extra: Any) -> Json:
    return {"role": "user", "content": words} | ({"extra": extra} if extra else {})


def completion(number: int, words: str, prompt: int, cached: int = 0, **message: Any) -> Json:
    """Return a chat response with usage."""
    usage = {"prompt_tokens": prompt, "completion_tokens": 7, "total_tokens": prompt + 7}
    usage["prompt_tokens_details"] = {"cached_tokens": cached}
    said = {"role": "assistant", "content": words, **message}
    response = {"id": f"r{number}", "created": int(AT) + number, "model": "sail-1"}
    return response | {"choices": [{"index": 0, "message": said}], "usage": usage}


def answer(number: int, words: str, prompt: int = 100, **message: Any) -> Json:
    """Return an assistant message of version 2 with the response that it came from."""
    extra = {"actions": [], "response": completion(number, words, prompt), "cost": 0.0}
    extra["timestamp"] = AT + 10 * number + 2
    said = {"content": words, "role": "assistant", "function_call": None, **message}
    return said | {"provider_specific_fields": None, "extra": extra}


def observed(number: int, words: str, **fields: Any) -> Json:
    """Return what a command printed."""
    extra = {"raw_output": words, "returncode": 0, "timestamp": AT + 10 * number + 5}
    return {"role": "tool", "content": words, "extra": extra, **fields}


def mini(messages: list[Json], **info: Any) -> Json:
    model = {"model_name": "openai/sail-1", "model_kwargs": {}}
    config = {"model": model, "model_type": "LitellmModel"}
    about = {"model_stats": {"api_calls": 2}, "config": config, "mini_version": "2.4.6", **info}
    return {"info": about, "messages": messages, "trajectory_format": "mini-swe-agent-1.1"}


def write(folder: Path, name: str, value: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2))
    return path


def words(node: Node | None) -> list[str]:
    """Return the messages of a prompt in short."""
    found: list[str] = []
    while node is not None and node.parent is not None:
        if node.tokens is None:
            value = json.loads(node.content)
            message = value if isinstance(value, dict) else {"content": "a list"}
            content = message.get("content") or message.get("type")
            found.append(f"{message.get('role')}: {content}")
        else:
            label = node.content.partition(b"\0")[0].decode()
            found.append(f"{label}:{node.tokens}")
        node = node.parent
    return found[::-1]
