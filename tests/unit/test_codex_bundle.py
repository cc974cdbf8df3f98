"""Trace bundles: exact requests, alone and beside the rollout of the same thread."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.ingest.codex import calls
from agentkv_trace.notes import Notes
from codex_logs import (
    EPOCH_MS,
    EPOCH_US,
    Log,
    asked,
    head,
    nodes,
    read,
    said,
    thought,
    tokens,
    told,
    words,
    zstd,
)

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.call import LoggedCall

BASE = said("developer", "be brief")
TOOLS = [{"type": "function", "name": "look"}]


@dataclass
class Bundle:
    """A bundle in the making; payloads may be put into several files."""

    thread: str
    payloads: list[bytes] = field(default_factory=list)
    events: list[bytes] = field(default_factory=list)
    requests: int = 0

    def event(self, at_ms: int, **payload: Any) -> None:
        record = {
            "schema_version": 3,
            "seq": len(self.events) + 1,
            "wall_time_unix_ms": EPOCH_MS + at_ms,
            "thread_id": self.thread,
            "payload": payload,
        }
        self.events.append(json.dumps(record, separators=(",", ":")).encode())

    def payload(self, value: Any) -> dict[str, Any]:
        data, name = json.dumps(value).encode(), f"raw_payload:{len(self.payloads) + 1}".encode()
        size = len(name).to_bytes(2, "little") + len(data).to_bytes(8, "little")
        self.payloads.append(size + name + data)
        return {"raw_payload_id": name.decode(), "shard": 1}

    def started(self, about: dict[str, Any]) -> None:
        self.event(
            0, type="thread_started", thread_id=self.thread, metadata_payload=self.payload(about)
        )

    def request(
        self,
        at: int,
        end: int | None,
        items: list[Any],
        out: list[Any],
        used: Any = None,
        **body: Any,
    ) -> None:
        self.requests += 1
        call = f"inference-{self.requests}"
        sent = self.payload({"model": "model-a", "input": items, "tools": TOOLS, **body})
        self.event(
            at,
            type="inference_started",
            inference_call_id=call,
            model="model-a",
            request_payload=sent,
        )
        self.payload({"not": "wanted"})
        if end is None:
            self.event(at + 9, type="inference_failed", inference_call_id=call)
            return
        answer = {
            "response_id": f"resp_1_{self.requests}",
            "token_usage": used,
            "output_items": out,
        }
        came = self.payload(answer)
        self.event(
            end,
            type="inference_completed",
            inference_call_id=call,
            response_id=answer["response_id"],
            response_payload=came,
        )

    def save(self, folder: Path, shards: int = 1) -> Path:
        place = folder / "trace-1"
        (place / "payloads").mkdir(parents=True)
        manifest = place / "manifest.json"
        about = {"schema_version": 3, "trace_id": "t", "raw_event_log": "/etc/passwd"}
        manifest.write_text(json.dumps(about))
        (place / "trace.jsonl").write_bytes(b"\n".join(self.events) + b"\n")
        for shard in range(shards):
            part = self.payloads[
                shard * len(self.payloads) // shards : (shard + 1) * len(self.payloads) // shards
            ]
            (place / "payloads" / f"{shard + 1:06}.zst").write_bytes(zstd(b"".join(part)))
        return manifest


FIRST = [BASE, said("user", "go")]
ANSWER = [{"id": "rs_1", **thought()}, {"id": "fc_1", **asked("a")}]
SECOND = [*FIRST, *ANSWER, told("a")]


def two_requests(thread: str) -> Bundle:
    bundle = Bundle(thread)
    bundle.started({"thread_id": thread, "session_source": "exec", "agent_role": None})
    bundle.request(100, 900, FIRST, ANSWER, tokens(100, 20, 64, 12))
    bundle.request(1500, 1800, SECOND, [said("assistant", "ok")], tokens(130, 5))
    return bundle


def rollout(*, base: str = "be brief\nplan well") -> Log:
    log = Log().meta(base_instructions={"text": base}).context().user("go")
    log.wait(500).item(ANSWER[0]).item(ANSWER[1]).wait(500).usage(100, 20, 64, 12).item(told("a"))
    log.wait(500).item(said("assistant", "ok")).usage(130, 5)
    return log.user("more").item(said("assistant", "yes")).usage(160, 5)


def summary(call: LoggedCall) -> tuple[Any, ...]:
    return (call.start_us - EPOCH_US, call.end_us - EPOCH_US, call.time_source, call.fidelity)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_bundle_alone_gives_its_requests(tmp_path: Path, shards: int) -> None:
    notes = Notes(strict=True)
    first, second = read(two_requests("thread").save(tmp_path, shards), notes=notes)
    assert words(first.prompt) == ["be brief", "go"]
    assert words(first.path) == ["be brief", "go", 12, "a"]
    assert words(second.prompt) == ["be brief", "go", 12, "a", "a=fine"]
    assert summary(first) == (100_000, 900_000, "logged", "exact")
    assert summary(second) == (1_500_000, 1_800_000, "logged", "reasoning_opaque")
    assert (first.session, first.agent, first.model) == ("thread", "codex", "model-a")
    assert (first.logged_prompt_tokens, first.logged_cached_tokens, first.output_tokens) == (
        100,
        64,
        20,
    )
    assert nodes(second.prompt)[:3] == nodes(first.prompt)
    assert (notes.counts["calls"], notes.counts["sessions"]) == (2, 1)


def test_the_bundle_wins_where_both_hold_a_call_and_none_counts_twice(tmp_path: Path) -> None:
    log = rollout()
    found = read(log.save(tmp_path), two_requests(log.thread).save(tmp_path))
    assert [c.logged_prompt_tokens for c in found] == [100, 130, 160]
    assert summary(found[0]) == (100_000, 900_000, "logged", "exact")
    assert found[2].time_source == "estimated"
    # The base instructions as sent serve the thread's other calls too, which go on from there.
    assert words(found[2].prompt) == ["be brief", "go", 12, "a", "a=fine", "ok", "more"]
    assert nodes(found[2].prompt)[: len(nodes(found[1].path))] == nodes(found[1].path)
    assert len({head(call.prompt) for call in found}) == 1


def test_nodes_emptied_as_calls_are_taken_still_agree(tmp_path: Path) -> None:
    log = rollout()
    paths = [log.save(tmp_path), two_requests(log.thread).save(tmp_path)]
    taken = []
    for call in calls.read(paths, Notes(strict=True)):
        for node in nodes(call.path):
            node.content = b""
        taken.append(call)
    assert set(nodes(taken[0].path)) < set(nodes(taken[1].path)) < set(nodes(taken[2].path))


def test_a_request_that_was_cut_as_it_was_sent_is_taken_from_the_bundle(tmp_path: Path) -> None:
    log = rollout()
    bundle = Bundle(log.thread)
    bundle.request(100, 900, FIRST, ANSWER, tokens(100, 20, 64, 12))
    bundle.request(
        1500, 1800, [*FIRST, *ANSWER, told("a", "f")], [said("assistant", "ok")], tokens(130, 5)
    )
    found = read(log.save(tmp_path), bundle.save(tmp_path))
    assert words(found[1].prompt)[-1] == "a=f"
    assert words(found[2].prompt)[4] == "a=fine"
    assert len(found) == 3


def test_calls_are_matched_by_usage_where_the_rollout_has_no_response_ids(tmp_path: Path) -> None:
    log = Log("0.128.0").meta(base_instructions={"text": "be brief"}).context().user("go")
    log.item(said("assistant", "ok")).count(100, 20).user("on").item(said("assistant", "k")).count(
        130, 5
    )
    bundle = Bundle(log.thread)
    items = [said("user", "go"), said("assistant", "ok"), said("user", "on")]
    bundle.request(
        1500, 1800, items, [said("assistant", "k")], tokens(130, 5), instructions="be brief"
    )
    found = read(log.save(tmp_path), bundle.save(tmp_path))
    assert [c.time_source for c in found] == ["estimated", "logged"]
    assert nodes(found[1].prompt)[1].content == b"be brief"


def test_a_bundle_tells_a_compaction_and_the_kinds_come_from_the_rollout(tmp_path: Path) -> None:
    bundle = Bundle("thread")
    about = json.dumps({"request_kind": "compaction"})
    bundle.request(
        0,
        5,
        [*FIRST, said("user", "sum up")],
        [said("assistant", "sum")],
        tokens(9),
        tools=[],
        client_metadata={"x-codex-turn-metadata": about},
    )
    bundle.request(
        9, 12, [*FIRST, said("user", "sum up")], [said("assistant", "sum")], tokens(9), tools=[]
    )
    bundle.request(20, 25, FIRST, [], tokens(9))
    found = read(bundle.save(tmp_path))
    assert [c.kind for c in found] == ["compaction", "compaction", "turn"]
    assert head(found[0].prompt) == head(found[1].prompt) != head(found[2].prompt)


def test_requests_without_a_response_are_counted(tmp_path: Path) -> None:
    notes = Notes(strict=True)
    bundle = Bundle("thread")
    bundle.request(0, None, FIRST, [])
    bundle.request(20, 25, FIRST, [], tokens(9))
    assert len(read(bundle.save(tmp_path), notes=notes)) == 1
    assert notes.counts["requests without a response"] == 1


def test_a_sub_agent_of_a_bundle_is_named(tmp_path: Path) -> None:
    bundle = Bundle("child")
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "root", "agent_role": "scout"}}}
    bundle.started({"thread_id": "child", "session_source": source})
    bundle.request(0, 5, FIRST, [], tokens(9))
    call = read(bundle.save(tmp_path))[0]
    assert (call.agent, call.parent_session) == ("codex:scout", "root")


def test_a_damaged_bundle_gives_what_is_whole(tmp_path: Path) -> None:
    manifest = two_requests("thread").save(tmp_path)
    payloads = manifest.parent / "payloads" / "000001.zst"
    data = two_requests("thread").payloads
    payloads.write_bytes(zstd(b"".join(data)[:-30]))
    notes = Notes()
    assert len(read(manifest, notes=notes)) == 1
    assert notes.skipped == {"payload file breaks off": 1}
    assert notes.counts["requests without a response"] == 1


@pytest.mark.parametrize("data", [b"", b"[]", b'{"name":"app"}', b"\0" * 99])
def test_another_manifest_is_skipped(tmp_path: Path, data: bytes) -> None:
    manifest = two_requests("thread").save(tmp_path)
    manifest.write_bytes(data)
    notes = Notes()
    log = Log().meta().context().user("go").item(said("assistant", "ok")).usage(9)
    assert len(read(manifest, log.save(tmp_path), notes=notes)) == 1
    assert notes.skipped == {"no manifest of a trace bundle": 1}


def test_a_bundle_without_its_events_never_loses_the_others(tmp_path: Path) -> None:
    manifest = two_requests("thread").save(tmp_path)
    (manifest.parent / "trace.jsonl").unlink()
    notes = Notes()
    log = Log().meta().context().user("go").item(said("assistant", "ok")).usage(9)
    assert len(read(manifest, log.save(tmp_path), notes=notes)) == 1
    assert notes.skipped == {"unreadable file": 1}
