"""The words and table cells that the terminal and Markdown reports share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkv_trace.report.units import format_bytes, format_ratio, format_tokens

if TYPE_CHECKING:
    from agentkv_trace.report.model import GpuFinding, Report


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table; `rank` 0 is always shown, higher ones only where there is room."""

    title: str
    cells: tuple[str, ...]
    rank: int = 0
    numeric: bool = True


def facts(report: Report) -> list[tuple[str, str]]:
    """Return what was analysed, as pairs of a label and a sentence."""
    work, model, options = report.workload, report.model, report.options
    per_token = format_bytes(model.kv_bytes_per_token_per_rank)
    where = "per token" if options.tp == 1 else f"per token and rank, TP {options.tp}"
    kv = f"{options.kv_dtype} KV" if options.kv_bytes_per_token is None else "KV"
    every, some = work.working_set_tokens, work.recover_working_set_tokens
    every_bytes, some_bytes = work.working_set_bytes, work.recover_working_set_bytes
    return [
        (
            "Trace",
            f"{_counted(work.calls, 'call')} in {_counted(work.sessions, 'session')}, "
            f"{format_tokens(work.prompt_tokens)} tokens of prompts, "
            f"longest {format_tokens(work.longest_prompt_tokens)} tokens",
        ),
        ("Model", f"{model.name}, {model.attention}, {kv} {per_token} {where}"),
        (
            "Best",
            f"{format_ratio(work.best_hit_ratio)} of prompt tokens hit in an unlimited cache",
        ),
        (
            "Working set",
            f"{format_tokens(every)} tokens ({format_bytes(every_bytes)}) for all of these hits, "
            f"{format_tokens(some)} tokens ({format_bytes(some_bytes)}) "
            f"for {format_ratio(options.recover)} of them",
        ),
    ]


def gpu_columns(report: Report) -> list[Column]:
    """Return the table of all GPUs side by side, one row per GPU."""
    found = report.gpus
    hosts = [finding.host for finding in found]
    columns = [
        Column("GPU", tuple(finding.name for finding in found), numeric=False),
        Column("KV pool tokens", tuple(_pool(finding) for finding in found)),
        Column("Hits alone", tuple(_ratio(finding.gpu_hit_ratio) for finding in found)),
        Column("Host memory", tuple(_host_memory(finding) for finding in found)),
        Column("Hits with it", tuple(_ratio(host.hit_ratio if host else None) for host in hosts)),
        Column("Exact need", tuple(_bytes(finding.need_bytes) for finding in found), 2),
        Column("Recovered", tuple(_ratio(host.recovered if host else None) for host in hosts), 1),
        Column("Weights per GPU", tuple(_bytes(_weights(finding)) for finding in found), 3),
        Column("KV pool per GPU", tuple(_bytes(_pool_bytes(finding)) for finding in found), 3),
    ]
    if report.options.tp > 1:
        per_rank = tuple(_bytes(host.per_rank_bytes if host else None) for host in hosts)
        columns.insert(5, Column("Per rank", per_rank, 1))
    return columns


def size_columns(report: Report) -> list[Column]:
    """Return hits by size of host memory, one row per size and one column per GPU.

    The recommended size of a GPU is marked with a star; empty where no GPU gains.
    """
    found = [finding for finding in report.gpus if finding.host]
    if not found:
        return []
    sizes = found[0].host_sizes
    columns = [
        Column("Host memory", ("none", *(format_bytes(size.total_bytes) for size in sizes))),
        Column("Holds tokens", ("-", *(format_tokens(size.holds_tokens) for size in sizes))),
    ]
    if report.options.tp > 1:
        per_rank = ("-", *(format_bytes(size.per_rank_bytes) for size in sizes))
        columns.insert(1, Column("Per rank", per_rank, 1))
    for finding in found:
        cells = [_ratio(finding.gpu_hit_ratio)]
        cells += [
            f"{'* ' if size == finding.host else ''}{format_ratio(size.hit_ratio)}"
            for size in finding.host_sizes
        ]
        columns.append(Column(finding.name, tuple(cells)))
    return columns


def notes(report: Report) -> list[str]:
    """Return the warnings of all GPUs, each with its GPU."""
    return [f"{finding.name}: {note}" for finding in report.gpus for note in finding.notes]


def _counted(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else format_ratio(value)


def _bytes(value: int | None) -> str:
    return "-" if value is None else format_bytes(value)


def _pool(finding: GpuFinding) -> str:
    return format_tokens(finding.pool.tokens) if finding.pool else "-"


def _pool_bytes(finding: GpuFinding) -> int | None:
    return finding.pool.kv_bytes if finding.pool else None


def _weights(finding: GpuFinding) -> int | None:
    return finding.pool.weight_bytes if finding.pool else None


def _host_memory(finding: GpuFinding) -> str:
    if finding.host:
        return format_bytes(finding.host.total_bytes)
    return "none" if finding.pool else "too small"
