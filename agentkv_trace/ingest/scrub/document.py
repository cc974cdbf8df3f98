"""JSON text, whole or torn, with its strings replaced and all else as it is, byte for byte."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from agentkv_trace.ingest.scrub.blobs import scrub_base64
from agentkv_trace.ingest.scrub.cipher import LARGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agentkv_trace.ingest.scrub.cipher import Words


@dataclass(frozen=True, slots=True)
class Kept:
    """What stays of JSON: whatever a reader goes by, and no more."""

    keys: frozenset[bytes] = frozenset()
    """Keys that stay. All others are replaced like texts."""
    values: frozenset[bytes] = frozenset()
    """Keys whose strings stay if they are one word, as names of types and models are."""
    words: frozenset[bytes] = frozenset()
    """Whole strings that stay."""
    blobs: frozenset[bytes] = frozenset()
    """Keys whose strings are base64."""
    inside: Mapping[bytes, Kept] = field(default_factory=dict)
    """What stays below a key instead, in objects, arrays and strings that hold JSON."""
    numbers: bool = False
    """Whether numbers stay below other keys too."""


NOTHING = Kept()
"""Below a key of which no reader looks at more than the length."""


def named(words: str) -> frozenset[bytes]:
    """Return a set of names written in one string."""
    return frozenset(words.encode().split())


BY_TYPE = Kept(named("type"), named("type"))
"""Below a key whose objects only tell their type, as do the items that others have at its place."""

MOST_HELD = 64 << 20
ENTRY = 200
"""Bytes that remembered texts take at most, before and after, and about what each takes beside."""
_TOKEN = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*)("?)|([{}\[\],:])|([^"{}\[\],:]+)', re.DOTALL)
_BARE = re.compile(rb"\s*(?:true|false|null|(-?\d[\d.eE+-]*))?\s*")
_SHORT_NUMBER = re.compile(rb"-?(?:\d{1,18}|(?=[\d.]{3,16}\Z)\d+\.\d+)")
"""A number that is as long as before when a reader writes it anew with other digits."""
_VALUE = re.compile(rb"[\w.:/@+-]{1,100}", re.ASCII)
_TIME = re.compile(
    rb"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?"
)
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.?", re.DOTALL
)
_JSON = (b"{", b"[", b"data:", b"event:")
"""How strings begin that hold JSON: by itself, or in the events of a stream."""
_SHORT = {b"\\n": b"\n", b"\\t": b"\t", b"\\r": b"\r", b'\\"': b'"', b"\\\\": b"\\", b"\\/": b"/"}
_ENTITIES = re.compile(rb"\\u([0-9a-fA-F]{4})")


class Scrubber:
    """Replaces what a source's log says and keeps what its reader goes by."""

    def __init__(self, words: Words, kept: Kept, start: re.Pattern[bytes] | None = None) -> None:
        self.words = words
        self.kept = kept
        self._start = start
        self._texts: dict[bytes, bytes] = {}
        self._held = 0

    def record(self, data: bytes) -> bytes:
        """Return a line or a file of JSON scrubbed; where it is torn, records are found anew.

        They are found as the source's reader does, by `start`, which is how a record begins
        (None: as the first one does).
        """
        start = self._start
        if start is None:
            start = re.compile(re.escape(data[: data.find(b":") + 1]) or rb"(?!)")
        found = start.search(data, 1)
        if found is None or _is_whole(data):
            return self.json(data, self.kept)
        return b"".join(self.json(piece, self.kept) for piece in _pieces(data, start))

    def json(self, data: bytes, kept: Kept) -> bytes:
        """Return JSON scrubbed. It need not be whole, or JSON at all."""
        made = bytearray()
        stack: list[tuple[bytes, Kept, bool]] = []
        key, is_object, wants_key = b"", False, False
        tokens = _TOKEN.findall(data) if len(data) < LARGE else _tokens(data)
        for string, quote, sign, bare in tokens:
            if string:
                inner = string[1:]
                if wants_key:
                    key = inner
                    if inner not in kept.keys:
                        inner = self._text(inner)
                else:
                    inner = self.string(key, inner, kept)
                made += b'"'
                made += inner
                made += quote
                continue
            if bare:
                made += self._bare(key, bare, kept)
                continue
            made += sign
            if sign == b",":
                wants_key = is_object
            elif sign == b":":
                wants_key = False
            elif sign in b"{[":
                stack.append((key, kept, is_object))
                kept = kept.inside.get(key, kept)
                is_object = wants_key = sign == b"{"
            elif stack:
                key, kept, is_object = stack.pop()
                wants_key = False
        return bytes(made)

    def string(self, key: bytes, raw: bytes, kept: Kept) -> bytes:
        """Return the string below a key scrubbed, both as they stand between quotes."""
        if raw in kept.words or (key in kept.values and _VALUE.fullmatch(raw)):
            return raw
        if len(raw) < 40 and _TIME.fullmatch(raw):
            return raw
        if key in kept.blobs:
            return through_escapes(raw, lambda plain: scrub_base64(plain, self.words))
        if (inner := kept.inside.get(key)) is not None and raw.lstrip().startswith(_JSON):
            return through_escapes(raw, lambda plain: self.json(plain, inner))
        return self._text(raw)

    def _text(self, raw: bytes) -> bytes:
        """Return a text scrubbed, between quotes; logs repeat the same ones in every request."""
        made = self._texts.get(raw)
        if made is None:
            made = through_escapes(raw, self.words.text)
            self._held += 2 * len(raw) + ENTRY
            if self._held > MOST_HELD:
                self._texts.clear()
                self._held = 0
            self._texts[raw] = made
        return made

    def _bare(self, key: bytes, data: bytes, kept: Kept) -> bytes:
        """Return what stands outside strings: blanks and names of JSON stay, numbers by key."""
        found = _BARE.fullmatch(data)
        if found is None:
            return self.words.text(data)
        number = found[1]
        if number is None or kept.numbers or key in kept.keys:
            return data
        return self.words.text(data) if _SHORT_NUMBER.fullmatch(number) else data


