"""OpenHands logs against the requests that were really sent: every capture, three ways to read."""

from __future__ import annotations

import gzip
import json
import sys
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.ingest.openhands import calls, paths
from agentkv_trace.notes import Notes
from conftest import SHARED

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.call import LoggedCall, Node

CAPTURES = sorted(
    wire.parent for wire in (SHARED / "captures" / "openhands").glob("*/wire.jsonl.gz")
)
pytestmark = pytest.mark.skipif(
    not CAPTURES, reason="needs the captures in ../shared, which are not in this repo"
)

# What no log holds:
TOOLS = "the tools' JSON schemas are in no log: they are the head, which has no message"
CONDENSER = "the prompt of a condenser is in its completion only, not in events"
KILLED = "a killed run has not saved the usage and the latency of its last call"
CUT_OFF = "a response that was coming in as its run was killed is in no log at all"

WAYS = ("events", "completions", "both")
START_MS = (-60.0, 5.0)
"""Start against the request's arrival: end less latency, or the event before it where KILLED."""
END_MS = (0.0, 60.0)
FIRST_START_MS, FIRST_END_MS = (-1000.0, 5.0), (0.0, 150.0)
"""Of the first call of a process, whose latency holds the making of its client."""

Pair = tuple["LoggedCall", Any]


@pytest.fixture(params=CAPTURES, ids=lambda path: path.name)
def capture(request: pytest.FixtureRequest) -> Capture:
    return Capture(request.param)


class Capture:
    def __init__(self, folder: Path) -> None:
        self.was_killed = "SIGKILL" in json.loads((folder / "meta.json").read_text())["notes"]
        with gzip.open(folder / "wire.jsonl.gz", "rt") as file:
            rows = [json.loads(line) for line in file]
        rows = [row for row in rows if row["status"] == 200 and not row.get("dropped")]
        if self.was_killed:
            rows = [row for row in rows if not row.get("client_gone")]  # CUT_OFF
        self.rows = sorted(rows, key=lambda row: row["t_start"])
        found = paths.find(folder)
        given = {
            "events": [path for path in found if path.is_file()],
            "completions": [path for path in found if path.is_dir()],
            "both": found,
        }
        self.notes = {way: Notes(strict=True) for way in WAYS}
        self.calls = {way: list(calls.read(given[way], self.notes[way])) for way in WAYS}

    def pairs(self, way: str) -> list[Pair]:
        """Match calls with requests, each session's in order."""
        mine: dict[str, list[LoggedCall]] = defaultdict(list)
        for call in self.calls[way]:
            mine[call.session].append(call)
        wire: dict[str, list[Any]] = defaultdict(list)
        for row in self.rows:
            wire[session_of(row)].append(row)
        if way == "completions":
            # Their sessions have names of their own: matched by when their first call ended.
            ours = sorted(mine.values(), key=lambda found: found[0].end_us)
            theirs = sorted(wire.values(), key=lambda rows: rows[0]["t_end"])
        else:
            ours = [mine.pop(name.replace("-", "")) for name in wire]
            theirs = list(wire.values())
            assert not mine
        return [
            pair
            for found, rows in zip(ours, theirs, strict=True)
            for pair in zip(found, rows, strict=True)
        ]


def session_of(row: Any) -> str:
    return row["headers"].get("x-litellm-session-id") or row["body"]["prompt_cache_key"]


@pytest.mark.parametrize("way", WAYS)
def test_as_many_calls_as_successful_requests(capture: Capture, way: str) -> None:
    assert len(capture.pairs(way)) == len(capture.rows) == len(capture.calls[way])
    notes = capture.notes[way]
    assert notes.counts["calls"] == len(capture.rows)
    assert notes.counts["deduplicated calls"] == 0
    assert not notes.skipped


