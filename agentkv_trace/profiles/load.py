"""GPU and model profiles: what the TOML files state, and what follows from it by formula."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec

from agentkv_trace.profiles.names import resolve
from agentkv_trace.profiles.shapes import Index, LayerKinds, Linear, Mla, Moe

GIB = 2**30
"""Bytes in a GiB."""

Confidence = Literal["sourced", "secondary", "derived", "estimated"]


class HostLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The link between a GPU and host memory; GB/s per direction, None where there is no link.

    `copies` names the table of copy rates by block size in `connectors.toml`.
    """

    kind: str
    basis: str = ""
    sources: tuple[str, ...] = ()
    peak_gbps: float | None = None
    h2d_gbps: float | None = None
    d2h_gbps: float | None = None
    both_ways_gbps: float | None = None
    copies: str = "h100"


class Gpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One GPU, as `gpus.toml` states it; units are in that file's head."""

    name: str
    memory_gb: float
    memory_gib: float
    memory_gbps: float
    bf16_tflops: float
    prefill_mfu: tuple[float, float, float]
    host_link: HostLink
    memory_basis: Literal["reported", "estimated"] = "estimated"
    confidence: Confidence = "estimated"
    note: str = ""
    sources: tuple[str, ...] = ()
    fp8_tflops: float | None = None
    gemm_bf16_tflops: float | None = None
    unified_memory: bool = False
    id: str = ""

    @property
    def memory_bytes(self) -> int:
        """Return the memory an engine may divide up, in bytes."""
        return int(self.memory_gib * GIB)

    @property
    def flops_per_host_byte(self) -> float | None:
        """Return peak dense BF16 FLOP/s over peak host link bytes/s; None without a host link."""
        peak = self.host_link.peak_gbps
        return self.bf16_tflops * 1e3 / peak if peak else None


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model's shape, as `models.toml` states it, with the figures that follow from it."""

    name: str
    layers: int
    hidden: int
    vocab: int
    q_heads: int
    published: str = ""
    confidence: Confidence = "estimated"
    sources: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    tied_embeddings: bool = False
    kv_heads: int = 0
    head_dim: int = 0
    v_head_dim: int | None = None
    gated_attention: bool = False
    ffn: int = 0
    ffn_layers: int | None = None
    layer_kinds: LayerKinds | None = None
    window: int | None = None
    moe: Moe | None = None
    mla: Mla | None = None
    index: Index | None = None
    linear: Linear | None = None
    note: str = ""
    id: str = ""

    @property
    def kinds(self) -> LayerKinds:
        """Return the count of layers of each kind."""
        return self.layer_kinds or LayerKinds(full=self.layers)

    @property
    def v_dim(self) -> int:
        """Return the width of a value head, which is that of a key head unless stated."""
        return self.head_dim if self.v_head_dim is None else self.v_head_dim

    @property
    def attention(self) -> str:
        """Return the kind of attention in words, such as `GQA` or `MLA with sparse attention`."""
        base = "MLA" if self.mla else "MHA" if self.kv_heads == self.q_heads else "GQA"
        extra = [
            words
            for words, there in (
                ("sparse attention", self.index),
                (f"a sliding window of {self.window} tokens", self.kinds.swa),
                (f"attention in chunks of {self.window} tokens", self.kinds.chunk),
                ("recurrent layers", self.kinds.linear),
            )
            if there
        ]
        return f"{base} with {' and '.join(extra)}" if extra else base

    def kv_bytes_per_layer(self, element_bytes: int, kv_heads: int | None = None) -> int:
        """Return KV bytes per token of one attention layer.

        `element_bytes` is 2 (BF16) or 1 (FP8); `kv_heads` is how many heads are held, all by
        default; a latent row (MLA) has no heads to divide.
        """
        if self.mla is None:
            heads = self.kv_heads if kv_heads is None else kv_heads
            return heads * (self.head_dim + self.v_dim) * element_bytes
        if self.index is None:
            return (self.mla.kv_rank + self.mla.rope_dim) * element_bytes
        if element_bytes == 1:
            # The sparse layout keeps an FP32 scale per 128 elements and the rotary part in BF16.
            row = self.mla.kv_rank + self.mla.kv_rank // 128 * 4 + self.mla.rope_dim * 2
        else:
            row = (self.mla.kv_rank + self.mla.rope_dim) * element_bytes
        return row + self.index.key_bytes

    def kv_bytes_per_token(self, element_bytes: int) -> int:
        """Return the KV bytes that grow with every token, undivided by tensor parallelism."""
        return self.kinds.full * self.kv_bytes_per_layer(element_bytes)

    def window_bytes_per_token(self, element_bytes: int) -> int:
        """Return the KV bytes per token that only the last `window` tokens need."""
        return (self.kinds.swa + self.kinds.chunk) * self.kv_bytes_per_layer(element_bytes)

    @property
    def state_bytes(self) -> int:
        """Return the bytes of one snapshot of the recurrent state (FP32; convolution in BF16)."""
        if self.linear is None:
            return 0
        cell = self.linear.value_heads * self.linear.key_dim * self.linear.value_dim * 4
        width = 2 * self.linear.key_width + self.linear.value_width
        return self.kinds.linear * (cell + width * (self.linear.conv - 1) * 2)

    @property
    def params(self) -> int:
        """Return all parameters; norms, biases, convolutions and scalar gates are left out."""
        return self._embedding_params + self._attention_params + self._ffn_params(active=False)

    @property
    def active_params(self) -> int:
        """Return the parameters one token uses, embeddings included."""
        return self._embedding_params + self.active_body_params

    @property
    def active_body_params(self) -> int:
        """Return the parameters one token uses, embeddings and output head left out."""
        return self._attention_params + self._ffn_params(active=True)

    @property
    def _embedding_params(self) -> int:
        return self.vocab * self.hidden * (1 if self.tied_embeddings else 2)

    @property
    def _attention_params(self) -> int:
        attending = self.layers - self.kinds.linear - self.kinds.none
        total = attending * self._attention_layer_params
        if self.linear is not None:
            keys, values = self.linear.key_width, self.linear.value_width
            gates = 2 * self.linear.value_heads
            total += self.kinds.linear * self.hidden * (2 * keys + 3 * values + gates)
        return total

    @property
    def _attention_layer_params(self) -> int:
        if self.mla is None:
            queries = self.q_heads * self.head_dim * (2 if self.gated_attention else 1)
            values = (self.q_heads + self.kv_heads) * self.v_dim
            return self.hidden * (queries + values + self.kv_heads * self.head_dim)
        mla = self.mla
        query = mla.q_rank * (self.hidden + self.q_heads * (mla.nope_dim + mla.rope_dim))
        down = self.hidden * (mla.kv_rank + mla.rope_dim)
        up = mla.kv_rank * self.q_heads * (mla.nope_dim + mla.v_dim)
        output = self.q_heads * mla.v_dim * self.hidden
        indexer = 0
        if self.index is not None:
            width = self.index.heads * self.index.dim
            indexer = mla.q_rank * width + self.hidden * (self.index.dim + self.index.heads)
        return query + down + up + output + indexer

    def _ffn_params(self, *, active: bool) -> int:
        layers = self.layers if self.ffn_layers is None else self.ffn_layers
        if self.moe is None:
            return layers * 3 * self.hidden * self.ffn
        experts = self.moe.active if active else self.moe.experts
        widths = experts * self.moe.ffn + self.moe.shared_ffn
        per_layer = 3 * self.hidden * widths + self.hidden * self.moe.experts
        dense = self.moe.dense_layers * 3 * self.hidden * self.ffn
        return dense + (layers - self.moe.dense_layers) * per_layer


