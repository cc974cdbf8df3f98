from __future__ import annotations

import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.tiers.size import Size, parse_sizes


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [
        ("4096chunks", 4096, "chunks"),
        ("1 chunk", 1, "chunks"),
        ("2Mtok", 2_000_000, "tokens"),
        ("512ktokens", 512_000, "tokens"),
        ("100tok", 100, "tokens"),
        ("40GiB", 40 * 2**30, "bytes"),
        ("40gb", 40 * 10**9, "bytes"),
        ("1.5TiB", 1.5 * 2**40, "bytes"),
        ("7B", 7, "bytes"),
    ],
)
def test_units(text: str, amount: float, unit: str) -> None:
    assert Size.parse(text) == Size(amount, unit)


@pytest.mark.parametrize(
    "text", ["", "40", "-1chunks", "GiB", "40XiB", "1e3tok", "4 0GiB", "nanGiB"]
)
def test_anything_else_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(InputError, match="4096chunks, 2Mtok or 40GiB"):
        Size.parse(text)


def test_conversion_to_whole_chunks() -> None:
    assert Size(3, "chunks").chunks(16, None) == 3
    assert Size(100, "tokens").chunks(16, None) == 6
    assert Size(2**20, "bytes").chunks(16, 1000.0) == 65
    with pytest.raises(InputError, match="--model"):
        Size(1, "bytes").chunks(16, None)


def test_lists() -> None:
    assert parse_sizes("1chunks,2tok") == [Size(1, "chunks"), Size(2, "tokens")]
    with pytest.raises(InputError):
        parse_sizes("1chunks,")
