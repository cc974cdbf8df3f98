"""Trace-driven KV-cache analysis for coding agents.

Importing the package loads none of numpy, numba, polars or pyarrow; each public
name is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "MissRatioCurve": "agentkv_trace.engine.curve",
    "Trace": "agentkv_trace.trace.store",
    "miss_ratio_curve": "agentkv_trace.engine.mrc",
    "read_trace": "agentkv_trace.trace.store",
}

__all__ = ["MissRatioCurve", "Trace", "__version__", "miss_ratio_curve", "read_trace"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