def _tokens(data: bytes) -> Iterator[tuple[bytes, ...]]:
    """Yield tokens one by one, which takes longer and does not hold them all."""
    for found in _TOKEN.finditer(data):
        yield found.groups(b"")


def _pieces(data: bytes, start: re.Pattern[bytes]) -> Iterator[bytes]:
    """Yield damaged JSON in pieces: whole records, and what is between the starts of others."""
    decoder = json.JSONDecoder()
    # One character a byte, so that places in the text are those in the data.
    text = data.decode("latin-1").replace("\0", " ")
    done = at = 0
    while (found := start.search(data, at)) is not None:
        try:
            _, at = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            at = found.end()
            if found.start() > done:
                yield data[done : found.start()]
            done = found.start()
            continue
        yield data[done : found.start()]
        yield data[found.start() : at]
        done = at
    yield data[done:]


def _is_whole(data: bytes) -> bool:
    try:
        msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def through_escapes(raw: bytes, change: Callable[[bytes], bytes]) -> bytes:
    r"""Return a string as it stands between quotes, changed by what it says.

    `change` keeps the length, and what it alters among characters that are written as escapes
    (`\u00e9`) is written as escapes again.
    """
    if b"\\" not in raw:
        return change(raw)
    try:
        plain = msgspec.json.decode(b'"%b"' % raw, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _by_escape(raw, change)
    if msgspec.json.encode(plain)[1:-1] != raw:
        return _by_escape(raw, change)
    return msgspec.json.encode(change(plain.encode()).decode())[1:-1]


def _by_escape(raw: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Do the same for a string that is damaged, or not escaped in the usual way."""
    plain: list[bytes] = []
    escapes: list[tuple[int, bytes, bytes]] = []
    at = size = 0
    for found in _ESCAPE.finditer(raw):
        start, escape = found.start(), found[0]
        size += start - at
        char = _SHORT.get(escape) or _char(escape)
        plain += (raw[at:start], char)
        escapes.append((size, escape, char))
        size += len(char)
        at = found.end()
    plain.append(raw[at:])
    changed = change(b"".join(plain))
    made: list[bytes] = []
    at = 0
    for place, escape, char in escapes:
        made.append(changed[at:place])
        at = place + len(char)
        made.append(escape if changed[place:at] == char else _escaped(changed[place:at]))
    made.append(changed[at:])
    return b"".join(made)


def _char(escape: bytes) -> bytes:
    """Return the character of an escape, NUL where it is none with a meaning of its own."""
    units = _ENTITIES.findall(escape)
    if not units:
        return b"\0"
    halves = b"".join(int(unit, 16).to_bytes(2, "big") for unit in units)
    return halves.decode("utf-16-be", "surrogatepass").encode("utf-8", "surrogatepass")


def _escaped(char: bytes) -> bytes:
    units = char.decode().encode("utf-16-be")
    return b"".join(
        b"\\u%04x" % int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)
    )
