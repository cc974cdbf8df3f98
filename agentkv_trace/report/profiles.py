"""Profiles as text: a list of them, or one with its figures, formula and sources."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from agentkv_trace.profiles.connectors import connectors, find_connector
from agentkv_trace.profiles.flops import prefill_cost
from agentkv_trace.profiles.load import find_gpu, find_model, known_gpus, known_models
from agentkv_trace.report.units import format_bytes, format_count
from agentkv_trace.tiers.backends import BACKENDS, find_backend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv_trace.profiles.load import Gpu, Model


_COPIES = {
    "dma": "in batches by the copy engines",
    "single": "one after another by the copy engines",
    "kernel": "by GPU code",
}


def listing(kind: str, width: int = 80) -> str:
    """Return all profiles of a kind, one a line; kind is a word of `cli/profiles.py`."""
    rows = {"gpus": _gpus, "models": _models, "connectors": _connectors, "backends": _backends}
    return _table(rows[kind](), width)


def shown(kind: str, name: str, width: int = 80) -> str:
    """Return one profile. Raises InputError where `name` means none or several."""
    if kind == "gpus":
        lines = _gpu(find_gpu(name))
    elif kind == "models":
        lines = _model(find_model(name))
    elif kind == "connectors":
        found = find_connector(name)
        lines = [
            (found.id, found.name),
            ("wait per prefill step", f"{_three(found.store_sync_ms)} ms (low, mid, high)"),
            ("fixed time of a restore", f"{_three(found.restore_ms)} ms"),
            ("felt of copies to host", _three(found.write_exposed)),
            ("computing that hides a restore", f"{found.overlap:g}"),
            ("copies", _COPIES[found.copy]),
            ("confidence", found.confidence),
            ("note", found.note),
            *(("source", source) for source in found.sources),
        ]
    else:
        backend = find_backend(name)
        chunk = backend.host_chunk_tokens or "the engine's block,"
        lines = [
            (backend.id, backend.name),
            ("model", backend.model),
            ("compared with", backend.proof),
            ("host tier", "inclusive" if backend.inclusive else "mostly what the GPU lacks"),
            ("host chunk", f"{chunk} tokens"),
            ("connector", backend.connector),
        ]
    return "".join(f"{line}\n" for label, text in lines for line in _wrapped(label, text, width))


def _gpus() -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("GPU", "memory", "BF16 TFLOPS", "host GB/s", "FLOP/byte", "confidence")
    ]
    for gpu in known_gpus().values():
        ratio = gpu.flops_per_host_byte
        rows.append(
            (
                gpu.id,
                f"{gpu.memory_gib:g} GiB",
                f"{gpu.bf16_tflops:g}",
                f"{gpu.host_link.h2d_gbps:g}" if gpu.host_link.h2d_gbps else "-",
                format_count(ratio) if ratio else "-",
                gpu.confidence,
            )
        )
    return rows


def _models() -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("model", "parameters", "KV per token", "attention")]
    rows += [
        (model.id, _params(model), format_bytes(model.kv_bytes_per_token(2)), model.attention)
        for model in known_models().values()
    ]
    return rows


def _connectors() -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("connector", "wait per step, ms", "confidence", "name")]
    rows += [
        (found.id, _three(found.store_sync_ms), found.confidence, found.name)
        for found in connectors().values()
    ]
    return rows


def _backends() -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("backend", "host tier", "connector", "name")]
    rows += [
        (
            backend.id,
            "inclusive" if backend.inclusive else "exclusive",
            backend.connector,
            backend.name,
        )
        for backend in BACKENDS.values()
    ]
    return rows


def _gpu(gpu: Gpu) -> list[tuple[str, str]]:
    link = gpu.host_link
    lines = [
        (gpu.id, gpu.name),
        ("memory", f"{gpu.memory_gib:g} GiB for an engine ({gpu.memory_basis})"),
        ("memory bandwidth", f"{gpu.memory_gbps:g} GB/s"),
        ("peak", f"{gpu.bf16_tflops:g} TFLOPS BF16, dense, FP32 accumulate"),
    ]
    if gpu.fp8_tflops:
        lines.append(("", f"{gpu.fp8_tflops:g} TFLOPS FP8"))
    lines.append(("prefill", f"{_three(gpu.prefill_mfu)} of peak (low, mid, high; our estimate)"))
    if link.peak_gbps and gpu.flops_per_host_byte:
        lines += [
            ("host link", f"{link.kind}, peak {link.peak_gbps:g} GB/s each way"),
            ("achieved", f"{link.h2d_gbps:g} GB/s to GPU, {link.d2h_gbps:g} back: {link.basis}"),
            (
                "FLOP per host byte",
                f"{gpu.bf16_tflops:g}e12 / {link.peak_gbps:g}e9 = "
                f"{format_count(gpu.flops_per_host_byte)} (decides nothing alone)",
            ),
        ]
    else:
        lines.append(("host link", f"none: {link.basis}"))
    lines += [("confidence", gpu.confidence), ("note", gpu.note)]
    return lines + [("source", source) for source in (*gpu.sources, *link.sources)]


def _model(model: Model) -> list[tuple[str, str]]:
    cost = prefill_cost(model)
    kinds = model.kinds
    lines = [
        (model.id, model.name),
        ("parameters", f"{_params(model)} computed; published {model.published or 'not known'}"),
        ("attention", model.attention),
        ("KV per token", f"{_formula(model)} = {model.kv_bytes_per_token(2):,} bytes in BF16"),
        ("", f"{model.kv_bytes_per_token(1):,} bytes in FP8; on a rank of TP: see `report --tp`"),
    ]
    if kinds.swa or kinds.chunk:
        lines.append(
            (
                "windowed layers",
                f"{kinds.swa + kinds.chunk}, {model.window} tokens: "
                f"{model.window_bytes_per_token(2):,} bytes per token of these",
            )
        )
    if model.state_bytes:
        lines.append(
            ("recurrent state", f"{format_bytes(model.state_bytes)} per reusable boundary")
        )
    lines += [
        ("prefill", f"{cost.linear:.3g} FLOP per token + {cost.full:.3g} per token and position"),
        ("confidence", model.confidence),
        ("note", model.note),
    ]
    return lines + [("source", source) for source in model.sources]


def _formula(model: Model) -> str:
    layers = model.kinds.full
    if model.mla is None:
        widths = f"2 * {model.head_dim}"
        if model.v_dim != model.head_dim:
            widths = f"({model.head_dim} + {model.v_dim})"
        return f"{layers} layers * {model.kv_heads} heads * {widths} * 2 bytes"
    row = f"({model.mla.kv_rank} + {model.mla.rope_dim}) * 2 bytes"
    if model.index:
        row = f"({row} + {model.index.key_bytes} of index)"
    return f"{layers} layers * {row}, whole on each rank"


def _params(model: Model) -> str:
    total = f"{model.params / 1e9:.1f}B"
    return f"{total}/{model.active_params / 1e9:.1f}B" if model.moe else total


def _three(values: Sequence[float]) -> str:
    return "/".join(f"{value:g}" for value in values)


def _wrapped(label: str, text: str, width: int) -> list[str]:
    if not text:
        return []
    if label == "source":  # a link must stay whole to be followed
        return [f"{label:<18}  {text}"]
    head = f"{label:<18}  " if len(label) <= 18 else f"{label}: "
    return textwrap.wrap(
        head + text,
        max(width, 40),
        subsequent_indent=" " * 20,
        break_on_hyphens=False,
        drop_whitespace=True,
        break_long_words=False,
    )


def _table(rows: Sequence[tuple[str, ...]], width: int) -> str:
    """Return aligned columns, dropping the last ones where the terminal is too narrow."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    count = len(widths)
    while count > 2 and sum(widths[:count]) + 2 * (count - 1) > width:
        count -= 1
    lines = (
        "  ".join(
            cell.ljust(size) for cell, size in zip(row[:count], widths, strict=False)
        ).rstrip()
        for row in rows
    )
    return "".join(f"{line}\n" for line in lines)
