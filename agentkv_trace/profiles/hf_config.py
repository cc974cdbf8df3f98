"""A model's shape from its Hugging Face `config.json`.

Only what decides the KV cache, the weights and the work of prefill is read. A key that speaks of
attention or of a cache and is not known here stops the parser: a wrong size would look right.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from agentkv_trace.errors import InputError
from agentkv_trace.profiles.hf_layers import layer_kinds
from agentkv_trace.profiles.load import Model
from agentkv_trace.profiles.shapes import Index, Linear, Mla, Moe

if TYPE_CHECKING:
    from pathlib import Path

    from agentkv_trace.profiles.shapes import LayerKinds

HINT = "give a profile of it in agentkv-trace.toml, or --kv-bytes-per-token with a similar model"

_NESTED = ("text_config", "llm_config", "language_config")

_REFUSED = {
    "compress_ratios": "compressed attention (DeepSeek-V4)",
    "global_head_dim": "heads of two sizes (Gemma-4)",
    "num_global_key_value_heads": "KV heads of two counts (Gemma-4)",
    "attention_k_eq_v": "keys that are values (Gemma-4)",
    "num_kv_shared_layers": "layers that share their KV",
    "block_configs": "layers of different shapes (NAS)",
    "use_cla": "layers that share their KV",
    "is_encoder_decoder": "an encoder and a decoder",
    "mamba_expand": "a layout of recurrent layers",
    "attn_layer_period": "a layout of recurrent layers",
    "layers_block_type": "a layout of recurrent layers",
    "block_types": "a layout of recurrent layers",
}

_SPEAKS_OF_CACHE = re.compile(
    r"kv|attn|attention|window|mamba|ssm|cache|layer_types|pattern|head|compress|linear_|index_"
)
# Known, or known to change nothing that counts here.
_KNOWN = re.compile(
    r"num_attention_heads|num_key_value_heads|num_kv_heads|n_head|n_head_kv|num_heads|head_dim"
    r"|v_head_dim|qk_head_dim|qk_nope_head_dim|qk_rope_head_dim|kv_lora_rank"
    r"|sliding_window|use_sliding_window|max_window_layers|_?sliding_window_pattern|layer_types"
    r"|full_attention_interval|hybrid_override_pattern|hybrid_layer_pattern|linear_attn_config"
    r"|linear_(key|value)_head_dim|linear_num_(key|value)_heads|linear_conv_kernel_dim"
    r"|mamba_(num_heads|head_dim|hidden_act|proj_bias|ssm_cache_dtype)|ssm_state_size"
    r"|mamba_ssm_(dtype|cache_dtype)"
    r"|index_(head_dim|n_heads|topk|topk_freq|topk_pattern|skip_topk_offset|share_for_mtp_iteration)"
    r"|swa_(num_attention_heads|num_key_value_heads|head_dim|v_head_dim|rope_theta)"
    r"|attention_chunk_size|attn_output_gate|attn_type_list|no_rope_layer_interval"
    r"|(attention|attn|qkv|add_qkv|add_full_attention|attention_out|add_swa_attention)_(bias"
    r"|sink_bias|dropout|out_bias|multiplier|value_scale|scale|temperature_tuning|pdrop"
    r"|logit_softcapping|implementation|probs_dropout_prob)|_attn_implementation(_autoset)?"
    r"|add_(full|swa)_attention_sink_bias|attn_implementation|attention_other_setting"
    r"|query_pre_attn_scalar|use_cache|cache_implementation|head_weight|(lm|classifier)_head\w*"
    r"|pruned_heads|use_bidirectional_attention|output_attentions|moe_layer_pattern"
    r"|use_attention_sinks|attention_type|flash_attn\w*|swiglu_\w+|quantization_config|use_qk_norm"
    r"|sliding_window_size|rope_\w+|kv_cache_scheme|hidden_act\w*|mlp_\w*|vision_\w*"
)


def read_config(path: Path) -> Model:
    """Return the model of a `config.json`.

    Raises InputError for a file that is no such config, or of a kind that is not known here.
    """
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; name the config.json in it") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        where = f"{path}:{error.lineno}" if isinstance(error, json.JSONDecodeError) else str(path)
        raise InputError(f"{where}: is not JSON; give a model's config.json") from None
    if not isinstance(config, dict):
        raise InputError(f"{path}: holds no object; give a model's config.json")
    name = config.get("_name_or_path") or path.resolve().parent.name or "config"
    try:
        return model_from_config(config, str(name).rstrip("/").rsplit("/", 1)[-1])
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def model_from_config(config: dict[str, Any], name: str) -> Model:
    """Return the model that a config describes, by the rules of each kind of attention.

    Raises InputError, naming the key, for what is not known and for what is missing.
    """
    config = _text(config)
    _refuse(config)
    layers = _count(config, "num_hidden_layers", "n_layer", "num_layers")
    hidden = _count(config, "hidden_size", "n_embd", "d_model")
    heads = _count(config, "num_attention_heads", "n_head", "num_heads")
    mla = _mla(config)
    kinds, window = layer_kinds(config, layers)
    kv_heads = _optional(config, "num_key_value_heads", "num_kv_heads", "n_head_kv") or heads
    head_dim = _optional(config, "head_dim") or hidden // heads
    v_head_dim = None if mla else _optional(config, "v_head_dim")
    moe, ffn = _feed_forward(config, layers)
    pattern = config.get("hybrid_override_pattern")
    return Model(
        id=name,
        name=name,
        layers=layers,
        hidden=hidden,
        vocab=_count(config, "vocab_size"),
        q_heads=heads,
        kv_heads=0 if mla else kv_heads,
        head_dim=0 if mla else head_dim,
        v_head_dim=None if v_head_dim == head_dim else v_head_dim,
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        # Kinds of models whose code always gates the output of attention.
        gated_attention=bool(
            config.get("attn_output_gate", config.get("model_type") == "qwen3_next")
        ),
        ffn=ffn,
        ffn_layers=pattern.count("-") if pattern else None,
        layer_kinds=None if kinds.full == layers else kinds,
        window=window if kinds.swa or kinds.chunk else None,
        moe=moe,
        mla=mla,
        index=_index(config),
        linear=_linear(config, kinds),
        confidence="derived",
        sources=("its config.json",),
        note=_note(config),
    )


def _text(config: dict[str, Any]) -> dict[str, Any]:
    for key in _NESTED:
        inner = config.get(key)
        if isinstance(inner, dict):
            outer = {k: v for k, v in config.items() if k == "tie_word_embeddings"}
            return _text({**outer, **inner})
    return config


def _refuse(config: dict[str, Any]) -> None:
    for key, what in _REFUSED.items():
        if config.get(key):
            raise InputError(f"{key}: {what}: its KV cache is not known here; {HINT}")
    if str(config.get("model_type", "")).startswith("kimi_k3"):
        raise InputError(f"model_type kimi_k3: its sizes are not known here; {HINT}")
    for key, value in config.items():
        silent = value is None or value is False or value == 0 or value == []
        if not silent and _SPEAKS_OF_CACHE.search(key) and not _KNOWN.fullmatch(key):
            raise InputError(f"{key}: may change the KV cache in a way not known here; {HINT}")
    for main in ("num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim"):
        own = config.get(f"swa_{main}")
        if own is not None and own != config.get(main):
            raise InputError(
                f"swa_{main}: windowed layers of another shape are not known here; {HINT}"
            )


def _mla(config: dict[str, Any]) -> Mla | None:
    rank = config.get("kv_lora_rank")
    if not rank:
        return None
    return Mla(
        q_rank=_optional(config, "q_lora_rank") or 0,
        kv_rank=rank,
        rope_dim=_count(config, "qk_rope_head_dim"),
        nope_dim=_count(config, "qk_nope_head_dim"),
        v_dim=_count(config, "v_head_dim"),
    )


def _index(config: dict[str, Any]) -> Index | None:
    if not config.get("index_topk"):
        if "dsa" in str(config.get("model_type", "")):
            raise InputError(f"index_topk is missing: the sparse index has no size; {HINT}")
        return None
    return Index(
        heads=_count(config, "index_n_heads"),
        dim=_count(config, "index_head_dim"),
        topk=config["index_topk"],
    )


def _linear(config: dict[str, Any], kinds: LayerKinds) -> Linear | None:
    if not kinds.linear:
        return None
    nested = config.get("linear_attn_config")
    if isinstance(nested, dict):
        heads, width = _count(nested, "num_heads"), _count(nested, "head_dim")
        conv = _count(nested, "short_conv_kernel_size")
        return Linear(key_heads=heads, value_heads=heads, key_dim=width, value_dim=width, conv=conv)
    if config.get("hybrid_override_pattern"):
        return Linear(
            key_heads=_count(config, "n_groups"),
            value_heads=_count(config, "mamba_num_heads"),
            key_dim=_count(config, "ssm_state_size"),
            value_dim=_count(config, "mamba_head_dim"),
            conv=_count(config, "conv_kernel"),
        )
    return Linear(
        key_heads=_count(config, "linear_num_key_heads"),
        value_heads=_count(config, "linear_num_value_heads"),
        key_dim=_count(config, "linear_key_head_dim"),
        value_dim=_count(config, "linear_value_head_dim"),
        conv=_count(config, "linear_conv_kernel_dim"),
    )


def _feed_forward(config: dict[str, Any], layers: int) -> tuple[Moe | None, int]:
    """Return the experts, if any, and the width of the dense layers, if any."""
    experts = _optional(config, "num_experts", "n_routed_experts", "num_local_experts") or 0
    dense_width = _optional(config, "intermediate_size", "ffn_hidden_size", "n_inner") or 0
    if experts <= 1:
        return None, dense_width or 4 * _count(config, "hidden_size", "n_embd", "d_model")
    llama4 = "interleave_moe_layer_step" in config
    width = _optional(config, "moe_intermediate_size", "expert_ffn_hidden_size") or dense_width
    shared = _optional(config, "shared_expert_intermediate_size", "share_expert_dim")
    if shared is None:
        shared = width * (_optional(config, "n_shared_experts") or 0)
    if llama4:
        shared, dense_width = width, _optional(config, "intermediate_size_mlp") or dense_width
    active = _count(
        config, "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk"
    )
    dense = _dense_layers(config, layers)
    moe = Moe(experts=experts, active=active, ffn=width, shared_ffn=shared, dense_layers=dense)
    return moe, dense_width if dense else 0


def _dense_layers(config: dict[str, Any], layers: int) -> int:
    step = config.get("interleave_moe_layer_step")
    if step:
        return layers - layers // int(step)
    kinds = config.get("mlp_layer_types")
    if isinstance(kinds, list):
        return kinds.count("dense")
    frequency = config.get("moe_layer_freq")
    if isinstance(frequency, list):
        return layers - sum(bool(used) for used in frequency)
    dense = len(config.get("mlp_only_layers") or [])
    dense += int(config.get("first_k_dense_replace") or 0)
    sparse_step = config.get("decoder_sparse_step") or 1
    return dense if sparse_step == 1 else layers - layers // int(sparse_step)


def _note(config: dict[str, Any]) -> str:
    said = ["Read from a config; biases, norms and vision parts are not counted."]
    if config.get("num_nextn_predict_layers") or config.get("mtp_num_hidden_layers"):
        said.append("It brings layers for multi-token prediction: off here; on, one more KV layer.")
    return " ".join(said)


def _optional(config: dict[str, Any], *keys: str) -> int | None:
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputError(f"{key} is {value!r}: a whole number is needed")
        return value
    return None


def _count(config: dict[str, Any], *keys: str) -> int:
    value = _optional(config, *keys)
    if not value:
        raise InputError(f"{keys[0]} is missing: not a config of a language model; {HINT}")
    return value
