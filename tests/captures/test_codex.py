"""Codex logs against the requests that were really sent: every capture, call by call."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
import xxhash

from agentkv_trace.ingest.codex import calls, paths
from agentkv_trace.notes import Notes
from conftest import SHARED

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.call import LoggedCall, Node

CAPTURES = sorted(
    wire.parent
    for group in ("codex", "codex-versions")
    for wire in (SHARED / "captures" / group).glob("*/wire.jsonl.gz")
)
pytestmark = pytest.mark.skipif(
    not CAPTURES, reason="needs the captures in ../shared, which are not in this repo"
)

# What no log holds, or holds otherwise than it was sent:
BASE_CUT = "base instructions: lines about tools that are off are cut as they are sent"
PROMPT_OF_COMPACTION = "the last item of a compaction prompt is in no log"
ENVIRONMENT = "files of bare items lack the environment item, and any usage"
REFORMATTED = "0.50 logs shell outputs as JSON and sends them as text"
BRIDGE = "0.50 puts messages and summary of a fold into words that are in no log"
# (Tools in direct mode are in no log either: they are the head, which has no item.)

START_MS = (-100.0, 60.0)
START_MEDIAN_MS = (-60.0, 25.0)
"""Start against the request's arrival: logged to some ms, or estimated from the last input, which
is written 13 to 100 ms before."""
END_MS = (-20.0, 60.0)
END_MEDIAN_MS = (-5.0, 15.0)
"""End against the end of the response: the log's writer may lag behind once in a while."""


@pytest.fixture(params=CAPTURES, ids=lambda path: f"{path.parent.name}/{path.name}")
def capture(request: pytest.FixtureRequest) -> Capture:
    return Capture(request.param)


class Capture:
    def __init__(self, folder: Path) -> None:
        self.notes = Notes(strict=True)
        found = list(calls.read(paths.find(folder), self.notes))
        with gzip.open(folder / "wire.jsonl.gz", "rt") as file:
            rows = [json.loads(line) for line in file]
        rows.sort(key=started_ms)
        self.rows = [row for row in rows if succeeded(row)]
        self.failed = [row for row in rows if not succeeded(row)]
        self.calls = sorted(found, key=lambda call: call.start_us)
        by_thread: dict[str, list[LoggedCall]] = defaultdict(list)
        for call in found:
            by_thread[call.session].append(call)
        wire: dict[str, list[Any]] = defaultdict(list)
        for row in self.rows:
            wire[thread_of(row) or next(iter(by_thread))].append(row)
        self.threads = {thread: (by_thread[thread], wire[thread]) for thread in wire | by_thread}

    def pairs(self) -> list[tuple[LoggedCall, Any]]:
        return [
            pair
            for mine, theirs in self.threads.values()
            for pair in zip(mine, theirs, strict=True)
        ]


def succeeded(row: Any) -> bool:
    return row.get("status", 200) == 200 and not row.get("dropped")


def started_ms(row: Any) -> float:
    return row["t_start"] / 1e6 if "t_start" in row else row["t_recv"] * 1e3


def ended_ms(row: Any) -> float:
    return row["t_end"] / 1e6 if "t_end" in row else row["t_done"] * 1e3


def thread_of(row: Any) -> str | None:
    return row.get("headers", {}).get("thread-id") or row["body"].get("prompt_cache_key")


def test_as_many_calls_as_successful_requests_in_each_thread(capture: Capture) -> None:
    counts = {thread: (len(mine), len(wire)) for thread, (mine, wire) in capture.threads.items()}
    assert all(mine == wire for mine, wire in counts.values()), counts
    assert capture.notes.counts["calls"] == len(capture.rows)


def test_calls_are_in_the_order_of_the_requests(capture: Capture) -> None:
    for mine, _ in capture.threads.values():
        starts = [call.start_us for call in mine]
        assert starts == sorted(starts)
        assert all(call.end_us >= call.start_us for call in mine)


def test_usage_is_that_of_the_response(capture: Capture) -> None:
    for call, row in capture.pairs():
        logged = (call.logged_prompt_tokens, call.logged_cached_tokens, call.output_tokens)
        if call.time_source == "order_only":  # ENVIRONMENT
            assert (logged, call.usage_source) == ((None, None, None), "none")
            continue
        if row.get("client_gone") and call.usage_source == "none":
            continue  # killed while the response came in: its usage never arrived
        usage = row["usage"]
        cached = usage["input_tokens_details"]["cached_tokens"]
        assert logged == (usage["input_tokens"], cached, usage["output_tokens"])
        assert call.usage_source == "logged"


