"""Numbers as people read them."""

from __future__ import annotations

import pytest

from agentkv_trace.report.units import format_bytes, format_points, format_ratio, format_tokens


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "0"),
        (950, "950"),
        (999, "999"),
        (1000, "1k"),
        (12_345, "12.3k"),
        (999_499, "999k"),
        (999_500, "1M"),
        (1_234_567, "1.23M"),
        (4_560_000_000, "4.56B"),
        (1_048_576, "1.05M"),
        (9_996, "10k"),
        (10**16, "10000T"),
    ],
)
def test_tokens(number: int, expected: str) -> None:
    assert format_tokens(number) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (98_304, "96 KiB"),
        (61_464, "60 KiB"),
        (int(11.4 * 2**30), "11.4 GiB"),
        (64 * 2**30, "64 GiB"),
        (1536 * 2**30, "1.5 TiB"),
        (2**40 - 1, "1 TiB"),
    ],
)
def test_bytes(number: int, expected: str) -> None:
    assert format_bytes(number) == expected


def test_ratios_and_points() -> None:
    assert format_ratio(0.41) == "41.0%"
    assert format_ratio(1.0) == "100.0%"
    assert format_points(0.522) == "52.2 points"
