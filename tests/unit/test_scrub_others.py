"""Scrubbed trajectories, gateways' logs and spans give the traces of the originals."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.ingest.discover import named_logs
from agentkv_trace.ingest.scrub.run import members_of
from gateway_logs import AT, generation, lines, payload, said, span, spans, spend, user
from mini_logs import answer, completion, mini, observed, system, write
from mini_logs import user as asked
from scrubbing import Logs, assert_same_trace, kept_words, trace_of, words, words_in_place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Json = dict[str, Any]
CALLS = [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"a":"ls"}'}}]
TALK = [user("mend the sail"), said("looking"), user("splendid")]


def of_mini(folder: Path) -> str:
    error = asked("Wrong form", interrupt_type="FormatError", response=completion(2, "nope", 130))
    picture = {"url": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAYAAACqaXHe"}
    seen = {"role": "user", "content": [{"type": "image_url", "image_url": picture}]}
    messages = [system(), asked("mend it"), answer(1, "looking", tool_calls=CALLS)]
    messages += [observed(1, "planks", tool_call_id="c1"), error, seen, answer(3, "mended", 150)]
    write(folder, "sail/sail-7.traj.json", mini(messages))
    fenced = {"role": "assistant", "content": "look:\n\n```bash\nls planks\n```"}
    write(folder, "old/bare.traj.json", [system(), asked("mend"), fenced, asked("planks"), fenced])
    return f"mini-swe:{folder}"


def of_swe(folder: Path) -> str:
    query = [{**system(), "agent": "main"}, {**asked("mend it"), "agent": "main"}]
    told = {"role": "tool", "content": "planks", "tool_call_ids": ["c1"], "agent": "main"}
    second = [*query, {"role": "assistant", "content": "look", "tool_calls": CALLS}, told]
    steps = [
        {"action": "ls", "observation": "planks", "response": words, "query": sent}
        for words, sent in (("look", query), ("mended", second))
    ]
    config = json.dumps({"agent": {"model": {"name": "sail-1"}, "name": "secret"}})
    about = {"info": {"swe_agent_version": "1.1.0"}, "replay_config": config}
    write(folder, "a.traj", {"trajectory": steps, "history": [], **about, "environment": "main"})
    history = [{**each, "agent": "primary"} for each in second]
    step = {"action": "ls", "observation": "planks", "response": "look", "state": "{}"}
    write(folder, "b.traj", {"trajectory": [step], "history": history, "info": {}})
    return f"swe-agent:{folder}"


def of_litellm(folder: Path) -> str:
    tools = [{"type": "function", "function": {"name": "bash"}}]
    lines(
        folder,
        "log.jsonl",
        payload(1, TALK[:1], model_parameters={"tools": tools}),
        payload(2, [*TALK[:1], said("answer 1"), TALK[2]], model_parameters={"tools": tools}),
        payload(3, "redacted-by-litellm"),
        payload(4, TALK, cache_hit=True),
    )
    cut = "begin... (litellm_truncated skipped 4000 chars. Raise a limit) ...end"
    sent = json.dumps({"model": "sail-1", "messages": [user(cut)]})
    lines(folder, "spend.jsonl", spend(1), spend(2, proxy_server_request=sent))
    return f"gateways:{folder}"


def of_langfuse(folder: Path) -> str:
    listed = [
        generation(1, TALK[:1]),
        generation(2, json.dumps(TALK), usage={"input": 7, "input_cached_tokens": 90}),
        {"id": "g3", "traceId": "t1", "type": "SPAN"},
    ]
    write(folder, "export.json", {"trace": {"id": "t1", "sessionId": "s"}, "observations": listed})
    return f"gateways:{folder}"


def of_pairs(folder: Path) -> str:
    events = 'data: {"type":"message_start","message":{"id":"m1","usage":{"input_tokens":9}}}\n'
    body = {"model": "sail-1", "system": "You mend.", "messages": [user("mend it")]}
    request = {"timestamp": AT, "method": "POST", "url": "https://sea.example/v1/messages"}
    response = {"timestamp": AT + 1, "status_code": 200, "body_raw": events}
    lines(folder, "log.jsonl", {"request": request | {"body": body}, "response": response})
    return f"gateways:{folder}"


@pytest.mark.parametrize("logs", [of_mini, of_swe, of_litellm, of_langfuse, of_pairs])
def test_a_scrubbed_log_gives_the_same_trace(logs: Callable[[Path], str], tmp_path: Path) -> None:
    name = logs(tmp_path / "in")
    before = Logs(name)
    found = before.scrubbed(tmp_path / "out")
    after = f"{before.source.name}:{tmp_path / 'out'}"
    assert_same_trace(trace_of(name), trace_of(after))
    # Told by content as well.
    assert {each.name for each in named_logs([str(tmp_path / "out")]).logs} == {before.source.name}
    kept = kept_words(before, [original for original, _ in found])
    for (_, original), (_, copy) in found:
        assert words_in_place(original, copy) <= kept
        assert not {b"planks", b"mend", b"splendid", b"secret"} & words(copy)


def test_of_scrubbed_spans_only_the_model_differs(tmp_path: Path) -> None:
    parts = [{"role": "user", "parts": [{"type": "text", "content": "mend the sail"}]}]
    new = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(parts)}
    new |= {"gen_ai.usage.input_tokens": 90, "gen_ai.usage.cache_read.input_tokens": 60}
    old = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "mend the sail"}
    old |= {"llm.request.type": "chat", "gen_ai.usage.prompt_tokens": 80}
    said_so = {"name": "gen_ai.choice", "attributes": []}
    listed = [span(1, new | {"gen_ai.request.model": "sail-1"}), span(2, old, events=[said_so])]
    lines(tmp_path / "in", "log.jsonl", spans(*listed))
    name = f"gateways:{tmp_path / 'in'}"
    logs = Logs(name)
    logs.scrubbed(tmp_path / "out")
    before, after = trace_of(name), trace_of(f"gateways:{tmp_path / 'out'}")
    one, other = before.trace.frame(), after.trace.frame()
    assert len(one) == 2
    for column in set(one.columns) - {"model", "session"}:
        assert one[column].to_list() == other[column].to_list(), column


def test_what_cannot_be_scrubbed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("Received request a: prompt: 'secret', params: SamplingParams(n=1)\n")
    with pytest.raises(InputError, match=r"server's log cannot be scrubbed; .* --salt"):
        members_of(named_logs([str(path)]))
