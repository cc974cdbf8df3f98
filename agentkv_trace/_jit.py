"""numba, set up once: a per-user, per-version kernel cache and one decorator."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkv_trace import __version__

if TYPE_CHECKING:
    from collections.abc import Callable


def _cache_dir() -> Path | None:
    """Return a writable directory of this user's own for compiled kernels, or None."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    path = Path(base) / "agentkv-trace" / __version__
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Compiled kernels are pickles: never load them from a directory of somebody else.
        if hasattr(os, "getuid") and path.stat().st_uid != os.getuid():
            return None
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError:
        return None


_CACHE = os.environ.get("NUMBA_CACHE_DIR") or _cache_dir()
if _CACHE is not None:
    os.environ["NUMBA_CACHE_DIR"] = str(_CACHE)

import numba  # noqa: E402  (the cache directory must be set first)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel lazily, without the GIL, cached where a cache can be written."""
    return numba.njit(cache=_CACHE is not None, nogil=True)(function)


def kept(package: str, module: str) -> bool:
    """Tell whether kernels of a module (`engine`, `path_stack`) are compiled and kept on disk."""
    return _CACHE is not None and any(Path(_CACHE).glob(f"{package}_*/{module}.*.nbc"))
