"""`agentkv-trace warmup`: compile the kernels ahead of the first run."""

from __future__ import annotations


def warmup() -> None:
    """Compile the kernels now, for example while building a container image.

    Example:
      agentkv-trace warmup
    """
    import numpy as np

    from agentkv_trace.cli.output import say
    from agentkv_trace.engine.path_stack import path_runs
    from agentkv_trace.trace.tree import link

    none = np.zeros(1, np.int32)
    link(none - 1, none, np.zeros(2, np.int64), np.zeros(0, np.uint64))
    path_runs(none - 1, none, none, none)
    say("Kernels are compiled.")
