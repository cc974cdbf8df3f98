"""Claude Code: hidden heads by what was read from the cache, and that record itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentkv_trace.ingest.claude.records import Usage
from agentkv_trace.ingest.claude.relation import (
    AGREES,
    COMPACTED,
    EXPIRED,
    HIGHER,
    LOWER,
    NEW_HEAD,
    WIDE,
    relation,
)
from agentkv_trace.trace.build import TraceBuilder
from claude_logs import Transcript, asked, head, nodes, read, said, used

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.call import LoggedCall, Node

MINUTE_US = 60_000_000


def session(
    name: str, read_tokens: int, *, seconds: float = 0, folder: str = "/home/me", **more: str
) -> Transcript:
    """Return a session whose first call read some tokens of a head of about 20,000."""
    log = Transcript(name, **more)
    log.folder = folder
    log.wait(seconds)
    log.user("hi")
    log.response(f"{name}-1", usage=used(0, 20_000 - read_tokens, read_tokens))
    return log


def shared(one: Node, other: Node) -> int:
    """Return the tokens of the segments that two heads have in common, behind the first one."""
    total = 0
    for a, b in zip(nodes(one)[1:], nodes(other)[1:], strict=False):
        if (a.content, a.tokens) != (b.content, b.tokens) or a.tokens is None:
            break
        total += a.tokens
    return total


def first_calls(folder: Path, *logs: Transcript) -> dict[str, LoggedCall]:
    found, _ = read(*(log.write(folder) for log in logs))
    return {call.session: call for call in reversed(found)}


def chunks_shared(folder: Path, *logs: Transcript) -> tuple[int, int]:
    """Return how many tokens the last of some sessions shares with its base, and its prompt's."""
    found, _ = read(*(log.write(folder) for log in logs))
    with TraceBuilder() as builder:
        for call in found:
            builder.add(call)
        trace = builder.finish({})
    return int(trace.array("base_chunks")[-1]) * 16, int(trace.array("prompt_tokens")[-1])


# Heads


def test_sessions_that_read_nothing_share_no_head(tmp_path: Path) -> None:
    calls = first_calls(tmp_path, session("a", 0), session("b", 0, seconds=60))
    assert head(calls["a"].prompt) != head(calls["b"].prompt)


def test_a_session_shares_as_much_of_a_head_as_its_first_call_read(tmp_path: Path) -> None:
    logs = [session("a", 0), session("b", 17_000, seconds=60)]
    shared_tokens, prompt = chunks_shared(tmp_path, *logs)
    assert abs(shared_tokens - 17_000) <= 32
    assert abs(prompt - 20_000) <= 32


def test_two_sessions_that_read_the_same_also_share_it_with_each_other(tmp_path: Path) -> None:
    logs = [session("a", 0), session("b", 17_000, seconds=60), session("c", 17_000, seconds=90)]
    calls = first_calls(tmp_path, *logs)
    assert head(calls["a"].prompt) == head(calls["b"].prompt) == head(calls["c"].prompt)
    own = [nodes(calls[name].prompt)[1].content for name in "abc"]
    assert len(set(own)) == 3


def test_a_head_is_cut_wherever_others_read_up_to(tmp_path: Path) -> None:
    logs = [
        session("a", 0),
        session("b", 15_000, seconds=60, folder="/other"),
        session("c", 17_000, seconds=90),
    ]
    calls = first_calls(tmp_path, *logs)
    assert shared(calls["a"].prompt, calls["c"].prompt) == 2_000
    assert shared(calls["a"].prompt, calls["b"].prompt) == 0
    shared_tokens, _ = chunks_shared(tmp_path, *logs)
    assert abs(shared_tokens - 17_000) <= 32


@pytest.mark.parametrize("more", [{"model": "claude-opus-4-9"}, {}])
def test_heads_of_other_models_and_versions_share_nothing(
    tmp_path: Path, more: dict[str, str]
) -> None:
    other = session("b", 17_000, seconds=60, **more)
    if not more:
        other.lines = [line.replace(b"2.1.197", b"2.1.198") for line in other.lines]
    calls = first_calls(tmp_path, session("a", 0), other)
    assert head(calls["a"].prompt) != head(calls["b"].prompt)


def test_of_sessions_that_began_at_once_the_later_answer_may_be_the_earlier_call(
    tmp_path: Path,
) -> None:
    calls = first_calls(tmp_path, session("a", 17_000), session("b", 0, seconds=1))
    assert head(calls["a"].prompt) == head(calls["b"].prompt)


def resumed(read_tokens: int, *, pause: float = 60, prompt: bool = True) -> Transcript:
    log = Transcript("a")
    log.user("hi")
    log.response("m1", asked("t1"), usage=used(0, 20_000, 0))
    log.tool("t1")
    log.response("m2", said("done"), usage=used(0, 100, 20_000))
    log.wait(pause)
    if prompt:
        log.user("more")
    log.response("m3", usage=used(0, 20_200 - read_tokens, read_tokens))
    return log


