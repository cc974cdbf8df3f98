"""Which requests a log shows: usage events, and runs of items where there are none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from codex_logs import Log, asked, items, nodes, read, said, thought, tokens, told, words

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.trace.call import LoggedCall


def usages(calls: list[LoggedCall]) -> list[tuple[int | None, int | None, int | None]]:
    return [(c.logged_prompt_tokens, c.logged_cached_tokens, c.output_tokens) for c in calls]


def two_steps(log: Log, order: str) -> Log:
    """Write a turn of two responses, the first of which runs a tool, as a version writes it."""
    log.meta().context().user("find the keel")
    steps = [
        ([asked("a")], [told("a")], (100, 10, 0, 0)),
        ([said("assistant", "found")], [], (120, 5, 90, 0)),
    ]
    for model, client, used in steps:
        if order == "usage first":
            log.count(*used)
        for item in model:
            log.item(item)
        if order == "usage between":
            log.count(*used)
        for item in client:
            log.item(item)
        if order == "usage last":
            log.count(*used)
    return log


@pytest.mark.parametrize(
    ("version", "order"),
    [
        ("0.34.0", "usage first"),
        ("0.50.0", "usage first"),
        ("0.77.0", "usage between"),
        ("0.128.0", "usage between"),
        ("0.139.0", "usage last"),
        ("0.145.0", "usage last"),
        (None, "usage between"),
    ],
)
def test_usage_belongs_to_its_items_in_the_order_of_every_version(
    tmp_path: Path, version: str | None, order: str
) -> None:
    calls = read(two_steps(Log(version, paginated=False), order).save(tmp_path))
    assert usages(calls) == [(100, 0, 10), (120, 90, 5)]
    assert words(calls[0].prompt) == ["find the keel"]
    assert words(calls[0].path) == ["find the keel", "a"]
    assert words(calls[1].prompt) == ["find the keel", "a", "a=fine"]
    assert words(calls[1].path) == ["find the keel", "a", "a=fine", "found"]
    assert {c.kind for c in calls} == {"turn"}


def test_calls_and_answers_of_one_batch_are_one_response(tmp_path: Path) -> None:
    log = Log("0.50.0").meta().context().user("both").count(100, 20)
    log.item(asked("a")).item(told("a")).item(asked("b")).item(told("b")).count()
    log.count(150, 5).item(said("assistant", "done"))
    calls = read(log.save(tmp_path))
    assert usages(calls) == [(100, 0, 20), (150, 0, 5)]
    assert words(calls[0].path) == ["both", "a", "b"]
    assert words(calls[1].prompt) == ["both", "a", "a=fine", "b", "b=fine"]


def test_token_counts_without_news_are_no_calls(tmp_path: Path) -> None:
    log = Log("0.77.0").meta().context().user("go").count()
    log.item(said("assistant", "one")).count(100, 10).count().count()
    log.user("again").count().item(said("assistant", "two")).count(130, 10)
    log.event("token_count", info={"rate_limits": 1}).event("token_count")
    window = {"total_token_usage": tokens(0, 0) | {"total_tokens": 400_000}}
    log.event(
        "token_count", info={**window, "last_token_usage": tokens(0, 0) | {"total_tokens": 9}}
    )
    log.count()
    assert usages(read(log.save(tmp_path))) == [(100, 0, 10), (130, 0, 10)]


def test_equal_usage_with_another_total_is_another_call(tmp_path: Path) -> None:
    log = Log("0.77.0").meta().context().user("go")
    for _ in range(3):
        log.item(said("assistant", "same")).count(100, 10).user("again")
    assert usages(read(log.save(tmp_path))) == [(100, 0, 10)] * 3


def test_a_total_that_starts_again_marks_a_resumed_session(tmp_path: Path) -> None:
    log = Log("0.77.0").meta().context()
    for at in range(2):
        log.user(f"go {at}").item(said("assistant", "one")).count(100 + at, 10)
    log.restart_count().user("back").count().item(said("assistant", "two")).count(150, 10)
    log.user("on").item(said("assistant", "three")).count(160, 10)
    calls = read(log.save(tmp_path))
    assert [c.kind for c in calls] == ["turn", "turn", "resume", "turn"]
    assert usages(calls)[2:] == [(150, 0, 10), (160, 0, 10)]


def test_settings_applied_again_mark_a_resumed_session_but_new_ones_do_not(tmp_path: Path) -> None:
    same = {"thread_settings": {"model": "model-a"}}
    log = Log().meta().turn().context().event("thread_settings_applied", **same)
    log.user("go").item(said("assistant", "one")).usage(100)
    log.wait().event("thread_settings_applied", **same).turn().user("back")
    log.item(said("assistant", "two")).usage(110)
    log.wait().event("thread_settings_applied", thread_settings={"model": "model-b"}).turn()
    log.user("other").item(said("assistant", "three")).usage(120)
    assert [c.kind for c in read(log.save(tmp_path))] == ["turn", "resume", "turn"]


def test_a_usage_record_and_its_token_count_are_one_call(tmp_path: Path) -> None:
    log = Log().meta().context().user("go").item(asked("a")).usage(100, 10, 64, 0)
    log.item(told("a")).count().count().item(said("assistant", "done")).usage(130, 10)
    log.count()
    assert usages(read(log.save(tmp_path))) == [(100, 64, 10), (130, 0, 10)]


def test_token_counts_before_any_usage_record_count_in_a_file_that_was_updated(
    tmp_path: Path,
) -> None:
    log = Log("0.128.0").meta().context().user("go").item(said("assistant", "one")).count(100, 10)
    log.user("later").item(said("assistant", "two")).usage(130, 10).count()
    assert usages(read(log.save(tmp_path))) == [(100, 0, 10), (130, 0, 10)]


def test_reasoning_is_part_of_the_output_and_sizes_the_reasoning_items(tmp_path: Path) -> None:
    log = Log().meta().context().user("go")
    log.item(thought("QQ" * 400)).item(thought("Qg" * 400)).item(said("assistant", "done"))
    log.usage(100, 50, 0, 31).user("on").item(said("assistant", "yes")).usage(160, 5)
    calls = read(log.save(tmp_path))
    assert usages(calls) == [(100, 0, 50), (160, 0, 5)]
    assert words(calls[0].path) == ["go", 16, 15, "done"]
    assert words(calls[1].prompt) == ["go", 16, 15, "done", "on"]
    assert [c.fidelity for c in calls] == ["head_estimated", "reasoning_opaque"]


def test_equal_reasoning_is_equal_content_and_other_is_not(tmp_path: Path) -> None:
    def path_of(number: int, secret: str) -> bytes:
        log = Log(number=number).meta().context().user("go").item(thought(secret))
        return read(log.usage(100, 9, 0, 9).save(tmp_path))[0].path.content

    assert path_of(1, "QQ" * 400) == path_of(2, "QQ" * 400) != path_of(3, "Qg" * 400)


def test_readable_reasoning_is_text(tmp_path: Path) -> None:
    item = {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "h"}],
    }
    log = Log().meta().context().user("go").item(item).usage(100, 9, 0, 9)
    assert items(read(log.save(tmp_path))[0].path)[-1] == item


def test_more_cached_than_prompt_tokens_are_clamped_and_counted(tmp_path: Path) -> None:
    from agentkv_trace.notes import Notes

    notes = Notes()
    log = Log().meta().context().user("go").item(said("assistant", "a")).usage(100, 5, 120)
    assert usages(read(log.save(tmp_path), notes=notes)) == [(100, 100, 5)]
    assert notes.counts["calls with more cached than prompt tokens"] == 1


def test_a_response_that_never_ended_is_a_call_without_usage(tmp_path: Path) -> None:
    log = Log().meta().context().user("go").item(asked("a")).usage(100).item(told("a"))
    log.item(thought()).item(said("assistant", "half a"))
    calls = read(log.save(tmp_path))
    assert usages(calls) == [(100, 0, 10), (None, None, None)]
    assert [c.usage_source for c in calls] == ["logged", "none"]
    assert words(calls[1].prompt) == ["go", "a", "a=fine"]
    assert words(calls[1].path)[-1] == "half a"


def test_a_killed_response_keeps_its_call_when_the_session_goes_on(tmp_path: Path) -> None:
    log = Log("0.128.0").meta().context().user("go").item(said("assistant", "half"))
    log.user("go on").item(said("assistant", "whole")).count(100, 10)
    calls = read(log.save(tmp_path))
    assert usages(calls) == [(None, None, None), (100, 0, 10)]
    assert words(calls[1].prompt) == ["go", "half", "go on"]


def test_a_response_begun_again_is_a_retry(tmp_path: Path) -> None:
    first, second = {"sampled_through_sequence": 1}, {"sampled_through_sequence": 2}
    log = Log().meta().context().item(said("user", "go"), history_sequence=1)
    log.item(thought(), history_sequence=2, **first)
    log.item(said("assistant", "whole"), history_sequence=3, **second).usage(100)
    calls = read(log.save(tmp_path))
    assert [c.kind for c in calls] == ["turn", "retry"]
    assert usages(calls) == [(None, None, None), (100, 0, 10)]


def test_the_sequence_tells_what_a_response_was_sampled_from(tmp_path: Path) -> None:
    log = Log().meta().context().item(said("user", "go"), history_sequence=1)
    log.item(asked("a"), history_sequence=2, sampled_through_sequence=1)
    log.item(said("user", "wait, also this"), history_sequence=3, sampled_through_sequence=1)
    log.item(asked("b"), history_sequence=4, sampled_through_sequence=1).usage(100)
    log.item(told("a"), history_sequence=5).item(told("b"), history_sequence=6)
    log.item(said("user", "late"), history_sequence=7)
    log.item(said("assistant", "ok"), history_sequence=8, sampled_through_sequence=6).usage(200)
    calls = read(log.save(tmp_path))
    assert words(calls[0].prompt) == ["go"]
    assert words(calls[0].path) == ["go", "a", "b"]
    assert words(calls[1].prompt) == ["go", "a", "wait, also this", "b", "a=fine", "b=fine"]
    assert words(calls[1].path)[-1] == "ok"
    assert usages(calls) == [(100, 0, 10), (200, 0, 10)]


def test_usage_without_any_items_is_a_call(tmp_path: Path) -> None:
    log = Log("0.128.0").meta().context().user("go").count(100, 0).user("hello?")
    log.item(said("assistant", "yes")).count(110, 5)
    calls = read(log.save(tmp_path))
    assert [words(c.path) for c in calls] == [["go"], ["go", "hello?", "yes"]]


def test_the_model_is_the_latest_turns(tmp_path: Path) -> None:
    nested = {"collaboration_mode": {"settings": {"model": "model-c"}}}
    log = Log("0.139.0").meta().user("go").item(said("assistant", "a")).count(10, 1)
    log.event("thread_settings_applied", thread_settings={"model": "model-s"})
    log.user("go").item(said("assistant", "b")).count(20, 1)
    log.context("model-b").user("go").item(said("assistant", "c")).count(30, 1)
    log.put("turn_context", nested).user("go").item(said("assistant", "d")).count(40, 1)
    calls = read(log.save(tmp_path))
    assert [c.model for c in calls] == [None, "model-s", "model-b", "model-c"]


class TestBareItems:
    """The oldest files: no times, no usage, no model."""

    @staticmethod
    def log(markers: bool) -> Log:
        log = Log(None)
        first = {"id": log.thread, "timestamp": log.at, "instructions": None, "git": {}}
        log.raw(json.dumps(first).encode())
        batches = [
            [said("user", "go")],
            [thought(), asked("a"), told("a"), asked("b"), told("b")],
            [{"id": "m", **said("assistant", "done")}],
        ]
        for batch in batches:
            for item in batch:
                log.raw(json.dumps(item).encode())
            if markers:
                log.raw(b'{"record_type":"state"}')
        return log

    def test_a_batch_is_a_response_where_state_markers_tell(self, tmp_path: Path) -> None:
        calls = read(self.log(markers=True).save(tmp_path))
        assert len(calls) == 2
        assert words(calls[1].prompt)[2:] == ["a", "a=fine", "b", "b=fine"]

    def test_else_a_run_of_the_models_items_is_one(self, tmp_path: Path) -> None:
        calls = read(self.log(markers=False).save(tmp_path))
        assert [words(c.path)[-1] for c in calls] == ["a", "b", "done"]

    def test_only_their_order_is_known(self, tmp_path: Path) -> None:
        log = self.log(markers=True)
        calls = read(log.save(tmp_path))
        assert [c.start_us for c in calls] == [log.now_us, log.now_us + 1]
        assert all(c.end_us == c.start_us for c in calls)
        assert {(c.time_source, c.usage_source, c.model, c.session) for c in calls} == {
            ("order_only", "none", None, log.thread)
        }

    def test_the_head_has_a_typical_length_where_no_usage_sizes_it(self, tmp_path: Path) -> None:
        calls = read(self.log(markers=True).save(tmp_path))
        assert [nodes(call.prompt)[0].tokens for call in calls] == [6000, 6000]
        assert calls[0].fidelity == "head_estimated"

    def test_identifiers_are_not_sent(self, tmp_path: Path) -> None:
        calls = read(self.log(markers=True).save(tmp_path))
        assert items(calls[1].path)[-1] == said("assistant", "done")
