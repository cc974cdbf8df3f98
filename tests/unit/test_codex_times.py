"""Starts and ends, by what each version writes and when."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from agentkv_trace.ingest.codex.times import DELAY_US
from codex_logs import EPOCH_US, Log, asked, read, said, told

if TYPE_CHECKING:
    from pathlib import Path


def ms(us: int) -> float:
    return (us - EPOCH_US) / 1000


def times(log: Log, tmp_path: Path) -> list[tuple[float, float, str]]:
    return [(ms(c.start_us), ms(c.end_us), c.time_source) for c in read(log.save(tmp_path))]


LATER = DELAY_US / 1000


def test_a_usage_record_is_the_end_and_the_last_input_about_the_start(tmp_path: Path) -> None:
    log = Log().meta().wait(100).context().user("go").wait(500).item(asked("a")).wait(300).usage(9)
    log.wait(2000).item(told("a")).wait(1).count().wait(700).item(said("assistant", "k"))
    log.wait(200).usage(9)
    assert times(log, tmp_path) == [
        (100 + LATER, 900, "estimated"),
        (2900 + LATER, 3801, "estimated"),
    ]


@pytest.mark.parametrize("version", ["0.77.0", "0.128.0"])
def test_a_repeated_token_count_is_the_start_and_a_new_one_the_end(
    tmp_path: Path, version: str
) -> None:
    log = Log(version).meta().context().user("go").wait(90).count().wait(500).item(asked("a"))
    log.wait(300).count(9, 1).wait(2000).item(told("a")).wait(80).count()
    log.wait(500).item(said("assistant", "k")).wait(10).count(12, 1)
    assert times(log, tmp_path) == [(90, 890, "logged"), (2970, 3480, "logged")]


def test_usage_at_the_responses_end_before_its_items(tmp_path: Path) -> None:
    log = Log("0.50.0").meta().context().user("go").wait(90).count().wait(800).count(9, 1)
    log.wait(1000).item(asked("a")).item(told("a")).wait(50).count().wait(700).count(12, 1)
    log.item(said("assistant", "k"))
    assert times(log, tmp_path) == [(90, 890, "logged"), (1940, 2640, "logged")]


def test_usage_after_the_tools_leaves_the_last_output_as_the_end(tmp_path: Path) -> None:
    log = Log("0.139.0").meta().context().user("go").wait(500).item(asked("a")).wait(900)
    log.item(told("a")).count(9, 1).wait(600).item(said("assistant", "k")).wait(5).count(12, 1)
    assert times(log, tmp_path) == [
        (LATER, 500, "estimated"),
        (1400 + LATER, 2005, "estimated"),
    ]


def test_usage_written_late_by_old_versions_is_set_back_by_the_tools_time(tmp_path: Path) -> None:
    output = json.dumps({"output": "", "metadata": {"exit_code": 0, "duration_seconds": 1.5}})
    log = Log("0.34.0").meta().context().user("go").wait(2500).count(9, 1)
    log.item(asked("a")).item(told("a", output)).wait(700).count(12, 1)
    log.item(said("assistant", "k"))
    assert times(log, tmp_path) == [
        (LATER, 1000, "estimated"),
        (2500 + LATER, 3200, "estimated"),
    ]


def test_a_call_without_usage_ends_with_its_last_output(tmp_path: Path) -> None:
    log = Log().meta().context().user("go").wait(400).item(said("assistant", "half"))
    assert times(log.wait(9000).user("hello?"), tmp_path) == [(LATER, 400, "estimated")]


def test_a_fold_before_a_turn_starts_with_the_turn(tmp_path: Path) -> None:
    log = Log().meta().context().user("go").item(said("assistant", "k")).usage(9)
    log.wait(60_000).turn().wait(900).item(said("assistant", "sum"), compaction_output=True)
    log.usage(20, 5).put("compacted", {"message": "sum", "replacement_history": []})
    assert times(log, tmp_path)[1] == (60_000 + LATER, 60_900, "estimated")


def test_times_never_run_backwards_within_a_session(tmp_path: Path) -> None:
    log = Log().meta().wait(5000).context().user("go").wait(100).item(said("assistant", "k"))
    log.usage(9)
    log.now_ms = 1000  # the clock was set back
    log.user("on").wait(100).item(said("assistant", "k")).usage(12)
    log.now_ms = 9000
    log.user("on").wait(100).item(said("assistant", "k")).usage(15)
    found = times(log, tmp_path)
    starts = [start for start, _, _ in found]
    assert starts == sorted(starts)
    assert all(end >= start for start, end, _ in found)
    assert found[2][:2] == (9000 + LATER, 9100)


def test_records_without_a_time_take_that_of_the_record_before(tmp_path: Path) -> None:
    log = Log().meta().context().wait(100).user("go")
    for line in (said("assistant", "k"),):
        log.raw(json.dumps({"type": "response_item", "payload": line, "timestamp": "?"}).encode())
    assert times(log.wait(400).usage(9), tmp_path) == [(100, 500, "estimated")]


def test_a_file_without_any_time_keeps_its_order(tmp_path: Path) -> None:
    log = Log("0.128.0")
    for at in range(2):
        for kind, payload in (
            ("response_item", said("user", f"go {at}")),
            ("response_item", said("assistant", "k")),
        ):
            log.raw(json.dumps({"type": kind, "payload": payload}).encode())
    calls = read(log.save(tmp_path))
    assert [(c.start_us, c.end_us, c.time_source) for c in calls] == [
        (0, 0, "order_only"),
        (1, 1, "order_only"),
    ]
