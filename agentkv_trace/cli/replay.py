"""`agentkv-trace replay`: the same sessions as N concurrent agents on a GPU with its tiers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from agentkv_trace.cli.options import (
    AgentOption,
    BackendOption,
    ConnectorOption,
    ForceOption,
    GpusPerLinkOption,
    KvBytesOption,
    KvTokensOption,
    MemoryShareOption,
    ModelFilterOption,
    OutputOption,
    PpOption,
    ProfileOption,
    QuietOption,
    SessionOption,
    SinceOption,
    TpOption,
    TraceArgument,
    UntilOption,
    WeightDtypeOption,
)


class Kind(StrEnum):
    """Timelines: the names of `replay.timeline.KINDS`."""

    closed_loop = "closed-loop"
    recorded = "recorded"
    open_loop = "open-loop"


class Order(StrEnum):
    """In which order sessions are taken up: the names of `replay.timeline.ORDERS`."""

    trace = "trace"
    longest = "longest"
    random = "random"


class Routing(StrEnum):
    """How calls choose a replica: the names of `replay.work.ROUTINGS`."""

    sticky = "sticky"
    round_robin = "round-robin"
    longest_prefix = "longest-prefix"


class WriteFilter(StrEnum):
    """The paper's write admission: the names of `replay.work.WRITE_FILTERS`."""

    off = "off"
    fixed = "fixed"
    conditioned = "conditioned"


class ReplayFormat(StrEnum):
    """Forms of the result; Parquet holds rows only and needs -o."""

    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"
    parquet = "parquet"


