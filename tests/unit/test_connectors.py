"""Connectors and copy rates, and profiles as text."""

from __future__ import annotations

import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.profiles.connectors import connectors, copy_rates, find_connector
from agentkv_trace.profiles.load import gpus, models
from agentkv_trace.report.profiles import listing, shown
from agentkv_trace.tiers.backends import BACKENDS


@pytest.mark.parametrize("connector", connectors().values(), ids=connectors())
def test_connectors_make_sense(connector) -> None:
    for band in (connector.store_sync_ms, connector.restore_ms, connector.write_exposed):
        assert list(band) == sorted(band)
        assert band[0] >= 0
    assert 0 <= connector.overlap <= 1
    assert connector.write_exposed[2] <= 1
    assert connector.sources
    assert connector.note


def test_backends_name_known_connectors() -> None:
    assert {backend.connector for backend in BACKENDS.values()} <= set(connectors())
    assert find_connector("LMCache 0.3").id == "lmcache-0.3"
    with pytest.raises(InputError, match="could mean"):
        find_connector("vllm")


@pytest.mark.parametrize("name", ["h100", "mi300x", "kernel", "single"])
@pytest.mark.parametrize("link", [25.0, 52.0, 342.0])
def test_larger_blocks_are_never_slower_and_no_rate_exceeds_the_link(
    name: str, link: float
) -> None:
    table = copy_rates(name)
    last = (0.0, 0.0, 0.0)
    for size in (1, 512, 4096, 5000, 16_384, 24_576, 28_671, 28_672, 65_536, 2**18, 2**19, 2**24):
        rates = table.gbps(size, link)
        assert rates[0] <= rates[1] <= rates[2] <= link
        assert all(now >= before for now, before in zip(rates, last, strict=True)), size
        last = rates


def test_gpus_name_known_tables() -> None:
    for gpu in gpus().values():
        assert copy_rates(gpu.host_link.copies).link_gbps > 0
    assert gpus()["mi300x"].host_link.copies == "mi300x"


@pytest.mark.parametrize("width", [60, 80, 200])
def test_lists(width: int) -> None:
    for kind, names in (
        ("gpus", gpus()), ("models", models()), ("connectors", connectors()),
        ("backends", BACKENDS),
    ):  # fmt: skip
        text = listing(kind, width)
        assert max(map(len, text.splitlines())) <= width
        for name in names:
            assert any(line.startswith(name) for line in text.splitlines()), name


def test_one_profile_with_figures_formula_and_source() -> None:
    model = shown("models", "qwen3-coder-30b", 80)
    assert "48 layers * 4 heads * 2 * 128 * 2 bytes = 98,304 bytes" in " ".join(model.split())
    assert "source" in model
    latent = " ".join(shown("models", "glm-5.2").split())
    assert (
        "78 layers * ((512 + 64) * 2 bytes + 132 of index), whole on each rank = 100,152" in latent
    )
    assert "77" in shown("models", "qwen3-next") or "73.7 MiB" in shown("models", "qwen3-next")
    gpu = shown("gpus", "h800")
    assert "989e12 / 63e9 = 15.7K" in gpu
    assert "derived" in gpu
    assert "none" in shown("gpus", "dgx-spark")
    assert "73/94/115.7 ms" in shown("connectors", "lmcache-0.3")
    assert "256 tokens" in shown("backends", "lmcache-server")
    with pytest.raises(InputError, match="could mean"):
        shown("gpus", "h100")


@pytest.mark.parametrize("name", [*gpus(), *models()])
def test_every_profile_can_be_shown(name: str) -> None:
    kind = "gpus" if name in gpus() else "models"
    for line in shown(kind, name, 80).splitlines():
        assert len(line) <= 80 or line.startswith("source"), line
