"""The shipped profiles: complete, and equal to what is known of them by other ways."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from agentkv_trace.profiles.load import Gpu, find_gpu, find_model, gpus, models

PUBLISHED_TOLERANCE = 0.02


def test_all_profiles_are_there() -> None:
    assert len(gpus()) == 22
    assert len(models()) == 35


# Layers x what one layer keeps, by hand from each maker's description.
@pytest.mark.parametrize(
    ("name", "bf16", "fp8"),
    [
        ("qwen3-8b", 36 * 2 * 8 * 128 * 2, 36 * 2 * 8 * 128),
        ("llama-3.1-8b", 131_072, 65_536),
        ("llama-3.1-70b", 327_680, 163_840),
        ("qwen3-coder-30b-a3b", 98_304, 49_152),
        ("mistral-small-24b", 40 * 2 * 8 * 128 * 2, 40 * 2 * 8 * 128),
        ("deepseek-v3", 61 * (512 + 64) * 2, 61 * (512 + 64)),
        ("deepseek-v3.2", 61 * (1152 + 132), 61 * (656 + 132)),
        ("glm-5.2", 78 * (1152 + 132), 61_464),
        ("qwen3-next-80b-a3b", 12 * 2 * 2 * 256 * 2, 12 * 2 * 2 * 256),
        ("gpt-oss-20b", 12 * 2 * 8 * 64 * 2, 12 * 2 * 8 * 64),
    ],
)
def test_kv_bytes_by_hand(name: str, bf16: int, fp8: int) -> None:
    model = find_model(name)
    assert model.kv_bytes_per_token(2) == bf16
    assert model.kv_bytes_per_token(1) == fp8


def test_windows_and_state_by_hand() -> None:
    assert find_model("gemma-3-27b").window_bytes_per_token(2) == 52 * 2 * 16 * 128 * 2
    # 45 layers of 64 x 128 x 128 FP32 cells, and 3 steps of the convolution's input in BF16.
    state = 45 * (64 * 128 * 128 * 4 + (2 * 16 * 128 + 64 * 128) * 3 * 2)
    assert find_model("qwen3.5-397b-a17b").state_bytes == state
    assert find_model("qwen3-8b").state_bytes == 0


@pytest.mark.parametrize("model", models().values(), ids=models())
def test_parameters_are_near_the_published(model) -> None:
    factor = {"B": 1e9, "T": 1e12}
    figures = re.findall(r"([\d.]+)([BT])", model.published)
    total = float(figures[0][0]) * factor[figures[0][1]]
    # Makers round to a whole billion, which is more than 2% of a small figure.
    digits = len(figures[0][0].partition(".")[2])
    rounding = 0.5 * 10**-digits * factor[figures[0][1]]
    assert abs(model.params - total) <= max(PUBLISHED_TOLERANCE * total, rounding)


@pytest.mark.parametrize("model", models().values(), ids=models())
def test_shapes_make_sense(model) -> None:
    kinds = model.kinds
    assert kinds.full + kinds.swa + kinds.chunk + kinds.linear == model.layers
    assert (model.window is not None) == bool(kinds.swa or kinds.chunk)
    assert (model.linear is not None) == bool(kinds.linear)
    assert bool(model.mla) != bool(model.kv_heads and model.head_dim)
    assert not model.index or model.mla
    assert bool(model.ffn) == (not model.moe or model.moe.dense_layers > 0)
    assert model.sources


@pytest.mark.parametrize("gpu", gpus().values(), ids=gpus())
def test_gpus_make_sense(gpu) -> None:
    # What the driver gives lies between the label read as 10^9 and as 2^30 bytes, but for cards
    # with in-band ECC, which give less.
    assert 0.9 * gpu.memory_gb * 1e9 <= gpu.memory_bytes <= gpu.memory_gb * 2**30
    low, mid, high = gpu.prefill_mfu
    assert 0 < low < mid < high < 1
    assert gpu.unified_memory == (gpu.host_link.peak_gbps is None)
    if not gpu.unified_memory:
        assert gpu.host_link.h2d_gbps <= gpu.host_link.peak_gbps
    assert gpu.note
    assert gpu.sources


def test_compute_per_host_link_byte() -> None:
    # The paper's 2.2K, 2.3K and 15.5K divide by raw lane rates, 32 and 64 GB/s, not payload.
    for name, paper, raw in (("rtx3090", 2.2e3, 32), ("h20", 2.3e3, 64), ("h800", 15.5e3, 64)):
        gpu = find_gpu(name)
        payload = gpu.flops_per_host_byte
        assert payload is not None
        assert payload * gpu.host_link.peak_gbps / raw == pytest.approx(paper, rel=0.01)
    assert find_gpu("dgx-spark").flops_per_host_byte is None


def test_attention_in_words() -> None:
    assert find_model("qwen3-8b").attention == "GQA"
    assert find_model("deepseek-v3.2").attention == "MLA with sparse attention"
    assert find_model("gpt-oss-20b").attention == "GQA with a sliding window of 128 tokens"
    assert find_model("qwen3.5-27b").attention == "GQA with recurrent layers"


def test_a_misspelt_field_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.toml.decode(b'[card]\nname = "Card"\nmemroy_gb = 24\n', type=dict[str, Gpu])


def test_no_name_of_a_package_registry() -> None:
    folder = Path(__file__).parents[2] / "agentkv_trace" / "profiles"
    for name in ("gpus.toml", "models.toml"):
        assert "pypi" not in (folder / name).read_text(encoding="utf-8").lower()


def test_models_equal_figures_computed_elsewhere(shared: Path) -> None:
    text = (shared / "profiles" / "models.json").read_text(encoding="utf-8")
    known = {model["id"]: model for model in json.loads(text)["models"]}
    assert list(models()) == list(known)
    for key, model in models().items():
        figures = known[key]
        index = figures["index_bytes_per_token"]
        computed = {
            "kv_bytes_per_token_bf16": model.kv_bytes_per_token(2) - index,
            "kv_bytes_per_token_fp8": model.kv_bytes_per_token(1) - index,
            "window_bytes_per_token_bf16": model.window_bytes_per_token(2),
            "state_bytes_per_snapshot_fp32": model.state_bytes,
            "params_total_calc": model.params,
            "params_active_calc": model.active_params,
            "params_active_nonembed_calc": model.active_body_params,
        }
        assert computed == {name: figures[name] for name in computed}, key


def test_gpus_equal_the_collected_figures(shared: Path) -> None:
    text = (shared / "profiles" / "gpus.json").read_text(encoding="utf-8")
    known = {gpu["id"]: gpu for gpu in json.loads(text)["gpus"]}
    assert list(gpus()) == list(known)
    for key, gpu in gpus().items():
        figures, link = known[key], known[key]["host_link"]
        assert gpu.memory_gb == figures["mem_gb"], key
        assert gpu.memory_gbps == figures["mem_bw_gbps"], key
        assert gpu.bf16_tflops == figures["bf16_dense_tflops"], key
        assert gpu.fp8_tflops == figures["fp8_dense_tflops"], key
        assert gpu.gemm_bf16_tflops == figures["measured_gemm_bf16_tflops"], key
        assert list(gpu.prefill_mfu) == figures["prefill_mfu_low_mid_high"], key
        assert gpu.host_link.peak_gbps == (link["peak_gbps_per_dir"] or None), key
        assert gpu.host_link.h2d_gbps == link["achieved_h2d_gbps"], key
        assert gpu.host_link.d2h_gbps == link["achieved_d2h_gbps"], key
        ratio = figures["compute_per_host_byte_peak"]
        assert gpu.flops_per_host_byte == (ratio and pytest.approx(ratio, abs=0.5)), key
