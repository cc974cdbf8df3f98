from __future__ import annotations

import pytest

from agentkv_trace.trace.calibrate import Growth, Measured, Rates, fit, head_tokens


def rate(growths: list[Growth], measured: list[Measured]) -> float:
    return fit(growths, measured).bytes_per_token


def test_the_rate_is_the_sum_of_bytes_over_the_sum_of_growth() -> None:
    # A ratio of sums: one small odd call does not weigh as much as a large one.
    assert rate([Growth(4000, 1000), Growth(40, 30)], []) == pytest.approx(4040 / 1030)


def test_steps_that_do_not_grow_are_left_out() -> None:
    growths = [Growth(300, 100), Growth(500, -20), Growth(0, 10), Growth(700, 0)]
    assert rate(growths, []) == 3.0


def test_without_usage_the_rate_is_four() -> None:
    assert rate([], []) == 4.0


def test_the_rate_rises_until_no_head_is_negative() -> None:
    # 1000 tokens logged for 5000 visible bytes: at 4 bytes a token the head would be -250.
    measured = [Measured(0, 5000, 1000)] * 3
    assert rate([Growth(400, 100)], measured) == 5.0
    assert head_tokens(measured, Rates(5.0)) == {0: 0}


def test_a_rare_head_does_not_raise_the_rate() -> None:
    common = [Measured(0, 4000, 2000)] * 60
    assert rate([Growth(400, 100)], [*common, Measured(1, 9000, 1000)]) == 4.0


def test_an_impossible_fit_is_bounded() -> None:
    assert rate([Growth(100_000, 10)], []) == 8.0
    assert rate([Growth(10, 100)], []) == 1.0


def test_a_head_is_the_median_of_what_is_not_visible() -> None:
    measured = [Measured(7, 4000, 1500), Measured(7, 8000, 2510), Measured(7, 400, 9100)]
    assert head_tokens(measured, Rates(4.0)) == {7: 510}


def test_a_call_with_no_logged_token_says_nothing() -> None:
    assert head_tokens([Measured(0, 400, 0)], Rates(4.0)) == {}


def test_what_steps_with_reasoning_grow_beyond_their_text_is_reasoning() -> None:
    plain, mixed = [Growth(4000, 1000)] * 3, [Growth(400, 100 + 60, 20)] * 2
    assert fit([*plain, *mixed], []) == Rates(4.0, 3.0)


def test_reasoning_that_the_provider_drops_counts_nothing() -> None:
    assert fit([Growth(4000, 1000), Growth(4000, 900, 500)], []) == Rates(4.0, 0.0)


def test_too_few_steps_without_reasoning_fit_no_scale() -> None:
    growths = [Growth(40, 30), *[Growth(4000, 1000, 500)] * 9]
    assert fit(growths, []) == Rates(36040 / 9030, 1.0)


def test_a_fixed_rate_is_kept_and_the_scale_fitted_to_it() -> None:
    growths = [Growth(4000, 1000), Growth(500, 150, 25)]
    assert fit(growths, [Measured(0, 9000, 10)] * 3, fixed_bytes_per_token=5.0) == Rates(5.0, 2.0)


def test_heads_are_sized_after_reasoning() -> None:
    assert head_tokens([Measured(0, 400, 300, 50)], Rates(4.0, 2.0)) == {0: 100}