@cache
def gpus() -> dict[str, Gpu]:
    """Return the shipped GPU profiles by id."""
    raw = msgspec.toml.decode(_read("gpus.toml"), type=dict[str, Gpu])
    return {key: msgspec.structs.replace(gpu, id=key) for key, gpu in raw.items()}


@cache
def models() -> dict[str, Model]:
    """Return the shipped model profiles by id."""
    raw = msgspec.toml.decode(_read("models.toml"), type=dict[str, Model])
    return {key: msgspec.structs.replace(model, id=key) for key, model in raw.items()}


def known_gpus() -> dict[str, Gpu]:
    """Return the shipped GPUs and those of `agentkv-trace.toml` in the current folder.

    Raises InputError where that file is wrong.
    """
    from agentkv_trace.profiles.user import user_gpus

    return {**gpus(), **user_gpus(gpus())}


def known_models() -> dict[str, Model]:
    """Return the shipped models and those of `agentkv-trace.toml` in the current folder.

    Raises InputError where that file is wrong.
    """
    from agentkv_trace.profiles.user import user_models

    return {**models(), **user_models(models())}


def find_gpu(name: str) -> Gpu:
    """Return the GPU that `name` means.

    Raises InputError where it means none or several.
    """
    table = known_gpus()
    return table[resolve(name, {key: (gpu.name,) for key, gpu in table.items()}, "GPU")]


def find_model(name: str) -> Model:
    """Return the model that `name` means.

    That is an id, a display name, a Hugging Face name, or the path of a `config.json`.
    Raises InputError where it means none or several, or the config is of a kind not known.
    """
    if name.endswith(".json"):
        from agentkv_trace.profiles.hf_config import read_config

        return read_config(Path(name))
    table = known_models()
    names = {key: (model.name, *model.aliases) for key, model in table.items()}
    return table[resolve(name, names, "model")]


def _read(name: str) -> bytes:
    return files("agentkv_trace.profiles").joinpath(name).read_bytes()
