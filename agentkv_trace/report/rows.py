"""The words and table cells that the terminal and Markdown reports share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkv_trace.report.units import format_bytes, format_ratio, format_seconds, format_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentkv_trace.report.model import (
        GpuFinding,
        HostSize,
        OnsetFacts,
        Report,
        ThrashFacts,
    )


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
    several = options.replica_ranks > 1
    where = f"per token and rank, {_parallel(report)}" if several else "per token"
    kv = f"{options.kv_dtype} KV" if options.kv_bytes_per_token is None else "KV"
    every, some = work.working_set_tokens, work.recover_working_set_tokens
    every_bytes, some_bytes = work.working_set_bytes, work.recover_working_set_bytes
    again = ""
    if work.next_call_reuse is not None:
        again = f"; {format_ratio(work.next_call_reuse)} of new KV is reused in the very next call"
    return [
        (
            "Trace",
            f"{_counted(work.calls, 'call')} in {_counted(work.sessions, 'session')}, "
            f"{format_tokens(work.prompt_tokens)} tokens of prompts, "
            f"longest {format_tokens(work.longest_prompt_tokens)} tokens",
        ),
        ("Model", f"{model.name}, {model.attention}, {kv} {per_token} {where}"),
        ("Backend", report.backend.name),
        (
            "Best",
            f"{format_ratio(work.best_hit_ratio)} of prompt tokens were processed before{again}",
        ),
        (
            "Working set",
            f"{format_tokens(every)} tokens ({format_bytes(every_bytes)}) for all of these hits, "
            f"{format_tokens(some)} tokens ({format_bytes(some_bytes)}) "
            f"for {format_ratio(options.recover)} of them",
        ),
        (
            "Agents",
            f"{work.agents} {'takes' if work.agents == 1 else 'take'} turns at "
            f"{format_tokens(round(work.mean_prompt_tokens))} tokens a call: others touch "
            f"{format_tokens(work.reuse_tokens)} tokens ({format_bytes(work.reuse_bytes)}"
            f"{_per_rank(report)}) before one returns",
        ),
    ]


def gpu_columns(report: Report) -> list[Column]:
    """Return the table of all GPUs side by side, one row per GPU."""
    found = report.gpus
    hosts = [finding.judged for finding in found]
    columns = [
        Column("GPU", tuple(finding.name for finding in found), numeric=False),
        Column("Verdict", tuple(_word(finding) for finding in found), numeric=False),
        Column("KV pool tokens", tuple(_pool(finding) for finding in found)),
        Column("Hits alone", tuple(_ratio(finding.gpu_hit_ratio) for finding in found)),
        Column("Host memory", tuple(_host_memory(finding) for finding in found)),
        Column("Hits with it", tuple(_ratio(host.hit_ratio if host else None) for host in hosts)),
        Column("Saves", tuple(_saves(host) for host in hosts), 1),
        Column("Exact need", tuple(_bytes(finding.need_bytes) for finding in found), 2),
        Column("Recovered", tuple(_ratio(host.recovered if host else None) for host in hosts), 3),
        Column("Weights per GPU", tuple(_bytes(_weights(finding)) for finding in found), 4),
        Column("KV pool per GPU", tuple(_bytes(_pool_bytes(finding)) for finding in found), 4),
    ]
    if report.options.ranks > 1:
        per_rank = tuple(_bytes(host.per_rank_bytes if host else None) for host in hosts)
        columns.insert(5, Column("Per rank", per_rank, 1))
    return columns


def size_columns(report: Report) -> list[Column]:
    """Return hits by size of host memory, one row per size and one column per GPU.

    The judged size of a GPU is marked with a star; empty where no GPU has sizes, and where only
    one has (its own table says more).
    """
    found = [finding for finding in report.gpus if finding.host_sizes]
    if len(found) < 2:
        return []
    sizes = found[0].host_sizes
    columns = [
        Column("Host memory", ("none", *(format_bytes(size.total_bytes) for size in sizes))),
        Column("Holds tokens", ("-", *(format_tokens(size.holds_tokens) for size in sizes)), 1),
    ]
    if report.options.ranks > 1:
        per_rank = ("-", *(format_bytes(size.per_rank_bytes) for size in sizes))
        columns.insert(1, Column("Per rank", per_rank, 1))
    for finding in found:
        cells = [_ratio(finding.gpu_hit_ratio)]
        cells += [
            f"{_star(size, finding)}{format_ratio(size.hit_ratio)}" for size in finding.host_sizes
        ]
        columns.append(Column(finding.name, tuple(cells)))
    return columns


def in_depth(report: Report) -> GpuFinding | None:
    """Return the GPU that is shown size by size: the first that has sizes."""
    return next((finding for finding in report.gpus if finding.host_sizes), None)


def depth_columns(report: Report, finding: GpuFinding) -> list[Column]:
    """Return one GPU size by size: hits, what moves, what is lost and what it saves."""
    sizes = [*([finding.alone] if finding.alone else []), *finding.host_sizes]
    names = tuple(
        f"{_star(size, finding)}{format_bytes(size.total_bytes)}" if size.total_bytes else "none"
        for size in sizes
    )
    columns = [
        Column("Host memory", names),
        Column("Hits", tuple(format_ratio(size.hit_ratio) for size in sizes)),
        Column("Computed tokens", tuple(format_tokens(size.computed_tokens) for size in sizes)),
        Column("Restored tokens", tuple(format_tokens(size.restored_tokens) for size in sizes)),
        Column("Written tokens", tuple(format_tokens(size.written_tokens) for size in sizes), 2),
        Column("Lost unused", tuple(_ratio(size.evicted_share) for size in sizes), 1),
        Column("Saves", tuple(_saves(size) for size in sizes)),
        Column("Verdict", tuple(size.verdict or "-" for size in sizes), 1, numeric=False),
        Column("Saves from", tuple(_signed(size, 0) for size in sizes), 3),
        Column("Saves to", tuple(_signed(size, 2) for size in sizes), 3),
        Column("Recovered", tuple(format_ratio(size.recovered) for size in sizes), 4),
        Column("Holds tokens", tuple(format_tokens(size.holds_tokens) for size in sizes), 5),
    ]
    if report.options.ranks > 1:
        per_rank = tuple(format_bytes(size.per_rank_bytes) for size in sizes)
        columns.insert(1, Column("Per rank", per_rank, 2))
    return columns


def pressure(report: Report) -> list[str]:
    """Return what is said about thrashing and what to do about it, equal GPUs together."""
    return _together(
        (finding.name, _thrashing(finding.thrash, finding.onsets))
        for finding in report.gpus
        if finding.thrash and finding.thrash.predicted
    )


def _thrashing(thrash: ThrashFacts, replayed: tuple[OnsetFacts, ...]) -> tuple[str, ...]:
    tier = "the GPU's pool alone"
    if thrash.judged_bytes:
        tier = f"with {format_bytes(thrash.judged_bytes)} host memory it"
    lost = ""
    if thrash.evicted_share is not None:
        lost = f"; {format_ratio(thrash.evicted_share)} of what is written is lost unused"
    times = ""
    if thrash.computed_per_compulsory is not None:
        times = f": {thrash.computed_per_compulsory:.1f} times the prefill that is needed"
    begins = f"{_counted(thrash.begins_at_agents, 'agent')} (estimate)"
    for onset in replayed:
        if onset.host_bytes == thrash.judged_bytes and onset.agents is not None:
            begins = _counted(onset.agents, "agent")
    return (
        f"{tier} thrashes{times}{lost}; it begins at {begins}",
        *(
            f"{number}. {fix.action}: {'at best ' if fix.bound else ''}"
            f"{format_ratio(fix.saved_share)} less prefill"
            for number, fix in enumerate(thrash.fixes, 1)
        ),
    )


def onsets(report: Report) -> list[str]:
    """Return from how many agents on the tiers thrash, equal GPUs together."""
    return _together(
        (finding.name, ("; ".join(map(_onset, finding.onsets)) + _left_out(finding),))
        for finding in report.gpus
        if finding.onsets
    )


def _onset(found: OnsetFacts) -> str:
    tier = f"with {format_bytes(found.host_bytes)} host memory" if found.host_bytes else "alone"
    if found.agents is None:
        return f"{tier} not up to {_counted(found.max_agents, 'agent')}"
    return f"{tier} from {_counted(found.agents, 'agent')} on"


def _left_out(finding: GpuFinding) -> str:
    first = finding.onsets[0]
    if not first.rejected_calls:
        return ""
    share = format_ratio(first.rejected_calls / first.calls)
    return f" ({share} of calls are larger than its pool and left out)"


def settings(report: Report) -> list[str]:
    """Return what to type, equal GPUs together."""
    return _together(
        (finding.name, finding.flags)
        for finding in report.gpus
        if finding.verdict in ("pays", "depends") and finding.flags
    )


def _together(said: Iterable[tuple[str, tuple[str, ...]]]) -> list[str]:
    """Return the lines of each GPU, once for all GPUs with the same ones."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, lines in said:
        names.setdefault(lines, []).append(name)
    return [f"{', '.join(who)}: {line}" for lines, who in names.items() for line in lines]


