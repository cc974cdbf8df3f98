"""What the next prompt holds: answers, folds, rollbacks, images, heads."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from agentkv_trace.notes import Notes
from codex_logs import Log, asked, head, items, nodes, read, said, thought, told, words

if TYPE_CHECKING:
    from pathlib import Path

BASE = "Be a good sailor.\nUse the tools."


def test_identifiers_and_passed_through_metadata_are_not_sent(tmp_path: Path) -> None:
    item = {
        "type": "message",
        "id": "msg_1",
        "role": "user",
        "content": [{"type": "input_text", "text": "go", "id": "kept"}],
        "internal_chat_message_metadata_passthrough": {"turn_id": "t"},
    }
    log = Log().meta().context().item(item).item(said("assistant", "ok")).usage(100)
    prompt = read(log.save(tmp_path))[0].prompt
    assert prompt.content == (
        b'{"type":"message","role":"user","content":[{"type":"input_text","text":"go","id":"kept"}]}'
    )


def test_snapshots_are_not_sent_and_unknown_items_are_counted(tmp_path: Path) -> None:
    notes = Notes()
    log = Log().meta().context().user("go").item({"type": "ghost_snapshot", "ghost_commit": {}})
    log.item({"type": "other"}).item({"type": "brand_new"}).put("brand_new", {})
    log.put("world_state", {"full": True}).item(said("assistant", "ok")).usage(100)
    assert words(read(log.save(tmp_path), notes=notes)[0].path) == ["go", "ok"]
    assert notes.counts["unknown records"] == 2
    assert not notes.skipped


def test_messages_between_agents_are_items(tmp_path: Path) -> None:
    message = {"author": "/root/one", "recipient": "/root", "content": "all done"}
    log = Log().meta().context().user("go").item(said("assistant", "ok")).usage(100)
    log.put("inter_agent_communication", {**message, "trigger_turn": True})
    log.item(said("assistant", "good")).usage(120)
    assert items(read(log.save(tmp_path))[1].prompt)[-1]["content"] == "all done"


# Answers


def test_calls_without_an_answer_are_answered_aborted(tmp_path: Path) -> None:
    custom = {"type": "custom_tool_call", "call_id": "b", "name": "patch", "input": "x"}
    search = {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {}}
    log = Log().meta().context().user("go").item(asked("a")).item(custom).item(search)
    log.item({"type": "web_search_call", "call_id": "d"}).usage(100)
    log.user("are you there?").item(said("assistant", "yes")).usage(150)
    log.user("good").item(said("assistant", "so")).usage(170)
    calls = read(log.save(tmp_path))
    assert items(calls[1].prompt) == [
        said("user", "go"),
        asked("a"),
        {"type": "function_call_output", "call_id": "a", "output": "aborted"},
        custom,
        {"type": "custom_tool_call_output", "call_id": "b", "output": "aborted"},
        search,
        {
            "type": "tool_search_output",
            "call_id": "c",
            "status": "completed",
            "execution": "client",
            "tools": [],
        },
        {"type": "web_search_call", "call_id": "d"},
        said("user", "are you there?"),
    ]
    assert items(calls[2].prompt)[:10] == items(calls[1].path)


def test_a_late_answer_takes_the_place_of_aborted(tmp_path: Path) -> None:
    log = Log().meta().context().user("go").item(asked("a")).usage(100).user("now?")
    log.item(said("assistant", "soon")).usage(120).item(told("a", "at last"))
    log.item(said("assistant", "done")).usage(140)
    calls = read(log.save(tmp_path))
    assert words(calls[1].prompt) == ["go", "a", "a=aborted", "now?"]
    assert words(calls[2].prompt) == ["go", "a", "now?", "soon", "a=at last"]
    assert calls[2].kind == "fold"


def test_an_answer_to_nothing_is_dropped_but_not_in_a_damaged_file(tmp_path: Path) -> None:
    def log(number: int) -> Log:
        return Log(number=number).meta().context().user("go").item(asked("a")).usage(100)

    def end(log: Log) -> Log:
        return log.item(told("a")).item(told("x")).item(said("assistant", "k")).usage(120)

    notes = Notes()
    calls = read(end(log(1)).save(tmp_path), notes=notes)
    assert words(calls[1].prompt) == ["go", "a", "a=fine"]
    assert notes.counts["tool outputs without a call"] == 1
    calls = read(end(log(2).raw(b'{"timestamp":"torn')).save(tmp_path), notes=Notes())
    assert words(calls[1].prompt) == ["go", "a", "a=fine", "x=fine"]


# Outputs


@pytest.mark.parametrize(("version", "marked"), [("0.42.0", 0), ("0.58.0", 1), ("0.77.0", 0)])
def test_outputs_sent_in_another_form_are_marked(
    tmp_path: Path, version: str, marked: bool
) -> None:
    output = json.dumps({"output": "a\n", "metadata": {"exit_code": 0, "duration_seconds": 0.1}})
    log = Log(version).meta().context().user("go").item(asked("a")).count(100, 5)
    log.item(told("a", output)).item(said("assistant", "ok")).count(120, 5)
    fidelities = [call.fidelity for call in read(log.save(tmp_path))]
    assert fidelities == ["head_estimated", "output_reformatted" if marked else "head_estimated"]


def png(width: int, height: int, filler: int) -> str:
    data = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return "data:image/png;base64," + base64.b64encode(data + b"\x01" * filler).decode()


def test_images_are_sized_by_their_dimensions_and_never_held(tmp_path: Path) -> None:
    url = png(640, 320, 3_000_000)
    image = {"type": "input_image", "image_url": url, "detail": "high"}
    message = {
        "type": "message",
        "role": "user",
        "content": [image, {"type": "input_text", "text": "?"}],
    }
    log = Log().meta().context().item(message).item(asked("a")).usage(300)
    log.item(told("a", [{"type": "input_text", "text": "see"}, image])).item(said("assistant", "k"))
    prompt = read(log.usage(500).save(tmp_path))[1].prompt
    shown = {**image, "image_url": ""}
    text = {"type": "input_text", "text": "?"}
    assert items(prompt) == [
        {**message, "content": [shown, text]},
        20 * 10,
        asked("a"),
        told("a", [{"type": "input_text", "text": "see"}, shown]),
        20 * 10,
    ]
    pictures = [node.content for node in nodes(prompt)[1:] if node.tokens is not None]
    assert pictures[0] == pictures[1]
    assert max(len(node.content) for node in nodes(prompt)) < 300


def test_generated_images_are_sized_too(tmp_path: Path) -> None:
    result = png(64, 64, 100).partition(",")[2]
    item = {"type": "image_generation_call", "id": "ig", "status": "completed", "result": result}
    log = Log().meta().context().user("draw").item(item).usage(100)
    assert items(read(log.save(tmp_path))[0].path)[1:] == [
        {"type": "image_generation_call", "status": "completed", "result": ""},
        4,
    ]


# Folds


def replaced(*texts: str) -> list[dict[str, Any]]:
    return [said("user", text) for text in texts]


def worked(log: Log) -> Log:
    """Write a session with one finished call."""
    log.meta().context().item(said("developer", "rules")).user("<environment_context>here")
    log.user("go").item(thought()).item(asked("a"))
    used = log.usage if log.is_paginated else log.count
    return used(100, 10, 0, 4).item(told("a"))


BEFORE = ["rules", "<environment_context>here", "go", 4, "a", "a=fine"]
AFTER = ["rules", "go", "summed up"]


def test_a_fold_with_a_usage_record_and_logged_summary(tmp_path: Path) -> None:
    log = worked(Log())
    log.item(said("assistant", "sum"), sampled_through_sequence=1, compaction_output=True)
    log.usage(110, 20).count()
    log.put("compacted", {"message": "so: sum", "replacement_history": replaced(*AFTER)}).count()
    log.user("on").item(said("assistant", "ok")).usage(60)
    first, fold, after = read(log.save(tmp_path))
    assert (first.kind, fold.kind, after.kind) == ("turn", "compaction", "fold")
    assert words(fold.prompt) == [*BEFORE, 110]
    assert words(fold.path) == [*BEFORE, 110, "sum"]
    assert (fold.logged_prompt_tokens, fold.output_tokens) == (110, 20)
    assert fold.fidelity == "compaction_estimated"
    assert head(fold.prompt) != head(first.prompt) == head(after.prompt)
    assert words(after.prompt) == [*AFTER, "on"]
    assert after.fidelity == "head_estimated"


def test_a_fold_without_logged_summary_items(tmp_path: Path) -> None:
    log = worked(Log("0.128.0")).count().count(110, 20)
    log.put("compacted", {"message": "so: sum", "replacement_history": replaced(*AFTER)})
    zero = {"total_token_usage": dict(log.total), "last_token_usage": {"total_tokens": 70}}
    log.event("token_count", info=zero).event("context_compacted")
    log.item(said("assistant", "ok")).count(60, 5)
    first, fold, after = read(log.save(tmp_path))
    assert (first.kind, fold.kind, after.kind) == ("turn", "compaction", "fold")
    assert words(fold.path) == [*BEFORE, 110, 20]
    assert words(after.prompt) == AFTER
    assert (after.logged_prompt_tokens, after.output_tokens) == (60, 5)


def test_a_fold_that_left_no_usage_is_still_a_call(tmp_path: Path) -> None:
    log = worked(Log("0.147.0", paginated=False)).item(said("assistant", "ok")).count(120, 5)
    log.user("on").put("compacted", {"message": "sum", "replacement_history": replaced(*AFTER)})
    log.item(said("assistant", "so")).count(60, 5)
    calls = read(log.save(tmp_path))
    assert [c.kind for c in calls] == ["turn", "turn", "compaction", "fold"]
    assert calls[2].usage_source == "none"
    assert words(calls[2].prompt) == [*BEFORE, "ok", "on", 110]
    assert words(calls[2].path)[-1] == "sum"


def test_a_summary_written_without_usage_is_the_folds_call(tmp_path: Path) -> None:
    log = worked(Log("0.147.0", paginated=False)).item(said("assistant", "sum"))
    log.put("compacted", {"message": "so: sum", "replacement_history": replaced(*AFTER)})
    log.item(said("assistant", "so")).count(60, 5)
    calls = read(log.save(tmp_path))
    assert [(c.kind, c.usage_source) for c in calls] == [
        ("turn", "logged"),
        ("compaction", "none"),
        ("fold", "logged"),
    ]


def test_a_fold_made_elsewhere_is_opaque(tmp_path: Path) -> None:
    log = worked(Log()).usage(110, 20)
    sealed = {"type": "compaction", "encrypted_content": "c2VjcmV0" * 300}
    log.put("compacted", {"message": "", "replacement_history": [*replaced("go"), sealed]})
    log.item(said("assistant", "so")).usage(60)
    _, fold, after = read(log.save(tmp_path))
    assert fold.kind == "compaction"
    (words_before, sealed_tokens) = words(after.prompt)
    assert words_before == "go"
    assert sealed_tokens == (2400 * 3 // 4 - 650) // 4
    assert after.fidelity == "reasoning_opaque"


def test_a_history_that_is_not_logged_is_rebuilt(tmp_path: Path) -> None:
    log = worked(Log("0.77.0")).item(said("assistant", "ok")).count(120, 5)
    log.user("more").item(said("assistant", "sure")).count(140, 5)
    log.count(150, 20).put("compacted", {"message": "summed up"})
    log.user("next").item(said("assistant", "k")).count(60, 5)
    log.count(70, 20).put("compacted", {"message": "summed again"})
    log.item(said("assistant", "k")).count(60, 5)
    calls = read(log.save(tmp_path))
    context = ["rules", "<environment_context>here"]
    assert [c.kind for c in calls[3:]] == ["compaction", "fold", "compaction", "fold"]
    assert words(calls[4].prompt) == [*context, "go", "more", "summed up", "next"]
    assert words(calls[6].prompt) == [*context, "go", "more", "next", "summed again"]
    assert calls[4].fidelity == calls[6].fidelity == "compaction_estimated"


def test_a_rebuilt_history_keeps_the_last_20_000_tokens_of_user_messages(tmp_path: Path) -> None:
    log = Log("0.98.0").meta().context()
    for letter in "abc":
        log.user(letter * 35_000).item(said("assistant", "ok")).count(100, 5)
    log.count(150, 20).put("compacted", {"message": "sum"}).item(said("assistant", "k")).count(9, 1)
    kept = words(read(log.save(tmp_path))[-1].prompt)
    assert [(text[0], len(text)) for text in kept] == [
        ("a", 10_000),
        ("b", 35_000),
        ("c", 35_000),
        ("s", 3),
    ]


def test_old_versions_put_messages_and_summary_into_one_item(tmp_path: Path) -> None:
    log = worked(Log("0.50.0")).count(150, 20).put("compacted", {"message": "summed up"})
    log.count(60, 5).item(said("assistant", "k"))
    after = read(log.save(tmp_path))[-1]
    assert words(after.prompt) == ["rules", "<environment_context>here", "go\n\nsummed up"]
    assert after.fidelity == "compaction_estimated"


# Rollbacks


def turns(log: Log, *texts: str) -> Log:
    for text in texts:
        log.user(text).item(said("assistant", f"{text}!"))
        (log.usage if log.is_paginated else log.count)(100, 5)
    return log


@pytest.mark.parametrize(
    ("count", "left"),
    [(1, ["c", "one", "one!", "two", "two!"]), (2, ["c", "one", "one!"]), (9, ["c"]), (0, None)],
)
def test_a_rollback_cuts_whole_turns_and_keeps_their_calls(
    tmp_path: Path, count: int, left: list[str] | None
) -> None:
    log = turns(Log().meta().context().item(said("developer", "c")), "one", "two", "three")
    log.event("thread_rolled_back", num_turns=count)
    calls = read(turns(log, "new").save(tmp_path))
    assert len(calls) == 4
    kept = ["c", "one", "one!", "two", "two!", "three", "three!"] if left is None else left
    assert words(calls[3].prompt) == [*kept, "new"]
    assert calls[3].kind == ("turn" if left is None else "fold")


def test_a_rollback_takes_the_context_updates_before_a_turn_with_it(tmp_path: Path) -> None:
    log = turns(Log().meta().context().item(said("developer", "c")), "one")
    log.item(said("developer", "update")).user("<environment_context>moved")
    log = turns(log, "two").event("thread_rolled_back", num_turns=1)
    assert words(read(turns(log, "new").save(tmp_path))[-1].prompt) == ["c", "one", "one!", "new"]


def test_a_rollback_reaches_behind_a_fold(tmp_path: Path) -> None:
    log = turns(Log().meta().context(), "one").user("two").item(asked("a")).usage(100)
    log.item(told("a")).usage(110, 9)
    log.put("compacted", {"message": "sum", "replacement_history": replaced("one", "two", "sum")})
    log.item(said("assistant", "two!")).usage(60)
    log.event("thread_rolled_back", num_turns=1)
    assert words(read(turns(log, "new").save(tmp_path))[-1].prompt) == ["one", "one!", "new"]


# Heads


def base_of(log: Log, tmp_path: Path) -> Any:
    log.meta(base_instructions={"text": BASE}).context().user("go")
    log.item(said("assistant", "ok"))
    (log.usage if log.is_paginated else log.count)(100)
    found = nodes(read(log.save(tmp_path))[0].prompt)[1]
    return found.content


def test_base_instructions_stand_before_the_items_as_they_are_sent(tmp_path: Path) -> None:
    assert base_of(Log("0.98.0"), tmp_path) == BASE.encode()
    assert base_of(Log("0.153.0", 2), tmp_path) == BASE.encode()
    assert json.loads(base_of(Log("0.162.0", 3), tmp_path)) == said("developer", BASE)


def test_tools_logged_as_an_item_make_the_prompt_exact(tmp_path: Path) -> None:
    log = Log().meta(base_instructions={"text": BASE}).context()
    log.item({"type": "additional_tools", "tools": ["x"]}).item(said("developer", BASE))
    log.user("go").item(said("assistant", "ok")).usage(100)
    call = read(log.save(tmp_path))[0]
    assert words(call.prompt) == ["additional_tools", BASE, "go"]
    assert call.fidelity == "exact"


def test_another_model_has_another_head(tmp_path: Path) -> None:
    log = turns(turns(Log().meta().context("model-a"), "one").context("model-b"), "two")
    log = turns(log.context("model-a"), "three")
    first, second, third = read(log.save(tmp_path))
    assert head(first.prompt) == head(third.prompt) != head(second.prompt)
    assert words(second.prompt)[:2] == words(first.path)


def test_permissions_change_the_head_only_where_they_are_not_in_the_log(tmp_path: Path) -> None:
    def heads(version: str, number: int) -> set[bytes]:
        log = turns(Log(version, number).meta().context(approval_policy="never"), "one")
        log = turns(log.context(approval_policy="on-request"), "two")
        return {head(call.prompt) for call in read(log.save(tmp_path))}

    assert len(heads("0.77.0", 1)) == 2
    assert len(heads("0.98.0", 2)) == 1


def test_equal_heads_are_shared_between_sessions_and_versions_are_not(tmp_path: Path) -> None:
    def head_of(version: str, number: int) -> bytes:
        log = turns(Log(version, number).meta().context(), "one")
        return head(read(log.save(tmp_path))[0].prompt)

    assert head_of("0.171.0", 1) == head_of("0.171.0", 2) != head_of("0.170.0", 3)


def test_nodes_are_shared_from_call_to_call(tmp_path: Path) -> None:
    log = turns(Log().meta().context(), *(f"turn {at}" for at in range(50)))
    calls = read(log.save(tmp_path))
    distinct = {node for call in calls for node in nodes(call.path)}
    assert len(distinct) == 1 + 2 * 50
