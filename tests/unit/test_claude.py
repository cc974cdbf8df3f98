"""Claude Code: which lines are calls, and what their prompts hold."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from claude_logs import (
    EPOCH_US,
    SMALL,
    Transcript,
    asked,
    messages,
    nodes,
    read,
    said,
    thought,
    used,
    words,
)

if TYPE_CHECKING:
    from pathlib import Path


def two_calls(session: str = "s1") -> Transcript:
    log = Transcript(session)
    log.user("tie the boat")
    log.response("m1", said("looking"), asked("t1"))
    log.tool("t1", "a rope")
    log.response("m2", said("tied"))
    return log


def test_one_call_for_each_response_whatever_the_number_of_its_lines(tmp_path: Path) -> None:
    found, notes = read(two_calls().write(tmp_path))
    assert [(call.kind, call.session, call.agent) for call in found] == [
        ("turn", "s1", "claude")
    ] * 2
    assert notes.counts["calls"] == 2
    assert words(found[1].prompt) == [
        "user: tie the boat",
        "assistant: looking | t1",
        "user: a rope",
    ]
    assert words(found[1].path)[-1] == "assistant: tied"


def test_a_response_without_a_request_id_is_a_call(tmp_path: Path) -> None:
    log = Transcript()
    log.user("tie the boat")
    for block in (said("looking"), said("and tying")):
        log.model_line("m1", block, used(), requestId=None)
    found, _ = read(log.write(tmp_path))
    assert len(found) == 1


def test_the_last_line_of_a_response_has_its_usage(tmp_path: Path) -> None:
    log = Transcript()
    log.user("tie the boat")
    log.model_line("m1", said("looking"), used(3, 100, 20, output=1))
    log.model_line("m1", said("still"), used(3, 100, 20, output=77))
    (call,), _ = read(log.write(tmp_path))
    assert (call.logged_prompt_tokens, call.logged_cached_tokens) == (123, 20)
    assert (call.output_tokens, call.usage_source) == (77, "logged")


def test_a_response_without_usage_is_a_call_without_usage(tmp_path: Path) -> None:
    log = Transcript()
    log.user("tie the boat")
    log.response("m1", usage=used(0, 0, 0, 0))
    (call,), _ = read(log.write(tmp_path))
    assert (call.usage_source, call.logged_prompt_tokens, call.output_tokens) == (
        "none",
        None,
        None,
    )


def test_what_the_client_wrote_itself_is_no_call(tmp_path: Path) -> None:
    log = two_calls()
    error = {"isApiErrorMessage": True, "model": "<synthetic>", "requestId": None}
    log.model_line("a-uuid", said("connection lost"), used(0, 0, 0, 0), **error)
    log.user("again")
    log.model_line("b-uuid", said("nothing asked"), used(0, 0, 0, 0), model="<synthetic>")
    log.user("now")
    log.response("m3")
    found, _ = read(log.write(tmp_path))
    assert len(found) == 3
    # An error is not sent again, an answer in the model's place is.
    assert words(found[2].prompt)[3:] == [
        "assistant: tied",
        "user: again",
        "assistant: nothing asked",
        "user: now",
    ]
    assert found[2].kind == "resume"


def test_answers_logged_between_the_blocks_of_a_response_follow_it(tmp_path: Path) -> None:
    log = Transcript()
    log.user("tie both")
    log.model_line("m1", asked("t1"), used())
    log.tool("t1", "one")
    log.model_line("m1", asked("t2"), used())
    log.tool("t2", "two")
    log.response("m2")
    found, _ = read(log.write(tmp_path))
    assert len(found) == 2
    assert words(found[1].prompt) == ["user: tie both", "assistant: t1 | t2", "user: one | two"]


def test_answers_on_other_branches_are_in_the_prompt_in_the_order_they_came(
    tmp_path: Path,
) -> None:
    log = Transcript()
    log.user("tie both")
    one = log.model_line("m1", asked("t1"), used())
    two = log.model_line("m1", asked("t2"), used())
    log.tool("t2", "two", parentUuid=two, sourceToolAssistantUUID=two)
    log.tool("t1", "one", parentUuid=one, sourceToolAssistantUUID=one)
    log.response("m2")
    found, _ = read(log.write(tmp_path))
    # The next response hangs on the last answer, so that the second call is on a side branch.
    assert words(found[1].prompt) == ["user: tie both", "assistant: t1 | t2", "user: two | one"]


def test_a_tool_call_that_was_never_answered_is_dropped_when_it_is_off_the_path(
    tmp_path: Path,
) -> None:
    log = Transcript()
    log.user("tie it")
    first = log.model_line("m1", said("on it"), used())
    log.model_line("m1", asked("t1"), used())
    log.user("go on", parentUuid=first)
    log.response("m2")
    found, _ = read(log.write(tmp_path))
    assert words(found[1].prompt) == ["user: tie it", "assistant: on it", "user: go on"]
    assert words(found[0].path)[-1] == "assistant: on it"


def test_words_that_meet_words_end_their_line(tmp_path: Path) -> None:
    log = Transcript()
    log.user("first")
    log.user([said("second"), said("third")])
    log.response("m1")
    (call,), _ = read(log.write(tmp_path))
    assert words(call.prompt) == ["user: first\n | second | third"]


def test_a_rewind_is_a_fold_and_goes_on_from_the_earlier_line(tmp_path: Path) -> None:
    log = two_calls()
    log.user("no: untie it", parentUuid="s1-0004")
    log.response("m3")
    found, _ = read(log.write(tmp_path))
    assert [call.kind for call in found] == ["turn", "turn", "fold"]
    assert words(found[2].prompt)[-1] == "user: a rope | no: untie it"


def test_what_the_client_adds_follows_the_user_as_one_message(tmp_path: Path) -> None:
    log = Transcript()
    log.user("tie it")
    log.response("m1", asked("t1"))
    log.tool("t1")
    log.wait(1)
    log.note("date_change", newDate="2026-03-02")
    early = {"file": {"filePath": "/b.txt", "content": "x\ny", "startLine": 4}, "type": "text"}
    log.clock = log.clock.replace(year=2025)
    log.note("file", filename="/b.txt", content=early)
    log.clock = log.clock.replace(year=2026)
    log.response("m2")
    found, _ = read(log.write(tmp_path))
    note = messages(found[1].prompt)[3]
    assert note["role"] == "system"
    # In the order of their times.
    assert note["content"] == (
        'Called the Read tool with the following input: {"file_path":"/b.txt"}\n'
        "Result of calling the Read tool:\n4\tx\n5\ty\n\n"
        "The date has changed. Today's date is now 2026-03-02."
    )
    assert messages(found[1].prompt)[4] == "claude date note:15"


def test_smaller_models_get_reminders_inside_the_last_answer(tmp_path: Path) -> None:
    log = Transcript(model=SMALL)
    log.user("tie it")
    log.listing()
    log.response("m1", asked("t1"), asked("t2"))
    log.tool("t1", "one")
    log.tool("t2", "two")
    log.note("date_change", newDate="2026-03-02")
    log.response("m2")
    found, _ = read(log.write(tmp_path))
    before = messages(found[0].prompt)
    assert before[0].startswith("environment:")
    answers = messages(found[1].prompt)[3]["content"]
    assert answers[0]["content"] == "one"
    assert answers[1]["content"].startswith("two\n\n<system-reminder>\nThe date has changed.")
    assert answers[1]["content"].endswith("\n</system-reminder>")


def test_listings_at_the_beginning_are_one_sized_piece(tmp_path: Path) -> None:
    log, other = Transcript("s1"), Transcript("s2")
    for each in (log, other):
        each.user("tie it")
        each.listing()
        each.response(f"m {each.session}")
    one, _ = read(log.write(tmp_path))
    two, _ = read(other.write(tmp_path))
    pieces = [nodes(calls[0].prompt)[2] for calls in (one, two)]
    assert pieces[0].content == pieces[1].content
    assert 30 < (pieces[0].tokens or 0) < 80


def test_attachments_of_unknown_form_are_counted_and_told(tmp_path: Path) -> None:
    log = Transcript()
    log.user("tie it")
    log.note("harbour_news", lines=["storm"])
    log.response("m1")
    (call,), notes = read(log.write(tmp_path))
    assert "storm" in messages(call.prompt)[1]["content"]
    assert call.fidelity == "output_reformatted"
    assert notes.counts["attachments of unknown form"] == 1


def test_thinking_is_sent_again_and_its_secret_is_sized(tmp_path: Path) -> None:
    log = Transcript()
    log.user("tie it")
    log.response("m1", thought("a bowline", "QUJD" * 32), said("ok"))
    log.user("more")
    log.response("m2")
    found, _ = read(log.write(tmp_path))
    assert words(found[1].prompt)[1:3] == ["assistant: a bowline | ok", "thinking:24"]
    assert nodes(found[1].prompt)[3].fitted
    assert [call.fidelity for call in found] == ["head_estimated", "reasoning_opaque"]


def test_images_are_sized_and_not_kept(tmp_path: Path) -> None:
    png = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + (64).to_bytes(4, "big") + (96).to_bytes(4, "big")
    data = base64.b64encode(png + b"\0" * 300).decode()
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": data},
    }
    log = Transcript()
    log.user("look")
    log.response("m1", asked("t1"))
    log.tool("t1", [picture])
    log.response("m2")
    found, _ = read(log.write(tmp_path))
    *_, answer, image = nodes(found[1].prompt)
    assert data.encode() not in answer.content
    assert (image.tokens, image.content.split(b"\0")[0]) == (6, b"image")


def test_cache_markers_are_left_out(tmp_path: Path) -> None:
    log = Transcript()
    log.user([{**said("tie it"), "cache_control": {"type": "ephemeral"}}])
    log.response("m1")
    (call,), _ = read(log.write(tmp_path))
    assert messages(call.prompt) == [{"role": "user", "content": [said("tie it")]}]


def test_failed_attempts_make_the_next_call_a_retry(tmp_path: Path) -> None:
    log = two_calls()
    log.user("more")
    log.line("system", subtype="api_error", retryAttempt=1)
    log.response("m3")
    found, _ = read(log.write(tmp_path))
    assert [call.kind for call in found] == ["turn", "turn", "retry"]


def test_a_call_begins_after_its_newest_input_and_ends_with_its_last_line(tmp_path: Path) -> None:
    log = Transcript()
    log.user("tie it")
    log.wait(2)
    log.model_line("m1", said("a"), used())
    log.model_line("m1", said("b"), used())
    (call,), _ = read(log.write(tmp_path))
    assert call.start_us == EPOCH_US + 19_000
    assert call.end_us == EPOCH_US + 2_200_000
    assert call.time_source == "estimated"


def test_a_killed_session_gives_its_finished_calls(tmp_path: Path) -> None:
    log = Transcript()
    log.user("tie it")
    log.response("m1", asked("t1"))
    found, notes = read(log.write(tmp_path))
    assert len(found) == 1
    assert words(found[0].path)[-1] == "assistant: t1"
    assert not notes.skipped


@pytest.mark.parametrize("content", ["tie it", [said("tie it")]])
def test_plain_words_and_a_list_of_one_block_are_the_same(tmp_path: Path, content: Any) -> None:
    log = Transcript()
    log.user(content)
    log.response("m1")
    (call,), _ = read(log.write(tmp_path))
    assert json.loads(nodes(call.prompt)[1].content) == {
        "role": "user",
        "content": [said("tie it")],
    }
