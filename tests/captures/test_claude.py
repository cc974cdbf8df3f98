"""Claude Code's transcripts against the requests that were really sent: every capture."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.ingest.claude import calls, paths
from agentkv_trace.ingest.claude.relation import AGREES, COMPACTED, HIGHER, NEW_HEAD, WIDE
from agentkv_trace.ingest.claude.reminders import CONCURRENCY, DATE_TAIL, QUEUED_TAIL, TASKS
from agentkv_trace.ingest.claude.track import COMPACTION_PROMPT
from agentkv_trace.ingest.codex.items import digest
from agentkv_trace.notes import Notes
from conftest import SHARED

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.call import LoggedCall, Node

CAPTURES = sorted(wire.parent for wire in (SHARED / "captures" / "claude").glob("*/wire.jsonl.gz"))
pytestmark = pytest.mark.skipif(
    not CAPTURES, reason="needs the captures in ../shared, which are not in this repo"
)

# What no log holds, or holds otherwise than it was sent:
CONTEXT = "the context (date, memory files) before the first words is part of the head"
SENTENCES = "sentences of the client are sized, not repeated"
UNLOGGED = "a compaction has no line of its own: no usage, and its last words are in no log"
REDATED = "the agent's clock was set: its stamps are not the server's"
PAST_SEVERAL_MS = 3_600_000
WRAPPER = ("<system-reminder>\n", "\n</system-reminder>")
# (Tools and system prompt are in no log either: they are the head, which has no message.)

START_MS = (-150.0, 60.0)
START_MEDIAN_MS = (-25.0, 25.0)
END_MS = (-20.0, 80.0)
END_MEDIAN_MS = (-5.0, 15.0)

EXPECTED = {AGREES, COMPACTED, NEW_HEAD, WIDE, HIGHER}
"""Every other verdict on a cache read would need a reason."""


@pytest.fixture(params=CAPTURES, ids=lambda path: path.name)
def capture(request: pytest.FixtureRequest) -> Capture:
    return Capture(request.param)


class Capture:
    def __init__(self, folder: Path) -> None:
        self.notes = Notes(strict=True)
        found = list(calls.read(paths.find(folder), self.notes))
        with gzip.open(folder / "wire.jsonl.gz", "rt") as file:
            rows = [json.loads(line) for line in file]
        rows = [row for row in rows if row["kind"] != "count_tokens"]
        rows.sort(key=lambda row: row["t_start"])
        self.rows = [row for at, row in enumerate(rows) if succeeded(row, rows[at + 1 :])]
        self.failed = [row for row in rows if not any(row is one for one in self.rows)]
        mine: dict[str, list[LoggedCall]] = defaultdict(list)
        for call in found:
            mine[call.session].append(call)
        wire: dict[str, list[Any]] = defaultdict(list)
        for row in self.rows:
            wire[session_of(row)].append(row)
        self.sessions = {name: (mine[name], wire[name]) for name in wire | mine}
        shifts = sorted(call.start_us / 1e3 - row["t_start"] / 1e6 for call, row in self.pairs())
        self.redated = abs(shifts[len(shifts) // 2]) > PAST_SEVERAL_MS

    def pairs(self) -> list[tuple[LoggedCall, Any]]:
        return [
            pair for mine, wire in self.sessions.values() for pair in zip(mine, wire, strict=True)
        ]


def succeeded(row: Any, later: list[Any]) -> bool:
    """Tell whether a response came that the client went on from.

    A stream that broke off behind a complete block is not asked for again, and logged.
    """
    if row.get("status", 200) != 200 or row.get("client_gone"):
        return False
    messages = row["body"]["messages"]
    again = any(one["body"]["messages"] == messages for one in later)
    return not row.get("dropped") or not again


def session_of(row: Any) -> str:
    headers = {name.lower(): value for name, value in row["headers"].items()}
    return headers.get("x-claude-code-agent-id") or headers["x-claude-code-session-id"]


def test_as_many_calls_as_successful_requests_in_each_session(capture: Capture) -> None:
    counts = {name: (len(mine), len(wire)) for name, (mine, wire) in capture.sessions.items()}
    assert all(mine == wire for mine, wire in counts.values()), counts
    assert capture.notes.counts["calls"] == len(capture.rows)


def test_calls_are_in_the_order_of_the_requests(capture: Capture) -> None:
    for mine, _ in capture.sessions.values():
        starts = [call.start_us for call in mine]
        assert starts == sorted(starts)
        assert all(call.end_us >= call.start_us for call in mine)


def test_usage_is_that_of_the_response(capture: Capture) -> None:
    for call, row in capture.pairs():
        usage = row["usage"]
        if call.kind == "compaction":
            assert (call.usage_source, call.logged_prompt_tokens) == ("none", None), UNLOGGED
            continue
        parts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        assert call.logged_prompt_tokens == sum(usage[part] for part in parts)
        assert call.logged_cached_tokens == usage["cache_read_input_tokens"]
        assert call.output_tokens == usage["output_tokens"] or row.get("dropped")
        assert call.usage_source == "logged"


def test_messages_are_those_of_the_request(capture: Capture) -> None:
    for call, row in capture.pairs():
        theirs = [normalised(message) for message in row["body"]["messages"]]
        drop_context(theirs[0])
        mine = nodes_of(call.prompt)
        assert mine[0].parent is None
        mine = [node for node in mine[1:] if not node.content.startswith(b"head\0")]
        if call.kind == "compaction":
            assert mine[-1].content == COMPACTION_PROMPT.identity, UNLOGGED
            assert theirs[-1]["role"] == "user"
            asked = theirs[-1]["content"].pop()
            assert len(asked["text"]) / 6 < COMPACTION_PROMPT.tokens < len(asked["text"]) / 3
            mine = mine[:-1]
            theirs = theirs if theirs[-1]["content"] else theirs[:-1]
        mine = check_listing(mine, theirs)
        messages, sized = grouped(mine)
        assert len(messages) == len(theirs)
        for message, pieces, sent in zip(messages, sized, theirs, strict=True):
            check_message(message, pieces, sent)


def normalised(message: Any) -> Any:
    content = message["content"]
    if isinstance(content, str) and message["role"] != "system":
        content = [{"type": "text", "text": content}]
    if isinstance(content, list):
        content = [{k: v for k, v in block.items() if k != "cache_control"} for block in content]
    return {"role": message["role"], "content": content}


def drop_context(message: Any) -> None:
    """Take out what stands before the first words: CONTEXT."""
    (at,) = [
        at
        for at, block in enumerate(message["content"])
        if block["type"] == "text" and "# currentDate" in block["text"]
    ]
    del message["content"][at]


def check_listing(mine: list[Node], theirs: list[Any]) -> list[Node]:
    """Check and take out what is listed at the beginning of a conversation, which is sized."""
    listed = [node for node in mine if node.content.startswith(b"environment\0")]
    if not listed:
        return mine
    (node,) = listed
    note = theirs[1] if len(theirs) > 1 and theirs[1]["role"] == "system" else None
    if note is not None:
        words = note["content"]
        theirs.remove(note)
    else:
        blocks = theirs[0]["content"]
        wrapped = [b["text"].strip() for b in blocks if b.get("text", "").startswith(WRAPPER[0])]
        del blocks[: len(wrapped)]
        words = "\n\n".join(w.removeprefix(WRAPPER[0]).removesuffix(WRAPPER[1]) for w in wrapped)
    assert len(words) / 5 < (node.tokens or 0) < len(words) / 4
    parts = words.split("\n\n")
    options = [parts, *(parts[:at] + parts[at + 1 :] for at in range(len(parts)))]
    digests = [b"environment\0" + digest("\n\n".join(option).encode()) for option in options]
    assert node.content in digests, SENTENCES
    return [each for each in mine if each is not node]


def grouped(nodes: list[Node]) -> tuple[list[Any], list[list[Node]]]:
    """Return messages, and for each what of it is sized."""
    messages: list[Any] = []
    sized: list[list[Node]] = []
    for node in nodes:
        if node.tokens is None:
            messages.append(json.loads(node.content))
            sized.append([])
        else:
            sized[-1].append(node)
    return messages, sized


def check_message(message: Any, pieces: list[Node], sent: Any) -> None:
    pieces = check_secrets(pieces, sent)
    if not pieces:
        # Key order counts: it is part of what is cached.
        assert json.dumps(message) == json.dumps(sent)
        return
    known = {piece.identity for piece in (CONCURRENCY, TASKS, DATE_TAIL, QUEUED_TAIL)}
    assert {piece.content for piece in pieces} <= known, SENTENCES
    assert message["role"] == sent["role"]
    ours, theirs = texts_of(message), texts_of(sent)
    missing = sum(map(len, theirs)) - sum(map(len, ours))
    for words, whole in zip(ours, theirs, strict=True):
        check_sentences(words, whole)
    tokens = sum(piece.tokens or 0 for piece in pieces)
    assert missing / 6 < tokens < missing / 3, SENTENCES


def check_secrets(pieces: list[Node], sent: Any) -> list[Node]:
    """Check encrypted thinking, which is sized, and take it out on both sides."""
    blocks = sent["content"] if isinstance(sent["content"], list) else []
    secrets = [block.pop("signature") for block in blocks if block["type"] == "thinking"]
    found = [piece.content for piece in pieces if piece.fitted]
    assert found == [b"thinking\0" + digest(secret.encode()) for secret in secrets]
    return [piece for piece in pieces if not piece.fitted]


def check_sentences(words: str, whole: str) -> None:
    """Parts of what was sent may be missing from our words, none may differ or be added."""
    at = 0
    for part in words.replace(".\n\n", "\n\n").split("\n"):
        at = whole.find(part.rstrip("."), at)
        assert at >= 0, SENTENCES
        at += len(part.rstrip("."))


def texts_of(message: Any) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else [json.dumps(block) for block in content]


def test_the_next_prompt_goes_on_from_the_path(capture: Capture) -> None:
    for mine, _ in capture.sessions.values():
        for before, call in itertools.pairwise(mine):
            if call.kind not in ("turn", "fold"):
                continue
            path = [(node.content, node.tokens) for node in nodes_of(before.path)]
            prompt = [(node.content, node.tokens) for node in nodes_of(call.prompt)]
            assert (prompt[: len(path)] == path) == (call.kind == "turn")
            assert len(nodes_of(before.prompt)) < len(path)


def test_times_are_close_to_the_servers(
    capture: Capture, record_property: pytest.RecordProperty
) -> None:
    if capture.redated:
        pytest.skip(REDATED)
    starts, ends = [], []
    for call, row in capture.pairs():
        began, ended = row["t_start"] / 1e6, row["t_end"] / 1e6
        # A failed attempt is in no log: the call then seems to begin with the first attempt.
        messages = row["body"]["messages"]
        tries = [r["t_start"] / 1e6 for r in capture.failed if r["body"]["messages"] == messages]
        start = call.start_us / 1e3
        assert min([began, *tries]) + START_MS[0] <= start <= began + START_MS[1]
        starts += [] if tries else [start - began]
        ends.append(call.end_us / 1e3 - ended)
        assert END_MS[0] <= ends[-1] <= END_MS[1]
    for name, offsets, (low, high) in (
        ("start", sorted(starts), START_MEDIAN_MS),
        ("end", sorted(ends), END_MEDIAN_MS),
    ):
        middle = offsets[len(offsets) // 2]
        text = f"{name}: {offsets[0]:+.1f} .. median {middle:+.1f} .. {offsets[-1]:+.1f} ms"
        record_property(name, text)
        print(text)  # noqa: T201
        assert low <= middle <= high


def test_kinds_tell_compactions_and_sub_agents(capture: Capture) -> None:
    for mine, wire in capture.sessions.values():
        for index, (call, row) in enumerate(zip(mine, wire, strict=True)):
            assert (call.kind == "compaction") == (row["kind"] == "compact")
            if not index:
                assert (call.parent_session is not None) == (call.kind in ("subagent", "fork"))
            thought = any(node.fitted for node in nodes_of(call.prompt))
            expected = "reasoning_opaque" if thought else "head_estimated"
            if call.kind == "compaction":
                expected = "compaction_estimated"
            # The words around queued commands are those of other versions.
            queued = capture.notes.counts["queued commands"] > 0
            assert call.fidelity == expected or (queued and call.fidelity == "output_reformatted")
            headers = {name.lower() for name in row["headers"]}
            assert (call.agent == "claude") == ("x-claude-code-agent-id" not in headers)


def test_each_cache_read_is_what_the_call_before_had_cached(capture: Capture) -> None:
    """Prompt caching's own record agrees with the rebuilt prefixes, but for named reasons.

    After a compaction and in a new process with another head less is read, after a turn of more
    than 20 blocks the provider falls back to an earlier marker, and where a first attempt is in
    no log, more is read.
    """
    verdicts = Counter(
        {
            name.removeprefix("cache reads "): count
            for name, count in capture.notes.counts.items()
            if name.startswith("cache reads ")
        }
    )
    assert set(verdicts) <= EXPECTED, verdicts
    compactions = sum(call.kind == "compaction" for call, _ in capture.pairs())
    assert verdicts[COMPACTED] <= compactions
    assert verdicts[HIGHER] <= len(capture.failed)
    assert verdicts[AGREES] == agreeing_on_the_wire(capture)


def agreeing_on_the_wire(capture: Capture) -> int:
    """Count pairs of successive logged calls whose reads agree, from the wire's own usage."""
    count = 0
    for name, (_, wire) in capture.sessions.items():
        logged = [row["usage"] for row in wire if row["kind"] != "compact"]
        if origin := next((o for o in capture.sessions if forked(capture, o, name)), None):
            logged.insert(0, capture.sessions[origin][1][-1]["usage"])
        for before, after in itertools.pairwise(logged):
            cached = before["cache_read_input_tokens"] + before["cache_creation_input_tokens"]
            count += after["cache_read_input_tokens"] == cached
    return count


def forked(capture: Capture, origin: str, name: str) -> bool:
    mine = capture.sessions[name][0]
    return bool(mine) and mine[0].kind == "fork" and mine[0].parent_session == origin


def nodes_of(node: Node | None) -> list[Node]:
    found = []
    while node is not None:
        found.append(node)
        node = node.parent
    return found[::-1]
