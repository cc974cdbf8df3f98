"""OpenCode's logs against the requests that it really sent.

What no log holds is left out of the comparison:

* title requests: a session's first and, in 1.1, one for every message of the user. No message
  answers them (1.1 keeps a message's title, from which a call of kind `title` is made; it has no
  usage and its prompt is not in the log).
* the system prompt, `messages[0]` of every request, and the `tools`.
* the prompt of a compaction: from 1.18 on the request is one text made from the history, before
  that the history and behind it a request for the summary, which is left out here.
* failed and broken attempts (status 500 and 429, dropped streams): they have no answer.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.ingest.opencode import calls, paths
from agentkv_trace.notes import Notes
from agentkv_trace.trace.build import TraceBuilder
from agentkv_trace.trace.call import LoggedCall, Node

if TYPE_CHECKING:
    from agentkv_trace.trace.store import Trace

SHARED = Path(__file__).parents[3] / "shared"
CAPTURES = SHARED / "captures"
FOLDERS = sorted(
    folder
    for agent in ("opencode", "opencode-versions")
    for folder in CAPTURES.glob(f"{agent}/*")
    if (folder / "wire.jsonl.gz").exists()
)
FLATTENED = (1, 18)

pytestmark = pytest.mark.skipif(
    not FOLDERS, reason="needs the captures in ../shared, which are not in this repo"
)
by_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: f"{p.parent.name}/{p.name}")


@dataclass
class Request:
    """One request that was answered: what was sent, when, and what it used."""

    start_ms: float
    end_ms: float
    messages: list[dict[str, Any]]
    usage: dict[str, Any]
    tools: int
    retried: bool = False
    """Whether an attempt before this one failed, of which the log holds no trace or little."""

    @property
    def compacts(self) -> bool:
        return self.tools == 0


@dataclass
class Seen:
    """A call with its prompt as chat messages, taken before a builder takes the content."""

    call: LoggedCall
    messages: list[dict[str, Any]] = field(default_factory=list)
    output: list[dict[str, Any]] = field(default_factory=list)


def requests(folder: Path) -> list[Request]:
    with gzip.open(folder / "wire.jsonl.gz") as file:
        records = [json.loads(line) for line in file]
    found, failed = [], []
    for record in sorted(records, key=lambda r: r.get("t_start") or r["t_recv"]):
        body = record["body"]
        is_title = "title generator" in str(body["messages"][0]["content"])[:60]
        answered = record.get("status", 200) == 200 and not record.get("dropped")
        if is_title:
            continue
        if not answered:
            failed.append(body["messages"])
            continue
        start, end = record.get("t_start"), record.get("t_end")
        start_ms = record["t_recv"] * 1e3 if start is None else start / 1e6
        end_ms = record["t_done"] * 1e3 if end is None else end / 1e6
        tools = len(body.get("tools", []))
        retried = body["messages"] in failed
        usage = record["usage"]
        found.append(Request(start_ms, end_ms, body["messages"][1:], usage, tools, retried))
    return found


def read(files: list[Path]) -> list[Seen]:
    notes = Notes()
    found = []
    for call in calls.read(files, notes):
        if call.kind != "title":
            messages = spelled(call.prompt)
            found.append(Seen(call, messages, spelled(call.path)[len(messages) :]))
    assert not notes.skipped, notes.examples
    return sorted(found, key=lambda seen: seen.call.start_us)


def logs(folder: Path) -> list[Path]:
    return [path for path in paths.find(folder) if "exports" not in path.parts]


def spelled(node: Node) -> list[dict[str, Any]]:
    found = []
    at: Node | None = node
    while at is not None and at.parent is not None:
        if at.tokens is None:
            found.append(json.loads(at.content))
        at = at.parent
    return found[::-1]


def usage_of(call: LoggedCall) -> tuple[int | None, int | None, int | None]:
    return call.logged_prompt_tokens, call.logged_cached_tokens, call.output_tokens


def wire_usage(usage: dict[str, Any]) -> tuple[int, int, int]:
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return usage["prompt_tokens"], cached, usage["completion_tokens"]


def paired(folder: Path) -> list[tuple[Request, Seen]]:
    sent, seen = requests(folder), read(logs(folder))
    assert len(seen) == len(sent)
    # Calls that run at once may start in another order by the log's clock: join by usage.
    left = list(seen)
    pairs = []
    for request in sent:
        match = next(
            (one for one in left if usage_of(one.call) == wire_usage(request.usage)),
            next((one for one in left if one.call.usage_source == "none"), None),
        )
        assert match is not None, request.usage
        left.remove(match)
        pairs.append((request, match))
    return pairs


@by_folder
def test_calls_are_the_answered_requests_in_order(folder: Path) -> None:
    by_session: dict[str, float] = {}
    for request, seen in paired(folder):
        assert by_session.get(seen.call.session, 0) <= seen.call.start_us
        by_session[seen.call.session] = seen.call.start_us
        assert (seen.call.kind == "compaction") == request.compacts
        if seen.call.usage_source == "logged":
            assert usage_of(seen.call) == wire_usage(request.usage)


@by_folder
def test_prompts_are_what_was_sent(folder: Path) -> None:
    for request, seen in paired(folder):
        if not request.compacts:
            assert seen.messages == request.messages
            assert seen.call.fidelity == "exact"
        elif len(request.messages) > 1:
            assert seen.messages == request.messages[:-1]
        else:
            assert seen.messages == []


@by_folder
def test_outputs_are_what_was_answered_and_what_later_calls_resend(folder: Path) -> None:
    with gzip.open(folder / "wire.jsonl.gz") as file:
        records = [json.loads(line) for line in file]
    answers = {
        json.dumps(record["body"]["messages"][1:]): record["response"]["choices"][0]["message"]
        for record in records
        if "choices" in (record.get("response") or {})
    }
    for request, seen in paired(folder):
        if not answers or request.compacts:
            continue
        # Broken attempts leave an empty message before the answer.
        *left, said = seen.output
        assert all(one == {"role": "assistant", "content": ""} for one in left)
        answer = answers[json.dumps(request.messages)]
        for key in ("content", "reasoning_content", "tool_calls"):
            assert (said.get(key) or None) == (answer.get(key) or None)


@by_folder
def test_exports_give_the_same_trace_as_the_database(folder: Path) -> None:
    exports = [path for path in paths.find(folder) if "exports" in path.parts]
    if not exports:
        pytest.skip("no exports were made of this capture")
    notes = Notes()
    both = list(calls.read(logs(folder), Notes())), list(calls.read(exports, notes))
    # A pipe may cut an export at 64 KiB; what is before that is still read.
    assert len(both[0]) == len(both[1]) or notes.skipped == {"damaged file": 1}
    assert both[1]
    for one, other in zip(*both, strict=False):
        assert spelled(one.prompt) == spelled(other.prompt)
        assert spelled(one.path) == spelled(other.path)
        assert fields(one) == fields(other)
    if not notes.skipped:
        assert build(logs(folder)).table.equals(build(exports).table)
    assert build([*exports, *logs(folder)]).table.equals(build(logs(folder)).table)


def fields(call: LoggedCall) -> dict[str, object]:
    names = (name for name in LoggedCall.__slots__ if name not in ("prompt", "path"))
    return {name: getattr(call, name) for name in names}


@by_folder
def test_shared_prefixes_are_those_of_the_wire(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with gzip.open(folder / "wire.jsonl.gz") as file:
        records = [json.loads(line) for line in file]
    if "lcp_tokens" not in records[0]:
        pytest.skip("no shared prefixes were measured for this capture")
    truth: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for one in sorted(records, key=lambda r: r["t_start"]):
        if one.get("usage") and not one.get("dropped"):
            used = one["usage"]["prompt_tokens"], one["usage"]["completion_tokens"]
            truth.setdefault(used, []).append(one)
    trace = build(logs(folder))
    prompts: list[list[int]] = []
    whole: list[list[int]] = []
    seen: set[str] = set()
    worst = first = 0.0
    offsets, keys = trace.new_chunks()
    for number, row in enumerate(trace.table.to_pylist()):
        base = whole[row["base"]][: row["base_chunks"]] if row["base"] >= 0 else []
        whole.append([*base, *keys[offsets[number] : offsets[number + 1]].tolist()])
        prompt = whole[-1][: row["prompt_chunks"]]
        shared = max((common(prompt, earlier) for earlier in prompts), default=0)
        prompts.append(prompt)
        if row["usage_source"] == "none":
            continue
        record = truth[row["logged_prompt_tokens"], row["output_tokens"]].pop(0)
        ours = shared / len(prompt)
        wire = record["lcp_tokens"] / record["prompt_tokens"]
        off = max(abs(ours - wire) - 1 / len(prompt), 0)
        if row["session"] in seen:
            worst = max(worst, off)
        else:
            first = max(first, off)
        seen.add(row["session"])
    with capsys.disabled():
        print(f"\n{folder.name}: shared prefix off by {worst:.1%}, first calls {first:.1%}")  # noqa: T201
    assert worst <= 0.04


def common(one: list[int], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def build(files: list[Path]) -> Trace:
    with TraceBuilder() as builder:
        for call in calls.read(files, Notes()):
            builder.add(call)
        return builder.finish({})


@by_folder
def test_times_are_off_by_no_more_than_the_log_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A message is begun before its request is sent: 0.1 s, a session's first several seconds.

    The text of a tool's call ends a little before the stream, the stamp of a text just after it.
    """
    starts, firsts, ends = [], [], []
    seen: set[str] = set()
    for request, one in paired(folder):
        off = one.call.start_us / 1000 - request.start_ms
        # A message is begun before its first attempt.
        waited = one.call.session not in seen or request.retried
        (firsts if waited else starts).append(off)
        seen.add(one.call.session)
        ends.append(one.call.end_us / 1000 - request.end_ms)
        assert one.call.start_us <= one.call.end_us
    with capsys.disabled():
        print(f"\n{folder.name}: {spread('start', starts)}, {spread('end', ends)} ms")  # noqa: T201
    assert all(-7000 <= off <= 5 for off in firsts)
    assert all(-4000 <= off <= 5 for off in starts)
    assert -450 <= median(starts) <= 0
    assert -30 <= median(ends) <= 30
    assert all(-130 <= off <= 320 for off in ends)


def spread(name: str, offsets: list[float]) -> str:
    tail = quantiles([abs(off) for off in offsets], n=20)[-1] if len(offsets) > 1 else 0
    return f"{name} median {median(offsets):+.0f}, 95% within {tail:.0f}"