def test_items_are_those_of_the_request(capture: Capture) -> None:
    for call, row in capture.pairs():
        body = row["body"]
        mine = nodes_of(call.prompt)
        theirs = [without_id(item) for item in body["input"]]
        assert mine[0].parent is None
        mine = mine[1:]
        if body.get("instructions") and mine and is_plain_text(mine[0]):
            check_base(mine.pop(0).content.decode(), body["instructions"])
        elif not body.get("instructions") and mine[0].tokens is None:
            logged, sent = json.loads(mine[0].content), theirs[0]
            if logged != sent:
                assert logged["role"] == "developer"
                check_base(logged["content"][0]["text"], sent["content"][0]["text"])
                mine, theirs = mine[1:], theirs[1:]
        if call.kind == "compaction":
            check_compaction_prompt(mine.pop(), theirs.pop())
        if call.time_source == "order_only":
            assert "<environment_context>" in theirs.pop(0)["content"][0]["text"], ENVIRONMENT
        assert len(mine) == len(theirs)
        for node, item in zip(mine, theirs, strict=True):
            check_item(node, item, call)


def check_base(logged: str, sent: str) -> None:
    """Lines may be missing from what was sent, none may differ or be added: BASE_CUT."""
    rest = iter(logged.split("\n"))
    assert all(line in rest for line in sent.split("\n")), BASE_CUT


def check_compaction_prompt(node: Node, item: Any) -> None:
    assert item["role"] == "user", PROMPT_OF_COMPACTION
    assert node.tokens is not None


def check_item(node: Node, item: Any, call: LoggedCall) -> None:
    if node.tokens is not None:
        data = json.dumps(item, separators=(",", ":"), ensure_ascii=False).encode()
        assert item["type"] == "reasoning"
        assert node.content == b"reasoning\0" + xxhash.xxh3_128_digest(data)
        return
    logged = json.loads(node.content)
    if logged == item:
        return
    if call.fidelity in ("output_reformatted", "compaction_estimated") and "output" in logged:
        assert without(logged, "output") == without(item, "output")
        assert json.loads(logged["output"])["output"] in item["output"], REFORMATTED
        return
    assert call.fidelity == "compaction_estimated", (logged, item)
    words = logged["content"][0]["text"].split("\n\n")
    sent = iter(item["content"][0]["text"].split("\n\n"))
    assert all(word in sent for word in words), BRIDGE


def test_the_next_prompt_goes_on_from_the_path(capture: Capture) -> None:
    for mine, _ in capture.threads.values():
        for before, call in itertools.pairwise(mine):
            if call.kind not in ("turn", "resume") or before.kind == "compaction":
                continue
            path = [(node.content, node.tokens) for node in nodes_of(before.path)]
            prompt = [(node.content, node.tokens) for node in nodes_of(call.prompt)]
            assert prompt[: len(path)] == path
            assert len(nodes_of(before.prompt)) < len(path)


def test_times_are_close_to_the_servers(
    capture: Capture, record_property: pytest.RecordProperty
) -> None:
    starts, ends = [], []
    for call, row in capture.pairs():
        if call.time_source == "order_only":
            continue
        # A failed attempt is in no log: the call then seems to begin with the first attempt.
        began = started_ms(row)
        tries = [started_ms(one) for one in capture.failed if one["body"] == row["body"]]
        start = call.start_us / 1e3
        assert min([began, *tries]) + START_MS[0] <= start <= began + START_MS[1]
        starts += [] if tries else [start - began]
        if not row.get("client_gone"):
            ends.append(call.end_us / 1e3 - ended_ms(row))
            assert END_MS[0] <= ends[-1] <= END_MS[1]
    for name, offsets, (low, high) in (
        ("start", sorted(starts), START_MEDIAN_MS),
        ("end", sorted(ends), END_MEDIAN_MS),
    ):
        if offsets:
            middle = offsets[len(offsets) // 2]
            assert low <= middle <= high
            text = f"{name}: {offsets[0]:+.1f} .. median {middle:+.1f} .. {offsets[-1]:+.1f} ms"
            record_property(name, text)
            print(text)  # noqa: T201


def test_fidelity_and_kind_tell_what_is_not_exact(capture: Capture) -> None:
    for mine, wire in capture.threads.values():
        for call, row in zip(mine, wire, strict=True):
            compaction = row.get("kind") == "compact" or row["body"].get("tools") == []
            assert (call.kind == "compaction") == compaction
            if compaction and call.fidelity != "exact":
                assert call.fidelity == "compaction_estimated"
            opaque = any(node.tokens is not None for node in nodes_of(call.prompt)[1:])
            assert not opaque or call.fidelity not in ("exact", "head_estimated")


def nodes_of(node: Node | None) -> list[Node]:
    found = []
    while node is not None:
        found.append(node)
        node = node.parent
    return found[::-1]


def is_plain_text(node: Node) -> bool:
    return node.tokens is None and not node.content.startswith(b'{"type":')


def without_id(item: Any) -> Any:
    return without(item, "id")


def without(item: Any, key: str) -> Any:
    return {name: value for name, value in item.items() if name != key}
