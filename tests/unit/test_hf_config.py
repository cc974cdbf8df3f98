"""Configs of every kind of attention, as their makers lay them out, and those that are refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.profiles.flops import prefill_cost
from agentkv_trace.profiles.hf_config import model_from_config, read_config
from agentkv_trace.profiles.load import find_model

if TYPE_CHECKING:
    from pathlib import Path

LLAMA = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "vocab_size": 128256,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "rope_theta": 500000.0, "attention_bias": False, "use_cache": True, "rope_scaling": None,
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
    "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129280,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "moe_layer_freq": 1, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "num_nextn_predict_layers": 1,
}  # fmt: skip
HYBRID = {
    "model_type": "qwen3_5_moe_text", "num_hidden_layers": 60, "hidden_size": 4096,
    "vocab_size": 248320, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 256,
    "attn_output_gate": True, "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 64,
    "linear_value_head_dim": 128, "moe_intermediate_size": 1024, "num_experts": 512,
    "num_experts_per_tok": 10, "shared_expert_intermediate_size": 1024, "mlp_only_layers": [],
    "mtp_num_hidden_layers": 1,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
}  # fmt: skip
HYBRID["layer_types"] = HYBRID["layer_types"] * 15  # type: ignore[operator]
CONFIGS = {
    "llama-3.1-8b": LLAMA,
    "qwen3-coder-30b-a3b": {
        "model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "head_dim": 128,
        "vocab_size": 151936, "num_attention_heads": 32, "num_key_value_heads": 4,
        "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
        "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "sliding_window": None, "use_sliding_window": False, "max_window_layers": 48,
    },
    "devstral-24b": {
        "model_type": "mistral", "num_hidden_layers": 40, "hidden_size": 5120, "head_dim": 128,
        "vocab_size": 131072, "num_attention_heads": 32, "num_key_value_heads": 8,
        "intermediate_size": 32768, "sliding_window": None,
    },
    "deepseek-v3": DEEPSEEK,
    "deepseek-v3.2": DEEPSEEK | {
        "model_type": "deepseek_v32", "index_topk": 2048, "index_n_heads": 64,
        "index_head_dim": 128,
    },
    "qwen3.5-397b-a17b": {
        "model_type": "qwen3_5_moe", "text_config": HYBRID, "tie_word_embeddings": False,
        "vision_config": {"num_heads": 16},
    },
    "qwen3-next-80b-a3b": {
        "model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048, "head_dim": 256,
        "vocab_size": 151936, "num_attention_heads": 16, "num_key_value_heads": 2,
        "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
        "intermediate_size": 5120, "moe_intermediate_size": 512, "num_experts": 512,
        "num_experts_per_tok": 10, "shared_expert_intermediate_size": 512, "mlp_only_layers": [],
        "use_sliding_window": False,
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss", "num_hidden_layers": 24, "hidden_size": 2880, "head_dim": 64,
        "vocab_size": 201088, "num_attention_heads": 64, "num_key_value_heads": 8,
        "intermediate_size": 2880, "num_local_experts": 32, "num_experts_per_tok": 4,
        "sliding_window": 128, "swiglu_limit": 7.0, "attention_bias": True,
    },
    "gemma-3-27b": {
        "model_type": "gemma3", "text_config": {
            "model_type": "gemma3_text", "num_hidden_layers": 62, "hidden_size": 5376,
            "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128,
            "vocab_size": 262208, "intermediate_size": 21504, "sliding_window": 1024,
            "query_pre_attn_scalar": 168, "tie_word_embeddings": True,
        },
    },
    "llama-4-maverick": {
        "model_type": "llama4", "text_config": {
            "model_type": "llama4_text", "attention_chunk_size": 8192, "head_dim": 128,
            "hidden_size": 5120, "interleave_moe_layer_step": 2, "intermediate_size": 8192,
            "intermediate_size_mlp": 16384, "num_attention_heads": 40, "num_experts_per_tok": 1,
            "num_hidden_layers": 48, "num_key_value_heads": 8, "num_local_experts": 128,
            "use_qk_norm": False, "vocab_size": 202048,
        },
    },
    "glm-4.7": {
        "model_type": "glm4_moe", "num_hidden_layers": 92, "hidden_size": 5120, "head_dim": 128,
        "vocab_size": 151552, "num_attention_heads": 96, "num_key_value_heads": 8,
        "intermediate_size": 12288, "n_routed_experts": 160, "n_shared_experts": 1,
        "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "first_k_dense_replace": 3,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_gives_the_figures_of_its_profile(name: str) -> None:
    found, known = model_from_config(CONFIGS[name], "own"), find_model(name)
    for element_bytes in (1, 2):
        assert found.kv_bytes_per_token(element_bytes) == known.kv_bytes_per_token(element_bytes)
        assert found.window_bytes_per_token(element_bytes) == known.window_bytes_per_token(
            element_bytes
        )
    assert found.state_bytes == known.state_bytes
    assert found.kinds == known.kinds
    assert found.window == known.window
    assert found.params == known.params
    assert found.active_params == known.active_params
    assert prefill_cost(found) == prefill_cost(known)


def test_layers_of_other_layouts() -> None:
    listed = LLAMA | {"num_hidden_layers": 4, "sliding_window": 512}
    for key, value, full in (
        ("layer_types", ["full_attention"] + ["sliding_attention"] * 3, 1),
        ("hybrid_layer_pattern", [0, 1, 1, 0], 2),
        ("sliding_window_pattern", 2, 2),
    ):
        found = model_from_config(listed | {key: value}, "own")
        assert (found.kinds.full, found.kinds.swa) == (full, 4 - full)
    nested = {"full_attn_layers": [4], "num_heads": 32, "head_dim": 128}
    kimi = LLAMA | {
        "num_hidden_layers": 4,
        "linear_attn_config": nested | {"short_conv_kernel_size": 4},
    }
    found = model_from_config(kimi, "own")
    assert (found.kinds.full, found.kinds.linear) == (1, 3)
    nemotron = LLAMA | {
        "num_hidden_layers": 4, "hybrid_override_pattern": "M-*-", "mamba_num_heads": 64,
        "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4,
    }  # fmt: skip
    found = model_from_config(nemotron, "own")
    assert (found.kinds.full, found.kinds.linear, found.kinds.none) == (1, 1, 2)
    assert found.state_bytes == 64 * 64 * 128 * 4 + (2 * 8 * 128 + 64 * 64) * 3 * 2
    assert found.ffn_layers == 2


def test_traps() -> None:
    # A window that is switched off or null is full attention.
    for off in ({"sliding_window": 4096, "use_sliding_window": False}, {"sliding_window": None}):
        assert model_from_config(LLAMA | off, "own").kinds.full == 32
    # Keys and values of different width.
    wide = model_from_config(LLAMA | {"head_dim": 192, "v_head_dim": 128}, "own")
    assert wide.kv_bytes_per_token(2) == 32 * 8 * (192 + 128) * 2
    # The type of quantised weights says nothing about the cache.
    quantised = LLAMA | {"quantization_config": {"quant_method": "fp8"}}
    assert model_from_config(quantised, "own").kv_bytes_per_token(2) == 131_072
    # Without grouped heads, all heads keep KV.
    mha = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    assert model_from_config(mha, "own").kv_heads == 32
    assert "multi-token" in model_from_config(DEEPSEEK, "own").note


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (LLAMA | {"compress_ratios": [4, 128]}, "compress_ratios"),
        (LLAMA | {"global_head_dim": 512}, "global_head_dim"),
        (LLAMA | {"attention_k_eq_v": True}, "attention_k_eq_v"),
        (LLAMA | {"num_kv_shared_layers": 15}, "num_kv_shared_layers"),
        (LLAMA | {"block_configs": [{}]}, "block_configs"),
        (LLAMA | {"is_encoder_decoder": True}, "is_encoder_decoder"),
        (LLAMA | {"model_type": "kimi_k3"}, "kimi_k3"),
        (LLAMA | {"kv_magic_ratio": 2}, "kv_magic_ratio"),
        (LLAMA | {"model_type": "glm_moe_dsa"}, "index_topk"),
        (LLAMA | {"swa_num_key_value_heads": 4}, "swa_num_key_value_heads"),
        (LLAMA | {"layer_types": ["quantum_attention"] * 32}, "quantum_attention"),
        (LLAMA | {"layer_types": ["full_attention"] * 31}, "31 layers are listed"),
        (LLAMA | {"num_hidden_layers": None}, "num_hidden_layers is missing"),
        (LLAMA | {"hidden_size": "large"}, "hidden_size is 'large'"),
    ],
)
def test_what_is_not_known_is_refused(config: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        model_from_config(config, "own")


def test_refusals_name_the_way_out() -> None:
    with pytest.raises(InputError, match="--kv-bytes-per-token"):
        model_from_config(LLAMA | {"compress_ratios": [4]}, "own")


def test_files(tmp_path: Path) -> None:
    folder = tmp_path / "My-Model"
    folder.mkdir()
    path = folder / "config.json"
    path.write_text(json.dumps(LLAMA), encoding="utf-8")
    model = find_model(str(path))
    assert (model.name, model.kv_bytes_per_token(2)) == ("My-Model", 131_072)
    assert str(tmp_path) not in repr(model)
    path.write_text("{\n  broken", encoding="utf-8")
    with pytest.raises(InputError, match=r"config\.json:2: is not JSON"):
        find_model(str(path))
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match="holds no object"):
        read_config(path)
    with pytest.raises(InputError, match="no such file"):
        read_config(tmp_path / "none.json")
