"""Names as people type them."""

from __future__ import annotations

import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.profiles.load import find_gpu, find_model, gpus, models
from agentkv_trace.profiles.names import normalize, resolve

TABLE = {"h20": ("H20",), "h200-sxm": ("H200 SXM",), "h100-sxm": (), "h100-pcie": ()}


@pytest.mark.parametrize("typed", ["h200-sxm", "H200 SXM", "h200_sxm", "H.2.0.0", "h200", "H200s"])
def test_spelling_does_not_count_and_a_unique_start_is_enough(typed: str) -> None:
    assert resolve(typed, TABLE, "GPU") == "h200-sxm"


def test_a_whole_name_wins_over_a_longer_one() -> None:
    assert resolve("H20", TABLE, "GPU") == "h20"


def test_an_ambiguous_start_lists_the_candidates() -> None:
    with pytest.raises(InputError, match="'H100' could mean h100-sxm or h100-pcie"):
        resolve("H100", TABLE, "GPU")


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown GPU 'rtx4080'; nearest: .*rtx4090"):
        find_gpu("rtx4080")
    with pytest.raises(InputError, match=r"unknown model 'qwen3-9b'; nearest: .*qwen3-8b"):
        find_model("qwen3-9b")


@pytest.mark.parametrize("typed", ["", " - ", "zzzzzz"])
def test_a_name_like_no_other_lists_what_is_known(typed: str) -> None:
    with pytest.raises(InputError, match="known: h100-pcie, h100-sxm, h20 and h200-sxm"):
        resolve(typed, TABLE, "GPU")


def test_a_long_list_is_cut() -> None:
    table: dict[str, tuple[str, ...]] = {f"card{number}": () for number in range(15)}
    with pytest.raises(InputError, match=r"card9 or 5 more; name one of them"):
        resolve("card", table, "GPU")


def test_hugging_face_names_are_known() -> None:
    assert find_model("Qwen/Qwen3-Coder-30B-A3B-Instruct").id == "qwen3-coder-30b-a3b"
    assert find_model("meta-llama/Llama-3.1-8B-Instruct").id == "llama-3.1-8b"


def test_no_two_profiles_share_a_spelling() -> None:
    for table in (
        {key: (gpu.name,) for key, gpu in gpus().items()},
        {key: (model.name, *model.aliases) for key, model in models().items()},
    ):
        owners: dict[str, str] = {}
        for key, others in table.items():
            for spelling in {normalize(text) for text in (key, *others)}:
                assert owners.setdefault(spelling, key) == key
            assert resolve(key, table, "profile") == key
