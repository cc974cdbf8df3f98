"""`agentkv-trace warmup`: compile the kernels ahead of the first run."""

from __future__ import annotations

from pathlib import Path

from agentkv_trace.cli.options import QuietOption

_GPU = "--model qwen3-4b --gpu rtx3090"
COMMANDS = (
    "explain {log} -o {out} --force",
    "explain {trace} -o {out} --force",
    "mrc {trace} -o {out} --force --by agent --session agent-0*",
    "mrc {trace} -o {out} --force --timing overlap",
    "mrc {trace} -o {out} --force --engine chunk",
    "mrc {trace} -o {out} --force --engine shards --rate 0.5",
    "mrc {trace} -o {out} --force --engine shards --samples 200",
    *(
        f"mrc {{trace}} -o {{out}} --force --backend {backend}"
        for backend in ("vllm", "sglang", "lmcache", "lmcache-server")
    ),
    *(
        f"report {{trace}} -o {{out}} --force {_GPU} --backend {backend}"
        for backend in ("vllm", "vllm-simple", "vllm-lazy", "lmcache-server", "sglang")
    ),
    f"report {{trace}} -o {{out}} --force {_GPU} --agents 3",
    "export {trace} --to mooncake -o {mooncake}",
    "ingest mooncake:{mooncake} -o {out} --force",
)
"""What it takes to meet every kernel once, in each of its types."""


def warmup(quiet: QuietOption = False) -> None:
    """Compile the kernels now, for example while building a container image.

    Commands run on a small trace that is made up. They compile what they need by themselves too,
    at its first use, and keep it for this user and version.

    Example:
      agentkv-trace warmup
    """
    from tempfile import TemporaryDirectory

    from agentkv_trace.cli.app import app
    from agentkv_trace.cli.output import say
    from agentkv_trace.cli.progress import say_if_compiling
    from agentkv_trace.trace.demo import demo_trace
    from agentkv_trace.trace.store import write_trace

    say_if_compiling(quiet=quiet)
    with TemporaryDirectory() as folder:
        names = ("log.jsonl", "trace", "out", "mooncake")
        paths = {name.partition(".")[0]: str(Path(folder) / name) for name in names}
        Path(paths["log"]).write_text("".join(_log()), encoding="utf-8")
        write_trace(demo_trace(agents=3), Path(paths["trace"]))
        for command in COMMANDS:
            words = [word.format(**paths) for word in command.split()]
            app([*words, "--quiet"], prog_name="agentkv-trace", standalone_mode=False)
    say("Kernels are compiled.", quiet=quiet)


def _log() -> list[str]:
    """Return a log of two requests, the second with another first message: prefixes that break."""
    import json

    text = "words of a prompt that is long enough for a chunk or two, " * 4
    return [
        json.dumps(
            {
                "session_id": "one",
                "start_time": 1_767_600_000 + number,
                "request": {
                    "messages": [
                        {"role": "system", "content": f"{number} {text}"},
                        *({"role": "user", "content": text} for _ in range(number)),
                    ]
                },
            }
        )
        + "\n"
        for number in (1, 2)
    ]