def notes(report: Report) -> list[str]:
    """Return the warnings of all GPUs, equal GPUs together."""
    return _together((finding.name, finding.notes) for finding in report.gpus if finding.notes)


def _parallel(report: Report) -> str:
    options = report.options
    parts = [f"TP {options.tp}"]
    parts += [f"PP {options.pp}"] if options.pp > 1 else []
    return ", ".join(parts)


def _per_rank(report: Report) -> str:
    if report.options.replica_ranks == 1:
        return ""
    return f", {format_bytes(report.workload.reuse_rank_bytes)} per rank"


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


def _word(finding: GpuFinding) -> str:
    return finding.verdict.replace("_", " ")


def _host_memory(finding: GpuFinding) -> str:
    if finding.judged:
        return format_bytes(finding.judged.total_bytes)
    return "none" if finding.pool else "too small"


def _star(size: HostSize, finding: GpuFinding) -> str:
    mine = finding.judged is not None and size.total_bytes == finding.judged.total_bytes
    return "* " if mine else ""


def _saves(size: HostSize | None) -> str:
    return _signed(size, 1) if size else "-"


def _signed(size: HostSize, which: int) -> str:
    if size.saved_s is None:
        return "-"
    seconds = size.saved_s[which]
    return f"{'-' if seconds < 0 else ''}{format_seconds(seconds)}"
