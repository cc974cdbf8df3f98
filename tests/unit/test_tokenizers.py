from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv_trace.errors import InputError
from agentkv_trace.trace.build import TraceBuilder
from agentkv_trace.trace.call import Node
from agentkv_trace.trace.tokenizers import _PIECE, _pieces, load
from made import call

if TYPE_CHECKING:
    from pathlib import Path

# A vocabulary of our own: words and single letters, split at spaces.
VOCABULARY = {"[UNK]": 0, "tide": 1, "table": 2, "high": 3}


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.json"
    path.write_text(
        json.dumps(
            {
                "version": "1.0",
                "pre_tokenizer": {"type": "Whitespace"},
                "model": {"type": "WordLevel", "vocab": VOCABULARY, "unk_token": "[UNK]"},
            }
        )
    )
    return path


def ids(tokenizer, text: str) -> list[int]:
    return np.frombuffer(tokenizer.ids(text.encode()), "<u4").tolist()


def test_a_tokenizer_file_gives_its_ids(words: Path) -> None:
    pytest.importorskip("tokenizers")
    tokenizer = load(str(words))
    assert ids(tokenizer, "high tide table ebb") == [3, 1, 2, 0]
    assert tokenizer.meta["name"] == "tokenizer.json"
    assert len(tokenizer.meta["sha256"]) == 64
    assert str(words) not in str(tokenizer.meta)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Ids published for o200k_base.
        ("hello world", [24912, 2375]),
        ("tiktoken is great!", [83, 8251, 2488, 382, 2212, 0]),
        ("", []),
    ],
)
def test_o200k_gives_the_published_ids(text: str, expected: list[int]) -> None:
    pytest.importorskip("bpe_openai")
    assert ids(load("o200k"), text) == expected


def test_special_tokens_in_a_prompt_are_plain_text() -> None:
    pytest.importorskip("bpe_openai")
    assert len(ids(load("o200k"), "<|endoftext|>")) > 1


def test_a_long_text_is_encoded_in_pieces() -> None:
    pytest.importorskip("bpe_openai")
    text = "high tide at the sill; " * 20_000
    whole, once = ids(load("o200k"), text), ids(load("o200k"), "high tide at the sill; ")
    # The space behind a word belongs to the next one.
    assert abs(len(whole) - 20_000 * (len(once) - 1)) <= 1 + len(text) // _PIECE


@given(st.text(max_size=50), st.integers(0, 3))
def test_pieces_are_the_text(text: str, times: int) -> None:
    long = (text + "x" * _PIECE) * times + text
    assert "".join(_pieces(long)) == long
    assert all(0 < len(piece) <= _PIECE for piece in _pieces(long))


def test_bytes_need_no_tokenizer() -> None:
    assert load("bytes") is None


def test_what_cannot_be_used_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="No such file"):
        load(str(tmp_path / "none.json"))
    (tmp_path / "odd.json").write_text("{}")
    pytest.importorskip("tokenizers")
    with pytest.raises(InputError, match=r"not a tokenizer\.json"):
        load(str(tmp_path / "odd.json"))
    monkeypatch.setitem(__import__("sys").modules, "bpe_openai", None)
    with pytest.raises(InputError, match=r"agentkv-trace\[o200k\]"):
        load("o200k")


def test_chunks_are_sixteen_ids(words: Path) -> None:
    pytest.importorskip("tokenizers")
    text = b"high tide " * 20
    with TraceBuilder(load(str(words))) as builder:
        builder.add(
            call("a", Node.head("h").text(text), logged_prompt_tokens=56, usage_source="logged")
        )
        builder.add(call("a", Node.head("h").text(text + b"table"), 1))
        built = builder.finish({})
    # 16 tokens of head, then 40 and 41 words.
    assert built.array("prompt_tokens").tolist() == [56, 57]
    assert built.array("prompt_chunks").tolist() == [3, 3]
    assert built.array("base_chunks").tolist() == [0, 3]
    assert built.meta.tokenizer["name"] == "tokenizer.json"
    assert "bytes_per_chunk" not in built.meta.tokenizer
