"""Profiles of a user's own in the current folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.profiles.load import find_gpu, find_model, gpus, models

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """
[gpus.my-card]
like = "h100-pcie"
name = "My card"
memory_gib = 40
[gpus.my-card.host_link]
h2d_gbps = 21

[models.mine]
like = "qwen3-32b"
layers = 48
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    return lambda text: (tmp_path / "agentkv-trace.toml").write_text(text, encoding="utf-8")


def test_take_what_is_not_stated_from_a_known_one(write) -> None:
    write(GOOD)
    card, base = find_gpu("my card"), gpus()["h100-pcie"]
    assert (card.id, card.memory_gib, card.host_link.h2d_gbps) == ("my-card", 40, 21)
    assert (card.bf16_tflops, card.host_link.peak_gbps) == (base.bf16_tflops, 63)
    assert card.confidence == "derived"
    mine = find_model("mine")
    assert mine.kv_bytes_per_token(2) == 48 * 2 * 8 * 128 * 2
    assert mine.params < models()["qwen3-32b"].params


def test_whole_profiles_and_other_tables(write) -> None:
    write(
        "[check]\nx = 1\n[models.tiny]\nlayers = 2\nhidden = 64\nvocab = 100\nq_heads = 4\n"
        "kv_heads = 2\nhead_dim = 16\nffn = 128\n"
    )
    assert find_model("tiny").kv_bytes_per_token(2) == 2 * 2 * 2 * 16 * 2
    assert find_gpu("h20").id == "h20"


def test_the_name_of_a_user_wins_over_a_shipped_one(write) -> None:
    write('[gpus.h20]\nlike = "h20"\nmemory_gib = 140\n')
    assert find_gpu("h20").memory_gib == 140


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[gpus.x]\nlike = "h20"\nmemroy_gib = 3\n',
            "unknown key 'memroy_gib'; did you mean 'memo",
        ),
        ('[gpus.x]\nlike = "h20"\n[gpus.x.host_link]\nh2d = 3\n', "did you mean 'h2d_gbps'"),
        ("[gpu.x]\n", "unknown table 'gpu'; did you mean 'gpus'"),
        ('[gpus.x]\nname = "x"\n', "is missing; state it"),
        ('[gpus.x]\nlike = "h21x"\n', "unknown gpus.x: like 'h21x'|h21x"),
        ('[gpus.x]\nlike = "h20"\nmemory_gib = "much"\n', "memory_gib"),
        ("gpus = 3\n", "gpus is no table"),
        ("[gpus]\nx = 3\n", "gpus.x: is no table"),
        ("= broken", "no TOML"),
    ],
)
def test_what_is_wrong_is_said(write, text: str, words: str) -> None:
    write(text)
    with pytest.raises(InputError, match=words):
        find_gpu("h20")
