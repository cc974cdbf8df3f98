"""The decorator of kernels that only other kernels call.

They need no door for Python, which for tables of records is most of their compile time, and since
they make no arrays they need not count references, which would be most of their run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import agentkv_trace._jit  # noqa: F401 (sets where numba keeps its caches: before numba itself)

if TYPE_CHECKING:
    from collections.abc import Callable


def inner(function: Callable[..., Any]) -> Any:
    """Compile a kernel for other kernels, which keep it in their own cache."""
    import numba

    options: Any = {
        "nogil": True,
        "no_cpython_wrapper": True,
        "no_cfunc_wrapper": True,
        "_nrt": False,
    }
    return numba.njit(**options)(function)
