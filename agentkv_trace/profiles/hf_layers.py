"""Which layers of a config attend to everything, to a window, to a chunk, or recur."""

from __future__ import annotations

from typing import Any

from agentkv_trace.errors import InputError
from agentkv_trace.profiles.shapes import LayerKinds

_GEMMA3_PATTERN = 6
_TYPES = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "swa",
    "chunked_attention": "chunk",
    "linear_attention": "linear",
}


def layer_kinds(config: dict[str, Any], layers: int) -> tuple[LayerKinds, int | None]:
    """Return how many layers there are of each kind, and the window in tokens.

    The first layout that the config states wins: a pattern, a list, an interval, the default of
    its kind of model. Raises InputError for a layout that does not fit the number of layers.
    """
    names = _listed(config, layers)
    window = config.get("sliding_window") or config.get("sliding_window_size")
    if config.get("attention_chunk_size") and "chunk" in names:
        window = config["attention_chunk_size"]
    # Many configs carry a window that their layers do not use.
    if "swa" in names and (not window or config.get("use_sliding_window") is False):
        names = ["full" if name == "swa" else name for name in names]
    if len(names) != layers:
        raise InputError(f"{len(names)} layers are listed, but there are {layers}")
    return LayerKinds(**{kind: names.count(kind) for kind in set(names)}), window


def _listed(config: dict[str, Any], layers: int) -> list[str]:
    pattern = config.get("hybrid_override_pattern")
    if pattern:
        known = {"M": "linear", "*": "full", "-": "none"}
        strange = set(pattern) - set(known)
        if strange:
            raise InputError(f"hybrid_override_pattern: {min(strange)!r} is not known here")
        return [known[letter] for letter in pattern]
    nested = config.get("linear_attn_config")
    if isinstance(nested, dict) and "full_attn_layers" in nested:
        full = set(nested["full_attn_layers"])  # counted from 1
        return ["full" if layer in full else "linear" for layer in range(1, layers + 1)]
    if config.get("hybrid_layer_pattern"):
        return ["swa" if windowed else "full" for windowed in config["hybrid_layer_pattern"]]
    if config.get("layer_types"):
        strange = set(config["layer_types"]) - set(_TYPES)
        if strange:
            raise InputError(f"layer_types: {min(strange)!r} is not known here")
        return [_TYPES[name] for name in config["layer_types"]]
    every = config.get("full_attention_interval")
    if every:
        return ["linear" if (layer + 1) % every else "full" for layer in range(layers)]
    return _by_model_type(config, layers)


def _by_model_type(config: dict[str, Any], layers: int) -> list[str]:
    kind = str(config.get("model_type", ""))
    if kind.startswith("llama4"):
        every = config.get("no_rope_layer_interval") or 4
        return ["chunk" if (layer + 1) % every else "full" for layer in range(layers)]
    every = config.get("sliding_window_pattern") or config.get("_sliding_window_pattern")
    if every or kind.startswith("gemma3"):
        every = every or _GEMMA3_PATTERN
        return ["swa" if (layer + 1) % every else "full" for layer in range(layers)]
    if kind.startswith("gpt_oss"):
        return ["full" if layer % 2 else "swa" for layer in range(layers)]
    windowed = bool(config.get("sliding_window")) and config.get("use_sliding_window") is not False
    if windowed and kind.startswith("qwen"):
        first = config.get("max_window_layers", layers)
        return ["full" if layer < first else "swa" for layer in range(layers)]
    return ["swa" if windowed else "full"] * layers
