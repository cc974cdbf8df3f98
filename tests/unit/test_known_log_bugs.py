"""Faults that logs are known to have, each by what it is: gateways, tracers and trajectories."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.ingest.discover import named_logs
from agentkv_trace.ingest.mini_swe import calls as mini_calls
from agentkv_trace.ingest.run import Options, ingest
from agentkv_trace.ingest.swe_agent import calls as swe_calls
from agentkv_trace.notes import Notes
from agentkv_trace.trace.agreement import agreement
from gateway_logs import generation, lines, payload, read, said, span, spans, spend, used, user
from mini_logs import answer, mini, system, write
from mini_logs import user as asked

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]
TALK = [user("a"), said("answer 1"), user("b")]


@pytest.mark.parametrize(
    ("usage", "prompt"),
    [
        pytest.param({"input": 100, "input_cached_tokens": 900, "output": 9}, 1000, id="left out"),
        pytest.param(
            {"input": 1000, "input_cached_tokens": 900, "output": 9, "total": 1009},
            1000,
            id="counted in, as the total says",
        ),
        pytest.param(
            {"input": 100, "input_cache_read": 700, "input_cache_creation": 200, "output": 9},
            1000,
            id="cache writes left out",
        ),
    ],
)
def test_langfuse_takes_cached_tokens_out_of_the_input_or_not(
    usage: Json, prompt: int, tmp_path: Path
) -> None:
    """Cached and cache-written tokens count once, whatever the route that logged them."""
    found, _ = read(write(tmp_path, "log.json", [generation(1, TALK, usage)]))
    assert found[0].logged_prompt_tokens == prompt


def test_spans_of_a_provider_that_counts_cached_tokens_beside_the_input(tmp_path: Path) -> None:
    """Cached tokens that do not fit into the input were left out of it."""
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 100}
    attributes |= {"gen_ai.usage.cache_read.input_tokens": 900}
    found, _ = read(lines(tmp_path, "log.jsonl", spans(span(1, attributes))))
    assert used(found[0])[:2] == (1000, 900)


def test_litellm_left_cache_writes_out_of_prompt_tokens_once(tmp_path: Path) -> None:
    """A prompt cannot hold fewer tokens than were written to the cache."""
    usage = {"prompt_tokens": 4, "completion_tokens": 9, "cache_creation_input_tokens": 6553}
    record = payload(1, TALK, prompt=4, metadata={"usage_object": usage})
    found, _ = read(lines(tmp_path, "log.jsonl", record))
    assert found[0].logged_prompt_tokens == 6557


def test_totals_of_a_trajectory_are_the_clients_estimate(tmp_path: Path) -> None:
    """Tokens that a client counted itself, without any split by cache, are no usage."""
    step = {"action": "ls", "observation": "", "response": "ok", "query": [system(), asked("hi")]}
    stats = {"model_stats": {"tokens_sent": 900, "api_calls": 1}}
    notes = Notes(strict=True)
    path = write(tmp_path, "a.traj", {"trajectory": [step], "history": [], "info": stats})
    found = list(swe_calls.read([path], notes))
    assert [(call.logged_prompt_tokens, call.usage_source) for call in found] == [(None, "none")]
    assert notes.counts["totals that the client estimated, not used"] == 1


def test_bodies_of_spend_logs_are_cut_in_the_middle(tmp_path: Path) -> None:
    """A text that was cut is one opaque part of the length that its mark tells."""
    cut = "a" * 700 + "... (litellm_truncated skipped 8000 chars. ) ..." + "b" * 1300
    sent = json.dumps({"model": "sail-1", "messages": [user(cut)]})
    records = [spend(1, proxy_server_request=sent), spend(2, proxy_server_request=sent)]
    found, _ = read(lines(tmp_path, "log.jsonl", *records))
    assert [call.fidelity for call in found] == ["output_reformatted"] * 2
    assert found[0].prompt is found[1].prompt
    assert found[0].prompt.tokens == pytest.approx(10_000 / 4, rel=0.05)


def test_calls_that_were_never_logged_are_told_from_usage(tmp_path: Path) -> None:
    """What a provider reused beyond all prompts in the log tells of calls that are not in it."""
    later = [*TALK, said("answer 1"), user("c" * 4000), said("e"), user("d")]
    lines(tmp_path, "log.jsonl", payload(1, TALK, 40), payload(3, later, 1100, cached=1024))
    trace = ingest(named_logs([str(tmp_path)]), Options()).trace
    assert agreement(trace)["gateways"].cached_beyond == 1


def test_usage_that_was_lost_is_not_zero(tmp_path: Path) -> None:
    """A stream without usage leaves a call without usage, not one of no tokens."""
    record = payload(1, TALK, prompt_tokens=0, completion_tokens=0, metadata={})
    found, _ = read(lines(tmp_path, "log.jsonl", record))
    assert (found[0].usage_source, found[0].logged_prompt_tokens) == ("none", None)


def test_a_truncated_record_and_the_next_one_on_one_line(tmp_path: Path) -> None:
    """The next record is found again; what was cut off is counted."""
    first, second = (json.dumps(payload(n, [user(f"a{n}")])) for n in (1, 2))
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join([first[:90] + second, "\0" * 40, first + second]))
    found, notes = read(path, strict=False)
    assert len(found) == 3
    assert notes.skipped == {"damaged line": 1, "line of NUL bytes": 1}


def test_images_of_many_megabytes_are_sized_and_never_text(tmp_path: Path) -> None:
    """Base64 in a message becomes one opaque part of an image's tokens."""
    url = (
        "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAYAAACqaXHe" + "A" * 4_000_000
    )
    seen = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    path = write(tmp_path, "a.traj.json", mini([system(), seen, answer(1, "a boat")]))
    (call,) = mini_calls.read([path], Notes(strict=True))
    node, sizes = call.prompt, []
    while node is not None:
        sizes.append(node.tokens if node.tokens is not None else len(node.content))
        node = node.parent
    assert sizes[0] == 4
    assert max(sizes[1:]) < 200


def test_a_wrapper_around_a_call_repeats_its_usage(tmp_path: Path) -> None:
    """Of spans that are inside one another the innermost counts, agents' and chains' do not."""
    usage = {"gen_ai.usage.input_tokens": 50}
    agent = span(1, {"gen_ai.operation.name": "invoke_agent", **usage})
    outer = span(2, {"gen_ai.operation.name": "chat", **usage}, parent="s1")
    inner = span(3, {"gen_ai.operation.name": "chat", **usage}, parent="s2")
    found, _ = read(lines(tmp_path, "log.jsonl", spans(agent, inner, outer)))
    assert len(found) == 1


def test_an_answer_from_the_gateways_own_cache_is_no_call(tmp_path: Path) -> None:
    """No model was asked; spend logs write the flag as a word."""
    records = [spend(1, cache_hit="True"), spend(2, cache_hit="None")]
    found, _ = read(lines(tmp_path, "log.jsonl", *records))
    assert len(found) == 1
