"""A made log of raw requests: agents at work, each request repeating its whole history.

    python tests/benchmarks/request_logs.py FILE [MEGABYTES]

One JSON line a request, in the order in which the requests ended, as a proxy writes them.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

AGENTS = 12
"""Conversations that go on at the same time."""
TURNS = 80
WORDS = ("tide", "ebb", "slack", "datum", "gauge", "harbour", "phase", "drift", "sill", "neap")
BYTES_PER_TOKEN = 3.5
START = 1_790_000_000.0


def make(path: Path, size: int, seed: int = 1) -> int:
    """Write at least `size` bytes of requests; return how many there are."""
    count = 0
    with path.open("wb") as file:
        for line in lines(seed):
            file.write(line)
            count += 1
            if file.tell() >= size:
                return count
    return count


def lines(seed: int = 1) -> Iterator[bytes]:
    """Yield requests without end; the same for the same seed."""
    rng = random.Random(seed)
    tools = [_tool(name, rng) for name in ("run", "read", "write", "search", "finish")]
    system = {"role": "system", "content": _text(rng, 9000)}
    clock, agents = START, [_Agent(system, rng) for _ in range(AGENTS)]
    while True:
        place = rng.randrange(AGENTS)
        agent = agents[place]
        clock += rng.random()
        yield agent.request(tools, clock)
        if agent.turns == TURNS:
            agents[place] = _Agent(system, rng)


class _Agent:
    def __init__(self, system: Any, rng: random.Random) -> None:
        self.rng, self.turns = rng, 0
        self.name = f"{rng.getrandbits(64):016x}"
        self.messages = [system, {"role": "user", "content": _text(rng, 400)}]
        self.before = 0

    def request(self, tools: list[Any], clock: float) -> bytes:
        rng = self.rng
        ident = f"call_{rng.getrandbits(96):024x}"
        command = {"command": f"grep -n {rng.choice(WORDS)} src/{rng.choice(WORDS)}.py"}
        function = {"name": "run", "arguments": json.dumps(command)}
        call = {"id": ident, "type": "function", "function": function}
        reply = {"role": "assistant", "content": _text(rng, 120), "tool_calls": [call]}
        body = {"model": "made-1", "messages": self.messages, "tools": tools}
        prompt = int(len(json.dumps(body)) / BYTES_PER_TOKEN)
        details = {"cached_tokens": self.before // 128 * 128}
        usage = {"prompt_tokens": prompt, "completion_tokens": 60, "prompt_tokens_details": details}
        choice = {"index": 0, "message": reply, "finish_reason": "tool_calls"}
        response = {"id": f"r-{ident}", "choices": [choice], "usage": usage}
        record = {"start_time": clock, "end_time": clock + 2.0, "session_id": self.name}
        line = json.dumps({**record, "request": body, "response": response})
        output = {
            "role": "tool",
            "tool_call_id": ident,
            "content": _text(rng, rng.randint(200, 6000)),
        }
        self.messages += [reply, output]
        self.before, self.turns = prompt, self.turns + 1
        return line.encode() + b"\n"


def _tool(name: str, rng: random.Random) -> Any:
    parameters = {"type": "object", "properties": {"command": {"type": "string"}}}
    function = {"name": name, "description": _text(rng, 1500), "parameters": parameters}
    return {"type": "function", "function": function}


def _text(rng: random.Random, size: int) -> str:
    found: list[str] = []
    length = 0
    while length < size:
        line = " ".join(rng.choices(WORDS, k=12)) + f" {rng.randint(0, 99999)}"
        found.append(line)
        length += len(line) + 1
    return "\n".join(found)


if __name__ == "__main__":
    megabytes = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    make(Path(sys.argv[1]), megabytes << 20)
