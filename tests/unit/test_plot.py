from __future__ import annotations

import pytest

from agentkv_trace.report.plot import HEIGHT, human, plot


def cliff(xs):
    return [1.0 if x < 4096 else 0.25 for x in xs]


def drawn(ratio_at=cliff, first=256, last=65536, width=60, unicode=False, markers=()):
    return plot(
        ratio_at, first, last, title="T", x_label="X", width=width, unicode=unicode, markers=markers
    ).split("\n")


@pytest.mark.parametrize("width", [32, 60, 80, 160])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_wider_than_the_terminal(width: int, unicode: bool) -> None:
    lines = drawn(width=width, unicode=unicode, markers=[(4096, "pool")])
    assert max(map(len, lines)) <= width
    assert max(map(len, lines)) >= width - 2
    assert len(lines) == 1 + HEIGHT + 3 + 1


def test_ascii_where_there_is_no_utf8() -> None:
    assert "\n".join(drawn(markers=[(512, "pool")])).isascii()


def test_the_cliff_stands_where_the_curve_falls() -> None:
    lines = drawn(width=7 + 65)
    # 65 columns over 8 octaves: 4096 = 256 * 2^4 is half way.
    assert lines[1][6:] == "*" * 32
    # A ratio of 0.25 is 10.5 of 14 rows down.
    assert lines[1 + 10][6:] == " " * 32 + "*" * 33
    assert [line[6 + 32] for line in lines[2:12]] == ["*"] * 10


def test_axis_labels_are_powers_of_two_under_their_ticks() -> None:
    lines = drawn(width=160)
    axis, labels = lines[-3], lines[-2]
    assert labels.split() == ["256", "512", "1Ki", "2Ki", "4Ki", "8Ki", "16Ki", "32Ki", "64Ki"]
    ticks = [i for i, cell in enumerate(axis) if cell == "+"][1:]
    assert len(ticks) == 9
    assert labels[ticks[4] - 1 : ticks[4] + 2] == "4Ki"


def test_markers_have_a_letter_and_a_legend() -> None:
    lines = drawn(markers=[(4096, "pool of A"), (1e9, "pool of B")])
    assert lines[-2:] == ["A: pool of A", "B: pool of B (beyond the axis)"]
    assert "A" in lines[1]
    assert "B" not in lines[1]


@pytest.mark.parametrize(
    "ratio_at",
    [
        lambda xs: [0.0 for _ in xs],
        lambda xs: [1.0 for _ in xs],
        lambda xs: [2.0 for _ in xs],
        lambda xs: [-1.0 for _ in xs],
    ],
)
def test_flat_curves_stay_inside(ratio_at) -> None:
    for unicode in (True, False):
        assert len(drawn(ratio_at, unicode=unicode)) == 1 + HEIGHT + 3


def test_an_axis_of_one_point_still_draws() -> None:
    assert len(drawn(first=0, last=0)) == 1 + HEIGHT + 3


def test_braille_dots_of_a_flat_line_are_one_row() -> None:
    lines = drawn(lambda xs: [0.0 for _ in xs], unicode=True)
    assert set(lines[HEIGHT][6:]) == {"⣀"}
    assert set("".join(line[6:] for line in lines[1:HEIGHT])) <= {" "}


@pytest.mark.parametrize(
    ("value", "text"), [(1, "1"), (512, "512"), (2048, "2Ki"), (3 * 2**20, "3Mi"), (2**41, "2Ti")]
)
def test_human(value: float, text: str) -> None:
    assert human(value) == text