@pytest.mark.parametrize("way", WAYS)
def test_usage_is_that_of_the_response(capture: Capture, way: str) -> None:
    for call, row in capture.pairs(way):
        logged = (call.logged_prompt_tokens, call.logged_cached_tokens, call.output_tokens)
        if way == "events" and call.usage_source == "none":
            assert is_last_of_killed(call, row, capture, way), KILLED
            assert logged == (None, None, None)
            continue
        usage = row["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert logged == (usage["prompt_tokens"], cached, usage["completion_tokens"])
        assert call.usage_source == "logged"


def is_last_of_killed(call: LoggedCall, row: Any, capture: Capture, way: str) -> bool:
    """Tell whether no tool call of a response was answered, in a run that was killed."""
    message = row["response"]["choices"][0]["message"]
    asked = {tool["id"] for tool in message.get("tool_calls", ())}
    later = [other for one, other in capture.pairs(way) if one.session == call.session]
    sent = {each.get("tool_call_id") for other in later for each in other["body"]["messages"]}
    return capture.was_killed and not asked & sent


@pytest.mark.parametrize("way", WAYS)
def test_messages_are_those_of_the_request(capture: Capture, way: str) -> None:
    for call, row in capture.pairs(way):
        head, *mine = nodes_of(call.prompt)
        assert (head.parent, head.tokens) == (None, None), TOOLS
        if row["kind"] == "compact" and way == "events":
            assert [node.tokens is None for node in mine] == [False], CONDENSER
            assert call.fidelity == "compaction_estimated"
            continue
        messages = [json.loads(node.content) for node in mine]
        assert messages == row["body"]["messages"]
        # Byte for byte: the order of keys is that of the wire.
        compact = [
            json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()
            for message in row["body"]["messages"]
        ]
        assert [node.content for node in mine] == compact
        assert call.fidelity == "exact"


def test_events_and_completions_give_the_same_prefixes(capture: Capture) -> None:
    read = {way: capture.pairs(way) for way in WAYS}
    by_request = {
        way: {row["seq"]: contents(call.prompt) for call, row in pairs}
        for way, pairs in read.items()
    }
    folds = {row["seq"] for row in capture.rows if row["kind"] == "compact"}
    for row in capture.rows:
        seq = row["seq"]
        assert by_request["completions"][seq] == by_request["both"][seq]
        if seq not in folds:
            assert by_request["events"][seq] == by_request["both"][seq]
    paths_of = {
        way: {row["seq"]: contents(call.path) for call, row in pairs if row["seq"] not in folds}
        for way, pairs in read.items()
    }
    last = {pairs[-1][1]["seq"] for pairs in by_session(read["both"]).values()}
    for seq in paths_of["both"]:
        assert paths_of["events"][seq] == paths_of["both"][seq]
        if seq not in last:  # what no later call resends is as the response was logged
            assert paths_of["completions"][seq] == paths_of["both"][seq]


@pytest.mark.parametrize("way", WAYS)
def test_the_next_prompt_goes_on_from_the_path(capture: Capture, way: str) -> None:
    for pairs in by_session(capture.pairs(way)).values():
        main = [call for call, row in pairs if row["kind"] == "main"]
        for before, call in pairwise(main):
            if call.kind != "fold":
                path = contents(before.path)
                assert contents(call.prompt)[: len(path)] == path
                assert len(contents(before.prompt)) < len(path)


@pytest.mark.parametrize("way", WAYS)
def test_times_are_close_to_the_servers(capture: Capture, way: str) -> None:
    offsets: dict[str, list[float]] = {"start": [], "end": []}
    first = first_seqs(capture)
    for call, row in capture.pairs(way):
        start = call.start_us / 1e3 - row["t_start"] / 1e6
        end = call.end_us / 1e3 - row["t_end"] / 1e6
        is_first = row["seq"] in first
        low, high = FIRST_START_MS if is_first else START_MS
        assert low <= start <= high
        low, high = FIRST_END_MS if is_first else END_MS
        assert low <= end <= high
        assert call.time_source == "logged"
        offsets["start"].append(start)
        offsets["end"].append(end)
    for name, found in offsets.items():
        found.sort(key=abs)
        middle, high = found[len(found) // 2], found[int(len(found) * 0.95)]
        line = f"{way} {name}: median {middle:+.1f} ms, 95th percentile {high:+.1f} ms\n"
        sys.stdout.write(line)


def first_seqs(capture: Capture) -> set[int]:
    """Return the first request of each process, which its clients set up while it is timed."""
    first: dict[str, int] = {}
    last: dict[str, float] = {}
    found = set()
    for row in capture.rows:
        name = session_of(row)
        if name not in first or row["t_start"] - last[name] > 5e9:
            found.add(row["seq"])
        first.setdefault(name, row["seq"])
        last[name] = row["t_end"]
    return found


@pytest.mark.parametrize("way", WAYS)
def test_kinds_and_parents(capture: Capture, way: str) -> None:
    sessions = by_session(capture.pairs(way))
    for pairs in sessions.values():
        main = [call for call, row in pairs if row["kind"] == "main"]
        folded = False
        for number, (call, row) in enumerate(pairs):
            child = row.get("sub") is not None
            assert call.agent == ("openhands:general-purpose" if child else "openhands")
            assert (call.parent_session in sessions) == child
            if row["kind"] == "compact":
                assert call.kind == "compaction"
                folded = True
            elif number == 0:
                assert call.kind == ("subagent" if child else "turn")
            elif folded:
                assert call.kind == "fold"
                folded = False
            elif call.kind != "turn":
                # Another branch: what was not resent is gone from the next prompt.
                before = main[main.index(call) - 1]
                assert call.kind == "fold"
                path = contents(before.path)
                assert contents(call.prompt)[: len(path)] != path


def by_session(pairs: list[Pair]) -> dict[str, list[Pair]]:
    found: dict[str, list[Pair]] = defaultdict(list)
    for call, row in pairs:
        found[call.session].append((call, row))
    return found


def nodes_of(node: Node | None) -> list[Node]:
    found = []
    while node is not None:
        found.append(node)
        node = node.parent
    return found[::-1]


def contents(node: Node) -> list[tuple[bytes, int | None]]:
    return [(each.content, each.tokens) for each in nodes_of(node)]