def replay(
    trace: TraceArgument,
    model: ProfileOption,
    gpu: Annotated[
        list[str] | None,
        typer.Option("--gpu", "-g", help="GPU profile, may be repeated; none: H100 SXM."),
    ] = None,
    agents: Annotated[
        str | None,
        typer.Option(help="Agents at a time: 16, several by comma, or 1..64; none: 8."),
    ] = None,
    host_size: Annotated[
        str, typer.Option(help="Host memory over all ranks (8GiB/rank: of each); several by comma.")
    ] = "0",
    onset: Annotated[
        bool, typer.Option("--onset", help="Find from how many agents on the tiers thrash.")
    ] = False,
    best_cap: Annotated[
        bool, typer.Option("--best-cap", help="Find how many active agents serve the load fastest.")
    ] = False,
    series: Annotated[
        bool,
        typer.Option("--series", help="Show each replay over time; csv, parquet: only that."),
    ] = False,
    timeline: Annotated[
        Kind,
        typer.Option(
            help="closed-loop: agents take up one session after the other; recorded: as logged; "
            "open-loop: sessions begin at --rate."
        ),
    ] = Kind.closed_loop,
    rate: Annotated[
        float | None, typer.Option(help="Sessions a minute that begin, for open-loop.")
    ] = None,
    sessions: Annotated[
        int | None,
        typer.Option(help="Sessions to run, copies beyond the trace's; none: all, one per agent."),
    ] = None,
    order: Annotated[
        Order, typer.Option(help="Order of the sessions; longest: most prompt tokens first.")
    ] = Order.trace,
    max_agents: Annotated[
        int | None, typer.Option(help="Cap on active agents: others wait for their turn.")
    ] = None,
    max_gap: Annotated[float, typer.Option(help="Longest pause kept, in seconds.")] = 600.0,
    gap_median: Annotated[
        float, typer.Option(help="Median tool time in seconds, where a log has no times.")
    ] = 4.0,
    seed: Annotated[int, typer.Option(help="Seed of all that is drawn.")] = 0,
    backend: BackendOption = "vllm",
    connector: ConnectorOption = None,
    host_chunk_tokens: Annotated[
        int | None, typer.Option(help="Chunk of LMCache's tier; none: 256.")
    ] = None,
    write_filter: Annotated[
        WriteFilter,
        typer.Option(
            help="Do not store calls that add more than kappa chunks of 1024 tokens; conditioned: "
            "only while the tier overflows."
        ),
    ] = WriteFilter.off,
    kappa: Annotated[int, typer.Option(help="Chunks, for --write-filter.")] = 8,
    max_num_seqs: Annotated[int, typer.Option(help="Calls a replica runs at a time.")] = 256,
    max_num_batched_tokens: Annotated[
        int, typer.Option(help="Prompt tokens in one step of the engine.")
    ] = 8192,
    tp: TpOption = 1,
    pp: PpOption = 1,
    dp: Annotated[int, typer.Option(help="Replicas, each with its own tiers.")] = 1,
    routing: Annotated[Routing, typer.Option(help="How calls choose a replica.")] = Routing.sticky,
    kv_dtype: Annotated[
        str, typer.Option(help="Type of the KV cache: bf16, fp8, int4 or int2.")
    ] = "bf16",
    weight_dtype: WeightDtypeOption = "bf16",
    gpu_memory_utilization: MemoryShareOption = 0.9,
    gpu_kv_tokens: KvTokensOption = None,
    kv_bytes_per_token: KvBytesOption = None,
    gpus_per_link: GpusPerLinkOption = 1,
    since: SinceOption = None,
    until: UntilOption = None,
    session: SessionOption = None,
    agent: AgentOption = None,
    logged_model: ModelFilterOption = None,
    output_format: Annotated[
        ReplayFormat,
        typer.Option("--format", "-f", help="Form of the result; parquet needs -o."),
    ] = ReplayFormat.table,
    output: OutputOption = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Replay the sessions as N concurrent agents on a GPU, call by call.

    Options come in this order: what to compare and find, the timeline, the engine with its host
    tier, the deployment, which calls, the output.

    Examples:
      agentkv-trace replay trace.parquet --model qwen3-8b --gpu h100-sxm --agents 16
      agentkv-trace replay trace.parquet -m qwen3-8b -g l40s --agents 1..64 --onset
      agentkv-trace replay trace.parquet -m qwen3-8b -g rtx3090 --host-size 0,10,20,40GiB
      agentkv-trace replay trace.parquet -m qwen3-8b --agents 64 --best-cap --order longest
      agentkv-trace replay trace.parquet -m qwen3-8b --dp 4 --routing longest-prefix
      agentkv-trace replay trace.parquet -m qwen3-8b --timeline open-loop --rate 6 --series
    """
    from agentkv_trace.cli.options import call_filter, load
    from agentkv_trace.cli.output import emit, refuse_overwrite, replacing, say, terminal_width
    from agentkv_trace.cli.progress import counted, say_if_compiling
    from agentkv_trace.errors import InputError

    refuse_overwrite(output, force=force)
    if output_format is ReplayFormat.parquet and output is None:
        raise InputError("--format parquet needs a file to write to: add -o FILE")
    if agents is not None and timeline is not Kind.closed_loop:
        raise InputError("--agents is for --timeline closed-loop; --max-agents caps the others")
    from agentkv_trace.profiles.load import find_gpu, find_model
    from agentkv_trace.replay.sweep import numbers, write_parquet
    from agentkv_trace.replay.timeline import Timeline
    from agentkv_trace.report import replay as render
    from agentkv_trace.report import replay_data
    from agentkv_trace.report.replay_build import ReplayOptions, build_replay
    from agentkv_trace.tiers.capacity import Deployment

    profile = find_model(model)
    gpus = [find_gpu(name) for name in gpu or ["h100-sxm"]]
    deployment = Deployment(
        tp=tp,
        pp=pp,
        dp=dp,
        gpu_memory_utilization=gpu_memory_utilization,
        kv_dtype=kv_dtype if kv_dtype in ("bf16", "fp8") else "bf16",
        weight_dtype=weight_dtype,
        kv_bytes_per_token=kv_bytes_per_token,
        gpu_kv_tokens=gpu_kv_tokens,
    )
    options = ReplayOptions(
        deployment=deployment,
        timeline=Timeline(
            kind=timeline.value,
            rate=rate,
            sessions=sessions,
            order=order.value,
            max_agents=max_agents,
            seed=seed,
            max_gap_s=max_gap,
            gap_median_s=gap_median,
        ),
        kv_dtype=kv_dtype,
        agents=numbers(agents or "8", "--agents") if timeline is Kind.closed_loop else (1,),
        host_bytes=_host_bytes(host_size, deployment.ranks),
        backend=backend,
        connector=connector,
        host_chunk_tokens=host_chunk_tokens,
        gpus_per_link=gpus_per_link,
        onset=onset,
        cap=best_cap,
        series=series,
    )
    options.check()
    rules = {
        "routing": routing.value,
        "max_num_seqs": max_num_seqs,
        "step_tokens": max_num_batched_tokens,
        "write_filter": write_filter.value,
        "kappa": kappa,
    }
    loaded = load(trace, call_filter(since, until, session, agent, logged_model))
    say_if_compiling(quiet=quiet)
    places = len(gpus) * len(options.host_bytes)
    total = places * (len(options.agents) + onset + best_cap)
    with counted("Replaying", quiet=quiet, total=total) as advance:
        result = build_replay(loaded, profile, gpus, options, rules, advance=advance)
    if output_format is ReplayFormat.parquet:
        assert output is not None
        with replacing(output) as temporary:
            write_parquet(replay_data.flat(result), temporary)
        say(f"Wrote {output}", quiet=quiet)
        return
    if output_format is ReplayFormat.table:
        text = render.to_table(result, terminal_width())
    else:
        text = {
            ReplayFormat.json: replay_data.to_json,
            ReplayFormat.csv: replay_data.to_csv,
            ReplayFormat.markdown: render.to_markdown,
        }[output_format](result)
    emit(text, output, quiet=quiet)


def _host_bytes(text: str, ranks: int) -> tuple[int, ...]:
    """Return the sizes over all ranks that `0,5,10GiB` or `8GiB/rank` means.

    Numbers without a unit take that of the next one that has one.
    """
    from agentkv_trace.errors import InputError
    from agentkv_trace.tiers.size import Size

    sizes: list[int] = []
    unit = ""
    for part in reversed(text.split(",")):
        amount, _, each = part.strip().partition("/")
        if amount.replace(".", "", 1).isdigit():
            amount += unit or ("GiB" if float(amount) == 0 else "")
        else:
            unit = amount.lstrip("0123456789. ") + (f"/{each}" if each else "")
        amount, _, later = amount.partition("/")
        each = each or later
        wrong = InputError(f"--host-size {part.strip()!r}: write it like 64GiB or 8GiB/rank")
        try:
            size = Size.parse(amount)
        except InputError:
            raise wrong from None
        if size.unit != "bytes" or each not in ("", "rank"):
            raise wrong
        sizes.append(int(size.amount) * (ranks if each else 1))
    return tuple(dict.fromkeys(reversed(sizes)))
