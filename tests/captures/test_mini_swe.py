"""mini-swe-agent's trajectories against the requests that were really sent: every capture."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.ingest.mini_swe import calls, paths
from agentkv_trace.notes import Notes
from conftest import SHARED

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.call import LoggedCall, Node

CAPTURES = sorted(
    wire.parent for wire in (SHARED / "captures" / "mini-swe").glob("*/wire.jsonl.gz")
)
pytestmark = pytest.mark.skipif(
    not CAPTURES, reason="needs the captures in ../shared, which are not in this repo"
)

# What no log holds, or holds otherwise than it was sent:
KILLED = "the file is written after each step: the call of a step that was killed is lost"
UNTIMED = "the first start and the end of a reply in a wrong form are known to the second"

START_MS, END_MS = (-100.0, 60.0), (-20.0, 80.0)
SECOND_MS, HALF_MS = 1100.0, 600.0
"""What is known to the second; and, of a first start, half of that, since the middle is taken."""


@pytest.fixture(params=CAPTURES, ids=lambda path: path.name)
def capture(request: pytest.FixtureRequest) -> Capture:
    return Capture(request.param)


class Capture:
    def __init__(self, folder: Path) -> None:
        self.notes = Notes(strict=True)
        found = list(calls.read(paths.find(folder), self.notes))
        with gzip.open(folder / "wire.jsonl.gz", "rt") as file:
            rows = [json.loads(line) for line in file]
        rows.sort(key=lambda row: row["t_start"])
        good = [row for row in rows if row["status"] == 200 and not row.get("dropped")]
        self.failed = [row for row in rows if row not in good]
        mine: dict[str, list[LoggedCall]] = defaultdict(list)
        wire: dict[str, list[Any]] = defaultdict(list)
        for call in found:
            mine[call.session].append(call)
        for row in good:
            wire[row["session"]].append(row)
        killed = "SIGKILL" in json.loads((folder / "meta.json").read_text())["notes"]
        for name, rows in wire.items():
            if killed and len(rows) == len(mine[name]) + 1:
                rows.pop()  # KILLED
        self.sessions = {name: (mine[name], wire[name]) for name in wire | mine}

    def pairs(self) -> list[tuple[LoggedCall, Any]]:
        return [
            pair for mine, wire in self.sessions.values() for pair in zip(mine, wire, strict=True)
        ]


def test_as_many_calls_as_successful_requests(capture: Capture) -> None:
    counts = {name: (len(mine), len(wire)) for name, (mine, wire) in capture.sessions.items()}
    assert all(mine == wire for mine, wire in counts.values()), counts


def test_usage_is_that_of_the_response(capture: Capture) -> None:
    for call, row in capture.pairs():
        usage = row["usage"]
        assert (call.logged_prompt_tokens, call.output_tokens, call.logged_cached_tokens) == (
            usage["prompt_tokens"],
            usage["completion_tokens"],
            usage["prompt_tokens_details"]["cached_tokens"],
        )


def test_messages_are_those_of_the_request(capture: Capture) -> None:
    for call, row in capture.pairs():
        mine = [json.loads(node.content) for node in nodes_of(call.prompt)[1:]]
        theirs = [normalised(message) for message in row["body"]["messages"]]
        assert [json.dumps(normalised(each)) for each in mine] == [json.dumps(t) for t in theirs]


def normalised(message: Any) -> Any:
    """Return a message with its text as a list of one part, without cache markers."""
    message = {key: value for key, value in message.items() if key != "cache_control"}
    content = message.get("content")
    if isinstance(content, str):
        message["content"] = [{"type": "text", "text": content}]
    elif isinstance(content, list):
        message["content"] = [
            {key: value for key, value in part.items() if key != "cache_control"}
            for part in content
        ]
    return message


def test_prompts_only_grow(capture: Capture) -> None:
    for mine, _ in capture.sessions.values():
        for before, call in itertools.pairwise(mine):
            assert call.kind == "turn"
            prompt = [node.content for node in nodes_of(before.prompt)]
            assert [node.content for node in nodes_of(call.prompt)][: len(prompt)] == prompt
            assert len(nodes_of(before.path)) > len(prompt)


def test_times_are_close_to_the_servers(capture: Capture) -> None:
    for mine, wire in capture.sessions.values():
        rough = False
        for call, row in zip(mine, wire, strict=True):
            began, ended = row["t_start"] / 1e6, row["t_end"] / 1e6
            messages = row["body"]["messages"]
            tries = [
                r["t_start"] / 1e6 for r in capture.failed if r["body"]["messages"] == messages
            ]
            start, end = call.start_us / 1e3 - began, call.end_us / 1e3 - ended
            first = min([began, *tries]) - began
            of_error = len(nodes_of(call.path)) > 1 and is_dropped(call, mine)
            low = -SECOND_MS if rough or of_error else START_MS[0]
            low = -HALF_MS if call is mine[0] else low
            high = HALF_MS if call is mine[0] else START_MS[1]
            assert low + first <= start <= high, UNTIMED
            assert (-SECOND_MS if of_error else END_MS[0]) <= end <= END_MS[1], UNTIMED
            rough = of_error


def is_dropped(call: LoggedCall, mine: list[LoggedCall]) -> bool:
    """Tell whether a call's reply is in no later prompt: it had a wrong form."""
    later = mine[mine.index(call) + 1 :]
    reply = nodes_of(call.path)[-1]
    return bool(later) and reply not in nodes_of(later[0].prompt)


def nodes_of(node: Node | None) -> list[Node]:
    found = []
    while node is not None:
        found.append(node)
        node = node.parent
    return found[::-1]
