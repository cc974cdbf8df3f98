"""Run `warmup`, then other commands, and tell which kernels were met in types that it left out.

    python tests/kernels_met.py FOLDER

FOLDER holds sample_traces and takes what the commands write.
"""

from __future__ import annotations

import os
import sys

from agentkv_trace.cli.app import main

DEPLOYED = "-m qwen3-4b -g l40s -o out --force -q"
COMMANDS = (
    "ingest sample_traces/codex -o codex.parquet --with-layout -q",
    "ingest sample_traces/opencode sample_traces/claude -o two.parquet -q",
    "ingest codex.parquet codex.parquet -o merged.parquet -q",
    "mrc codex.parquet --ttl 5m --chunk-tokens 64 --by session -o out --force -q",
    "mrc two.parquet --timing overlap --since 2026-01-01 -o out --force -q",
    "mrc codex.parquet --engine chunk --order head-first -o out --force -q",
    "explain codex.parquet -o out --force -q",
    "explain sample_traces/openhands -o out --force -q",
    "check --config sample_traces/agentkv-trace.toml -o out --force -q",
    "export codex.parquet --to references -o out --force -q",
    "export two.parquet --to csv --chunk-tokens 128 -o out --force -q",
    f"report codex.parquet {DEPLOYED}",
    f"report two.parquet --backend vllm --agents 12 {DEPLOYED}",
    f"report two.parquet --backend sglang-write-back {DEPLOYED}",
    f"report codex.parquet --backend lmcache --host-size 8GiB,16GiB {DEPLOYED}",
    f"report codex.parquet --agents 4 --format html {DEPLOYED}",
    f"replay codex.parquet --agents 4 --onset --best-cap --series {DEPLOYED}",
    f"replay codex.parquet --agents 2,6 --host-size 8GiB {DEPLOYED}",
    f"replay two.parquet --timeline recorded --dp 2 --routing longest-prefix {DEPLOYED}",
)


def met() -> dict[str, list[str]]:
    """Return the types in which each kernel of the package was called so far."""
    from numba.core.dispatcher import Dispatcher

    return {
        f"{name}.{kernel.__name__}": sorted(map(str, kernel.signatures))
        for name, module in list(sys.modules.items())
        if name.startswith("agentkv_trace.")
        for kernel in vars(module).values()
        if isinstance(kernel, Dispatcher) and kernel.__module__ == name
    }


def run(command: str) -> None:
    if main(command.split()):
        sys.exit(f"failed: {command}")


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    run("warmup -q")
    warm = met()
    for each in COMMANDS:
        run(each)
    for kernel, types in met().items():
        for new in set(types) - set(warm.get(kernel, ())):
            print(f"{kernel} {new}")  # noqa: T201
