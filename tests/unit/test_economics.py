"""Times, balances and verdicts, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agentkv_trace.advise.economics import (
    Band,
    CostBands,
    Costs,
    Machine,
    Traffic,
    break_even_gbps,
    load_s,
    offload_benefit,
    prefill_s,
    time_balance,
)
from agentkv_trace.advise.machine import (
    HOST_DRAM_GBPS,
    Measured,
    block_bytes,
    calibrated,
    cost_bands,
    machine,
)
from agentkv_trace.advise.verdict import in_words, judge
from agentkv_trace.errors import InputError
from agentkv_trace.profiles.connectors import find_connector
from agentkv_trace.profiles.flops import PrefillCost, prefill_cost
from agentkv_trace.profiles.load import find_gpu, find_model
from agentkv_trace.tiers.capacity import Deployment

COST = PrefillCost(linear=1000, full=2)
MACHINE = Machine(linear_flops=1e6, attention_flops=1e6, kv_rank_bytes=1e6)
COSTS = Costs(
    mfu=0.5, h2d_gbps=1.0, d2h_gbps=2.0, restore_s=0.01, store_sync_s=0.1, write_exposed=0.25
)
TRAFFIC = Traffic(
    saved_linear=5e6, saved_attention=5e6, restored_tokens=1000, restores=10, written_tokens=800,
    steps=20,
)  # fmt: skip


def one(value: float) -> Band:
    return Band(value, value, value)


def bands(**changed: Band) -> CostBands:
    fixed = {
        "mfu": one(0.5), "h2d_gbps": one(1.0), "d2h_gbps": one(2.0), "restore_s": one(0.01),
        "store_sync_s": one(0.1), "write_exposed": one(0.25),
    }  # fmt: skip
    return CostBands(**(fixed | changed))


def test_one_prompt() -> None:
    # 100 tokens: 100 * 1000 + 2 * 100^2 / 2 = 110,000 FLOP at half of 1e6 a second.
    assert prefill_s(COST, 0, 100, MACHINE, 0.5) == pytest.approx(0.22)
    # Its second half costs more than its first.
    assert prefill_s(COST, 50, 100, MACHINE, 0.5) == pytest.approx(0.115)
    # 100 MB at 1 GB/s and 10 ms.
    assert load_s(100, MACHINE, COSTS) == pytest.approx(0.11)
    assert offload_benefit(COST, 100, MACHINE, COSTS) == pytest.approx(0.5)
    # 100 MB in the 0.22 s that computing takes.
    assert break_even_gbps(COST, 100, MACHINE, 0.5) == pytest.approx(0.1 / 0.22)


def test_benefit_is_one_less_balance_over_intensity() -> None:
    # The form of the theory: 1 - M / I - tau / T_rec.
    flops = COST.flops(0, 100)
    intensity, balance = flops / (100 * 1e6), 0.5 * 1e6 / 1e9
    tau = 0.01 / prefill_s(COST, 0, 100, MACHINE, 0.5)
    expected = 1 - balance / intensity - tau
    assert offload_benefit(COST, 100, MACHINE, COSTS) == pytest.approx(expected)


def test_balance_over_a_trace() -> None:
    found = time_balance(TRAFFIC, MACHINE, COSTS)
    assert found.saved_s == pytest.approx(20)  # 1e7 FLOP at half of 1e6
    assert found.restore_s == pytest.approx(1 + 0.1)
    assert found.write_s == pytest.approx(0.8e9 / 2e9 * 0.25)
    assert found.sync_s == pytest.approx(2)
    assert found.gain_s == pytest.approx(20 - 1.1 - 0.1 - 2)
    half = time_balance(TRAFFIC, replace(MACHINE, replicas=2), COSTS)
    assert half.gain_s == pytest.approx(found.gain_s / 2)


def test_overlap_hides_a_restore_as_far_as_the_call_computes() -> None:
    each = replace(
        TRAFFIC,
        restored_each=np.array([500, 500, 0]),
        computed_linear_each=np.array([1e5, 1e6, 1e6]),
        computed_attention_each=np.zeros(3),
    )
    hidden = time_balance(each, replace(MACHINE, overlap=0.5), COSTS)
    # Loads of 0.51 s each; computing of 0.2 and 2 s hides 0.1 and all of it.
    assert hidden.restore_s == pytest.approx(0.41)
    assert time_balance(each, MACHINE, COSTS).restore_s == pytest.approx(1.1)


def test_corners_favour_and_harm_the_tier() -> None:
    wide = bands(mfu=Band(0.4, 0.5, 0.6), h2d_gbps=Band(1, 2, 3), store_sync_s=Band(0, 1, 2))
    least, most = wide.least(), wide.most()
    assert (least.mfu, least.h2d_gbps, least.store_sync_s) == (0.6, 1, 2)
    assert (most.mfu, most.h2d_gbps, most.store_sync_s) == (0.4, 3, 0)
    gains = [time_balance(TRAFFIC, MACHINE, c).gain_s for c in (least, wide.mid(), most)]
    assert gains == sorted(gains)


def test_verdicts() -> None:
    def word(**changed: Band) -> str:
        return judge(TRAFFIC, MACHINE, bands(**changed), lambda mfu: 100.0).word

    assert word() == "pays"
    assert word(store_sync_s=Band(1.2, 1.5, 2)) == "costs"
    assert word(store_sync_s=Band(0, 0.5, 2)) == "depends"
    # 18.8 s saved without stores; 0.94 s a step takes all of it.
    assert word(store_sync_s=Band(0.935, 0.94, 0.945)) == "neutral"
    # The signs agree, on less than 1% in the middle.
    assert word(store_sync_s=Band(0.5, 0.935, 0.939)) == "neutral"


def test_the_deciding_input_is_named_with_its_break_even() -> None:
    wide = bands(store_sync_s=Band(0, 0.5, 2), h2d_gbps=Band(0.9, 1, 1.1))
    found = judge(TRAFFIC, MACHINE, wide, lambda mfu: 100.0).decider
    assert found is not None
    assert found.input == "store_sync_s"
    assert found.break_even == pytest.approx(18.8 / 20)
    assert in_words(found) == (
        "the wait of each prefill step for its store (0 to 2e+03 ms; even at 940 ms)"
    )


def test_no_input_decides_alone() -> None:
    wide = bands(mfu=Band(0.2, 0.5, 0.9), store_sync_s=Band(0.6, 0.7, 0.8))
    found = judge(TRAFFIC, MACHINE, wide, lambda mfu: 100.0)
    assert found.word == "depends"
    assert found.decider is not None
    assert found.decider.input == "mfu"
    assert found.decider.break_even is not None or "alone" in in_words(found.decider)


def test_compute_per_byte_alone_decides_nothing() -> None:
    # The same machine and costs: with hits it pays, without it costs what its stores cost.
    none = replace(TRAFFIC, saved_linear=0.0, saved_attention=0.0, restored_tokens=0, restores=0)
    assert judge(TRAFFIC, MACHINE, bands(), lambda mfu: 100.0).word == "pays"
    assert judge(none, MACHINE, bands(), lambda mfu: 100.0).word == "costs"


def test_bands_of_a_gpu() -> None:
    gpu, connector = find_gpu("h20"), find_connector("vllm-async")
    alone = cost_bands(gpu, Deployment(), connector, 2**20)
    assert alone is not None
    assert alone.h2d_gbps.high == pytest.approx(54.4 * 51.8 / 52)
    assert alone.store_sync_s == (0, 0, 0.005)
    # Eight at once share the host's memory; two on a link share that.
    eight = cost_bands(gpu, Deployment(tp=8), connector, 2**20)
    assert eight is not None
    assert eight.h2d_gbps.low == HOST_DRAM_GBPS.low / 8
    shared = cost_bands(gpu, Deployment(), connector, 2**20, gpus_per_link=2)
    assert shared is not None
    assert shared.h2d_gbps.high == pytest.approx(alone.h2d_gbps.high / 2)
    # A GPU with its own processor shares with nobody; unified memory has no link.
    own = cost_bands(find_gpu("gh200-96"), Deployment(tp=8), connector, 2**20)
    assert own is not None
    assert own.h2d_gbps.high == pytest.approx(342 * 51.8 / 52)
    assert cost_bands(find_gpu("dgx-spark"), Deployment(), connector, 2**20) is None


def test_blocks_of_one_layer_copy_slowly() -> None:
    model, connector = find_model("llama-3.1-8b"), find_connector("vllm-per-layer")
    block = block_bytes(model, connector, 16, 131_072)
    assert block == 32_768  # 16 tokens of one layer's keys: 32 KiB, as published
    slow = cost_bands(find_gpu("h100-sxm"), Deployment(), connector, block)
    assert slow is not None
    assert slow.h2d_gbps.mid == 5
    assert block_bytes(model, find_connector("lmcache"), 256, 131_072) == 32 * 2**20


def test_machine_uses_the_peak_of_the_weights() -> None:
    gpu, connector = find_gpu("h100-sxm"), find_connector("vllm-async")
    plain = machine(gpu, Deployment(tp=2, dp=3), 1, connector)
    assert (plain.linear_flops, plain.attention_flops) == (2 * 989e12, 2 * 989e12)
    assert plain.replicas == 3
    fp8 = machine(gpu, Deployment(weight_dtype="fp8"), 1, connector)
    assert (fp8.linear_flops, fp8.attention_flops) == (1978e12, 989e12)
    ampere = machine(find_gpu("rtx3090"), Deployment(weight_dtype="fp8"), 1, connector)
    assert ampere.linear_flops == 71e12


def test_what_was_measured_replaces_the_guess() -> None:
    gpu, connector = find_gpu("h20"), find_connector("lmcache")
    cost, where = prefill_cost(find_model("qwen3-8b")), machine(gpu, Deployment(), 1, connector)
    guess = cost_bands(gpu, Deployment(), connector, 2**20)
    assert guess is not None
    measured = Measured(prefill_tokens_per_s=5000, h2d_gbps=20, store_sync_ms=7)
    found = calibrated(guess, measured, where, cost, 20_000)
    assert found.mfu.low == found.mfu.high
    assert prefill_s(cost, 0, 20_000, where, found.mfu.mid) == pytest.approx(20_000 / 5000)
    assert found.h2d_gbps == one(20)
    assert found.store_sync_s == one(0.007)
    assert calibrated(guess, Measured(), where, cost, 20_000) == guess
    with pytest.raises(InputError, match="the peak of these GPUs"):
        calibrated(guess, Measured(prefill_tokens_per_s=1e6), where, cost, 20_000)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_measured_values_that_cannot_be_meant(value: float) -> None:
    for field in ("prefill_tokens_per_s", "h2d_gbps"):
        with pytest.raises(InputError, match=field.replace("_", "-")):
            Measured(**{field: value}).check()
    if value:
        with pytest.raises(InputError, match="--store-sync-ms"):
            Measured(store_sync_ms=value).check()
