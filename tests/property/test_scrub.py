from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from agentkv_trace.ingest.scrub import document
from agentkv_trace.ingest.scrub.cipher import Words
from agentkv_trace.ingest.scrub.codex import RULES
from agentkv_trace.ingest.scrub.document import NOTHING, Kept, Scrubber, through_escapes

KEY = b"k" * 32
WORDS = Words(KEY)
SCRUBBER = Scrubber(Words(KEY, RULES.markers), RULES.kept, RULES.start)

letters = st.sampled_from("abcxyzABCXYZ0123789éßжяλ日本語한Ω🙂𐍈") | st.characters(
    categories=["L", "N", "M", "So"]
)
marks = st.sampled_from(" \n\t.,/-_()<>\"'\\…—“”　。") | st.characters(categories=["P", "Z"])
texts = st.text(st.one_of(letters, letters, letters, marks), max_size=60)
# Without what ids and URLs are made with: they stay in part, or change as a whole.
plain = st.text(st.one_of(letters, letters, st.sampled_from(" \n.,/()…—“”。")), max_size=40)


def scrub(text: str) -> str:
    return WORDS.text(text.encode()).decode()


@given(texts)
def test_every_character_keeps_its_size(text: str) -> None:
    sizes = [len(char.encode()) for char in text]
    assert [len(char.encode()) for char in scrub(text)] == sizes


@given(texts)
def test_what_is_no_letter_or_digit_stays_and_ascii_letters_go(text: str) -> None:
    for before, after in zip(text, scrub(text), strict=True):
        if before.isascii():
            assert after.isalnum() == before.isalnum()
            assert after.isdigit() == before.isdigit()
            if not before.isalnum() or before == "0":
                assert after == before
            if before.isdigit() and before != "0":
                assert after != before


@given(
    st.from_regex(r"[a-z]{4,12}", fullmatch=True) | st.from_regex(r"[A-Z]{4,12}", fullmatch=True)
)
def test_no_word_becomes_itself(word: str) -> None:
    rare = set(word.lower()) <= set("jkqvxz")
    assert rare or scrub(word) != word


@given(plain, plain, plain)
def test_texts_part_at_the_same_byte_as_before(shared: str, one: str, other: str) -> None:
    first, second = (shared + one).encode(), (shared + other).encode()
    assert shared_bytes(WORDS.text(first), WORDS.text(second)) == shared_bytes(first, second)


@given(plain, plain)
def test_equal_words_stay_equal_wherever_they_stand(one: str, other: str) -> None:
    assert scrub(f"{one} {other}\n{one}") == f"{scrub(one)} {scrub(other)}\n{scrub(one)}"


@given(st.binary(max_size=60))
def test_bytes_of_any_kind_keep_their_number(data: bytes) -> None:
    assert len(WORDS.text(data)) == len(data)
    assert len(SCRUBBER.record(data)) == len(data)


@given(st.text(max_size=60), st.booleans())
def test_escapes_stay_and_hide_nothing(text: str, ascii_only: bool) -> None:
    raw = json.dumps(text, ensure_ascii=ascii_only)[1:-1].encode("utf-8", "surrogatepass")
    made = through_escapes(raw, WORDS.text)
    assert len(made) == len(raw)
    assert made == document._by_escape(raw, WORDS.text)
    said = json.loads(b'"%b"' % made)
    assert said.encode() == WORDS.text(text.encode())


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_json_in_a_string_stays_json_as_long_when_written_anew(value: Any) -> None:
    kept = Kept(inside={b"arguments": NOTHING})
    record = json.dumps({"arguments": json.dumps([value])}).encode()
    made = json.loads(Scrubber(WORDS, kept, RULES.start).record(record))
    (said,) = made.values()
    assert len(json.dumps(json.loads(said))) == len(json.dumps([value]))
    assert shape(json.loads(said)) == shape([value])


@given(values, st.sampled_from([None, 2]))
def test_a_record_keeps_its_shape_its_length_and_its_spaces(value: Any, indent: int | None) -> None:
    record = json.dumps({"payload": value}, indent=indent, ensure_ascii=False).encode()
    made = SCRUBBER.record(record)
    assert len(made) == len(record)
    assert shape(msgspec.json.decode(made)) == shape({"payload": value})
    assert [at for at, byte in enumerate(made) if byte in b'{}[]:," \n'] == [
        at for at, byte in enumerate(record) if byte in b'{}[]:," \n'
    ]


@given(values, st.integers(0, 200))
def test_a_torn_record_keeps_its_length_and_the_next_one_is_found(value: Any, cut: int) -> None:
    whole = b'{"timestamp":"2026-11-30T12:00:00Z","type":"message"}'
    torn = json.dumps({"payload": value}).encode()[: cut + 1][:-1]
    made = SCRUBBER.record(torn + whole)
    assert len(made) == len(torn + whole)
    assert made.endswith(whole)


def shared_bytes(one: bytes, other: bytes) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def shape(value: Any) -> Any:
    """Return a value with its texts as their lengths, and numbers as their numbers of digits."""
    if isinstance(value, dict):
        return [(len(key.encode()), shape(each)) for key, each in value.items()]
    if isinstance(value, list):
        return [shape(each) for each in value]
    if isinstance(value, str):
        return len(value.encode())
    return value if isinstance(value, bool) or value is None else len(str(value))
