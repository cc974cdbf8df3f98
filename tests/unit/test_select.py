from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.trace.select import parse_time, select
from replays import trace_of

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2026-03-09", "2026-03-09T00:00:00+00:00"),
        ("2026-03-09T08:30", "2026-03-09T08:30:00+00:00"),
        ("2026-03-09T08:30:00+02:00", "2026-03-09T06:30:00+00:00"),
        ("2026-03-09T08:30:00Z", "2026-03-09T08:30:00+00:00"),
        ("7d", "2026-03-03T12:00:00+00:00"),
        ("12h", "2026-03-10T00:00:00+00:00"),
        ("90m", "2026-03-10T10:30:00+00:00"),
    ],
)
def test_times(text: str, iso: str) -> None:
    assert parse_time(text, NOON) == round(datetime.fromisoformat(iso).timestamp() * 1e6)


@pytest.mark.parametrize("text", ["", "yesterday", "d", "-3d", "2026-13-01", "999999999d"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="write it like"):
        parse_time(text, NOON)


def test_names_of_calls_left_out_are_gone() -> None:
    trace = trace_of([[1], [2], [3], [1, 4]], sessions=["a", "b", "c", "a"])
    kept = select(trace, np.array([True, False, True, True]))
    codes, names = kept.codes("session")
    assert names == ["a", "c"]
    assert codes.tolist() == [0, 1, 0]
    assert codes.dtype == np.int32
