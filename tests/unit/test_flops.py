"""The work of prefill: by hand, by summing positions, and against figures computed elsewhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from agentkv_trace.profiles.flops import PrefillCost, prefill_cost
from agentkv_trace.profiles.load import find_model, models

if TYPE_CHECKING:
    from pathlib import Path


def test_by_hand() -> None:
    cost = prefill_cost(find_model("qwen3-coder-30b"))
    assert cost.linear == 2 * find_model("qwen3-coder-30b").active_body_params
    assert cost.full == 2 * 32 * (128 + 128) * 48
    # 33k tokens: the attention of a long prompt weighs more than its matrices.
    assert cost.attention_flops(0, 33_228) > cost.linear_flops(0, 33_228)


def test_later_chunks_cost_more() -> None:
    cost = prefill_cost(find_model("llama-3.1-8b"))
    early, late = cost.flops(0, 1024), cost.flops(64_512, 65_536)
    assert late - early == pytest.approx(cost.full * 1024 * 64_512)


@pytest.mark.parametrize("span", [(0, 5), (0, 40), (3, 9), (7, 40), (12, 33)])
def test_bounded_attention_is_the_sum_over_positions(span: tuple[int, int]) -> None:
    """Integrals, so each position counts from its start to its end."""
    start, end = span
    fine = np.arange(start, end, 1e-3) + 0.5e-3
    window = PrefillCost(0, full=0, window=6, window_tokens=8)
    assert window.attention_flops(start, end) == pytest.approx(
        6 * np.minimum(fine, 8).sum() * 1e-3, rel=1e-6
    )
    chunk = PrefillCost(0, full=0, chunk=6, window_tokens=8)
    assert chunk.attention_flops(start, end) == pytest.approx(6 * (fine % 8).sum() * 1e-3, rel=1e-3)
    sparse = PrefillCost(0, full=1, selected=6, topk=10)
    assert sparse.attention_flops(start, end) == pytest.approx(
        (fine + 6 * np.minimum(fine, 10)).sum() * 1e-3, rel=1e-6
    )


def test_arrays_and_numbers_agree() -> None:
    cost = prefill_cost(find_model("gpt-oss-20b"))
    starts, ends = np.array([0, 100, 5000]), np.array([64, 9000, 5000])
    each = [cost.flops(int(s), int(e)) for s, e in zip(starts, ends, strict=True)]
    np.testing.assert_allclose(cost.flops(starts, ends), each)


def test_figures_computed_elsewhere(shared: Path) -> None:
    text = (shared / "profiles" / "models.json").read_text(encoding="utf-8")
    for known in json.loads(text)["models"]:
        cost = prefill_cost(models()[known["id"]])
        assert cost.linear == known["flops_linear_per_token"], known["id"]
        assert cost.window + cost.chunk == known["flops_attn_per_token_per_pos_window"]
        if "dsa" in known:
            assert cost.full == known["dsa"]["indexer_flops_per_token_per_pos"]
            assert cost.selected == known["dsa"]["main_flops_per_token_per_selected"]
        else:
            assert cost.full == known["flops_attn_per_token_per_pos_full"], known["id"]