def heads(log: Transcript, folder: Path) -> list[bytes]:
    found, _ = read(log.write(folder))
    return [head(call.prompt) for call in found]


def test_a_turn_that_reads_nothing_of_a_fresh_head_has_a_new_one(tmp_path: Path) -> None:
    log = resumed(0)
    shared_tokens, _ = chunks_shared(tmp_path, log)
    # Half of what is the least that providers cache.
    assert abs(shared_tokens - 512) <= 32
    found, _ = read(log.write(tmp_path))
    assert [call.kind for call in found] == ["turn", "turn", "resume"]


def test_a_turn_that_reads_part_of_the_head_shares_up_to_the_snapshot(tmp_path: Path) -> None:
    # What a new process writes anew is at the end of the part that was not read.
    shared_tokens, _ = chunks_shared(tmp_path, resumed(15_000))
    assert abs(shared_tokens - 16_400) <= 32


def test_a_turn_that_reads_all_goes_on(tmp_path: Path) -> None:
    assert len(set(heads(resumed(20_100), tmp_path))) == 1


def test_nothing_read_after_a_long_pause_tells_nothing_of_the_head(tmp_path: Path) -> None:
    assert len(set(heads(resumed(0, pause=301), tmp_path))) == 1


def test_less_read_within_a_turn_tells_nothing_of_the_head(tmp_path: Path) -> None:
    assert len(set(heads(resumed(15_000, prompt=False), tmp_path))) == 1


def test_another_model_has_a_head_of_its_own(tmp_path: Path) -> None:
    log = resumed(0, pause=301)
    log.user("again")
    log.response("m4", usage=used(0, 20_300, 0), model="claude-sonnet-4-5")
    assert len(set(heads(log, tmp_path))) == 2


# Output sizes


def test_a_placeholder_is_replaced_by_the_growth_of_the_next_prompt(tmp_path: Path) -> None:
    log = Transcript()
    log.user("hi")
    log.response("m1", said("a long answer, " * 40), usage=used(0, 5000, 0, output=1))
    log.user("ok")
    log.response("m2", said("done"), usage=used(0, 330, 5000, output=20))
    found, notes = read(log.write(tmp_path))
    # The next prompt has 330 tokens more, a few of them the user's.
    assert 250 < (found[0].output_tokens or 0) < 330
    assert found[1].output_tokens == 20
    assert notes.counts["output sizes that are placeholders"] == 1


def test_a_placeholder_that_nothing_follows_is_measured(tmp_path: Path) -> None:
    log = Transcript()
    log.user("hi")
    log.response("m1", said("a long answer, " * 40), usage=used(0, 5000, 0, output=1))
    (call,), _ = read(log.write(tmp_path))
    assert call.output_tokens is None
    assert call.logged_prompt_tokens == 5000


# The provider's own record


def test_reads_that_follow_from_the_call_before_agree() -> None:
    assert relation(Usage(5, 30, 100, 9), Usage(5, 40, 130, 9)) == AGREES


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [
        ({"compacted": True}, COMPACTED),
        ({"new_head": True}, NEW_HEAD),
        ({"blocks": 21}, WIDE),
        ({"blocks": 20}, LOWER),
        ({"pause_us": 6 * MINUTE_US}, EXPIRED),
        ({"pause_us": 4 * MINUTE_US}, LOWER),
    ],
)
def test_lower_reads_have_a_cause_or_none(reason: dict[str, int], verdict: str) -> None:
    assert relation(Usage(5, 30, 100, 9), Usage(5, 40, 129, 9), **reason) == verdict  # type: ignore[arg-type]


def test_caches_of_an_hour_live_an_hour() -> None:
    before = Usage(5, 30, 100, 9, hourly=True)
    assert relation(before, Usage(5, 40, 0, 9), pause_us=50 * MINUTE_US) == LOWER
    assert relation(before, Usage(5, 40, 0, 9), pause_us=61 * MINUTE_US) == EXPIRED


def test_a_higher_read_tells_of_a_request_that_is_in_no_log() -> None:
    assert relation(Usage(5, 30, 100, 9), Usage(0, 0, 200, 9)) == HIGHER


def test_agreement_is_counted_call_by_call(tmp_path: Path) -> None:
    _, notes = read(resumed(0).write(tmp_path))
    assert notes.counts[f"cache reads {AGREES}"] == 1
    assert notes.counts[f"cache reads {NEW_HEAD}"] == 1


def test_usage_without_a_cache_says_nothing(tmp_path: Path) -> None:
    log = Transcript()
    log.user("hi")
    log.response("m1", usage=used(5000))
    log.user("more")
    log.response("m2", usage=used(5100))
    _, notes = read(log.write(tmp_path))
    assert not [name for name in notes.counts if name.startswith("cache reads")]
