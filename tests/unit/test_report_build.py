"""The advice itself, on a curve small enough to check by hand."""

from __future__ import annotations

import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.profiles.load import find_gpu, find_model
from agentkv_trace.report.build import COMMON_GPUS, build_report
from agentkv_trace.report.model import Report, ReportOptions, TraceFacts
from naive import DistanceCurve, DistanceWorkload

GIB = 2**30
FACTS = TraceFacts(calls=1000, sessions=1, longest_prompt_tokens=4096, tokenizer="bytes")
# Chunks of 16 tokens of 128 KiB: 2 MiB. 40% hit from 1 GiB on, 50% more from 50 GiB on.
CURVE = DistanceCurve([512] * 400 + [25_600] * 500, cold=100)


def report(*names: str, model: str = "llama-3.1-8b", curve=CURVE, **options: object) -> Report:
    gpus = [find_gpu(name) for name in names]
    return build_report(
        DistanceWorkload(curve, FACTS), find_model(model), gpus, ReportOptions(**options)
    )


def test_buy_host_memory() -> None:
    (found,) = report("rtx3090").gpus
    assert found.host == found.judged
    assert "64 GiB host memory" in found.summary
    assert "hits 40.0% -> 90.0%" in found.summary
    assert (found.gpu_hit_ratio, found.best_hit_ratio) == (0.4, 0.9)
    assert found.need_bytes == 50 * GIB
    assert found.host is not None
    assert found.host.total_bytes == 64 * GIB
    assert found.host.holds_tokens == 64 * GIB // 131_072
    assert (found.host.hit_ratio, found.host.recovered) == (0.9, 1.0)
    sizes = {size.total_bytes // GIB: size.hit_ratio for size in found.host_sizes}
    assert sizes == {24: 0.4, 32: 0.4, 48: 0.4, 64: 0.9, 96: 0.9, 128: 0.9}


def test_nothing_to_gain() -> None:
    (found,) = report("h20").gpus
    assert found.verdict == "neutral"
    assert found.summary == (
        "H20: neutral: buy no host memory: the GPU's KV pool holds the whole working set"
    )
    assert (found.host, found.need_bytes, found.host_sizes) == (None, None, ())
    assert found.gpu_hit_ratio == found.best_hit_ratio == 0.9


def test_a_pool_given_by_the_engine() -> None:
    (found,) = report("h20", gpu_kv_tokens=20_000).gpus
    assert found.host is not None
    assert found.pool is not None
    assert (found.pool.tokens, found.pool.weight_bytes) == (20_000, None)


def test_tensor_parallelism_counts_all_ranks() -> None:
    whole = report("rtx3090", gpu_kv_tokens=20_000)
    split = report("rtx3090", gpu_kv_tokens=20_000, tp=8)
    assert split.gpus[0].need_bytes == whole.gpus[0].need_bytes
    assert split.gpus[0].host is not None
    assert split.gpus[0].host.per_rank_bytes == 8 * GIB
    assert split.gpus[0].summary.startswith("8 x RTX 3090: ")
    assert "64 GiB host memory (8 GiB per rank)" in split.gpus[0].summary
    # Sixteen ranks hold the eight KV heads twice, so the host keeps twice the bytes.
    doubled = report("rtx3090", gpu_kv_tokens=20_000, tp=16)
    assert doubled.gpus[0].need_bytes == 100 * GIB
    assert doubled.model.kv_bytes_per_token_all_ranks == 2 * 131_072


def test_unified_memory_has_no_host_tier() -> None:
    (found,) = report("dgx-spark", gpu_kv_tokens=20_000).gpus
    assert found.verdict == "neutral"
    assert found.reason is not None
    assert "unified" in found.reason


def test_a_gpu_that_is_too_small_stands_beside_others() -> None:
    small, large = report("rtx3090", "b200-sxm", model="llama-3.1-70b").gpus
    assert small.verdict == "does_not_fit"
    assert small.pool is None
    assert small.summary.startswith("RTX 3090: does not fit: bf16 weights are ")
    assert small.summary.endswith("--tp 8")
    assert large.verdict != "does_not_fit"


def test_no_gpu_fits() -> None:
    with pytest.raises(InputError, match=r"Llama-3\.1-70B does not fit RTX 3090"):
        report("rtx3090", "l4", model="llama-3.1-70b")


def test_no_gpu() -> None:
    with pytest.raises(InputError, match="--gpu"):
        report()


def test_a_share_out_of_range() -> None:
    with pytest.raises(InputError, match=r"--recover 2\.0"):
        report("h20", recover=2.0)


def test_a_hybrid_model_is_refused() -> None:
    with pytest.raises(InputError, match="--kv-bytes-per-token"):
        report("h20", model="qwen3.5-27b")
    given = report("h20", model="qwen3.5-27b", kv_bytes_per_token=65_536)
    assert any("64 KiB per token and rank is as given" in said for said in given.assumptions)


def test_gpus_keep_their_order_and_come_once() -> None:
    found = report("h20", "rtx3090", "h20").gpus
    assert [finding.gpu for finding in found] == ["h20", "rtx3090"]


def test_a_pool_below_the_longest_prompt_is_noted() -> None:
    assert "longest prompt" in report("h20", gpu_kv_tokens=4095).gpus[0].notes[0]
    assert report("h20", gpu_kv_tokens=4096).gpus[0].notes == ()


def test_working_set() -> None:
    work = report("h20", recover=0.4).workload
    assert work.working_set_tokens == 25_600 * 16
    assert work.working_set_bytes == 50 * GIB
    assert work.recover_working_set_tokens == 512 * 16
    assert work.prompt_tokens == 16_000
    assert work.best_hit_ratio == 0.9


def test_assumptions_say_what_the_numbers_rest_on() -> None:
    said = " ".join(report("h20", gpu_memory_utilization=0.8).assumptions)
    for words in ("inclusive", "80.0% of GPU memory", "estimate for H20", "0.5 points"):
        assert words in said
    given = " ".join(report("h20", gpu_kv_tokens=20_000).assumptions)
    assert "The KV pool of 20k tokens is as given." in given
    assert "GPU memory is an estimate" not in given


def test_the_common_gpus_are_known() -> None:
    assert [find_gpu(name).id for name in COMMON_GPUS] == list(COMMON_GPUS)


def test_the_same_input_gives_the_same_report() -> None:
    assert report("h20", "rtx3090") == report("h20", "rtx3090")
