"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

REPO = Path(__file__).parents[1]
SHARED = REPO.parent / "shared"

# Kernels compile on first use, which is no fault of the example at hand.
settings.register_profile("default", deadline=None, derandomize=True)
settings.register_profile("few", deadline=None, derandomize=True, max_examples=10)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of captures and golden data, or skip."""
    if not SHARED.is_dir():
        pytest.skip("needs the captures and golden data in ../shared, which are not in this repo")
    return SHARED
