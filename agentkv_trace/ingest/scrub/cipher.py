"""The substitution: every run of letters and digits becomes another one of the same bytes.

Three properties make a scrubbed log give the trace of the original:

* a run's length in bytes stays, and the UTF-8 length of each of its characters;
* a run becomes the same wherever it stands, so equal texts stay equal, at any depth of escapes;
* two texts part at the same byte as before: what a byte becomes depends on the bytes before it in
  its run, and for given bytes before it the substitution is one to one. Prompts share chunks as
  they did, even where they part in the middle of a word.

It hides words, not statistics: who knows the language can guess frequent words from their length
and number.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, cast

from agentkv_trace.ingest.scrub.blobs import scrub_data_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

QUIET = b"BCDFGHJKLMNPQRSTVWXZjkqvxz"
LOUD = b"AEIOUYabcdefghilmnoprstuwy"
"""A letter of the case of the one before it becomes a quiet one: no vowel, hardly a small letter.

So what becomes of a word is hardly ever a word, of this log or any other.
"""
LOWER = bytes(range(ord("a"), ord("z") + 1))
UPPER = LOWER.upper()
NINE = b"123456789"
"""A zero stays one: so numbers in JSON stay numbers, and as long when they are written anew."""
HEX = b"0123456789abcdef"
REST = bytes(range(0x80, 0xC0))
"""How bytes of a character go on; the first byte of one stays, and with it the script."""
SECOND = {
    0xE0: REST[0x20:],
    0xE2: REST[0x30:],
    0xE3: REST[1:],
    0xED: REST[:0x20],
    0xEF: bytes(set(REST) - {0xBB, 0xBF}),
    0xF0: REST[0x10:],
    0xF4: REST[:0x10],
}
"""Where the second byte is not free: UTF-8 forbids some, and some are punctuation, which stays."""

DEEP = 16
"""Bytes of a run whose substitution each depends on all before; then it is chosen for blocks."""
BLOCK = 64
MOST_WORDS = 1_000_000
LONGEST_WORD = 64
LARGE = 1 << 20
"""Texts above this are taken in blocks of lines, so that their words are not held all at once."""

_LETTER = rb"[0-9A-Za-z\x80-\xff]"
_UUID_TAIL = rb"(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![0-9A-Za-z])"
_ENTITY = rb":(?:[\w.+-]+/[\w.+-]+;base64,[0-9A-Za-z+/]*={0,2})?"
# A letter and more of them, since a search for one set of bytes is the fastest there is.
_PIECE = re.compile(
    rb"(%b%b*(?:%b|(?<=ses|msg|prt|evt)_[0-9a-f]{12}[0-9A-Za-z]*|(?<=data)%b)?)"
    % (_LETTER, _LETTER, _UUID_TAIL, _ENTITY)
)
"""Letters and digits, and what stands behind them in ids with a time and in `data:` URLs."""
_LETTERS = re.compile(_LETTER + b"+")
_UUID = re.compile(rb"[0-9a-fA-F]{8}" + _UUID_TAIL + rb"|[0-9a-f]{32}")
_TIMED = re.compile(rb"(ses|msg|prt|evt)_[0-9a-f]{12}[0-9A-Za-z]*")
_WORD = re.compile(
    rb"((?:[0-9A-Za-z]|[\xc3-\xdf][\x80-\xbf]"
    rb"|(?!\xe2[\x80-\xaf]|\xe3\x80|\xed[\xa0-\xbf]|\xef[\xbb\xbf]|\xe0[\x80-\x9f])"
    rb"[\xe0-\xef][\x80-\xbf]{2}"
    rb"|(?!\xf0[\x80-\x8f]|\xf4[\x90-\xbf])[\xf0-\xf4][\x80-\xbf]{3})+)"
)
"""A run: neither punctuation, blanks and symbols beyond ASCII nor bytes that are no UTF-8."""
_TIME_DIGITS = 12
_KEPT_DIGITS = 4


class Words(dict[bytes, bytes]):
    """The substitution under one key, with what it made of the words so far.

    `markers` are patterns of text that stays wherever it stands.
    """

    def __init__(self, key: bytes, markers: Sequence[bytes] = ()) -> None:
        super().__init__()
        self._key = key
        self._markers = re.compile(b"(" + b"|".join(markers) + b")") if markers else None

    def text(self, data: bytes) -> bytes:
        """Return a text in UTF-8 with all its words replaced; other bytes stay."""
        if len(data) > LARGE:
            return b"".join(map(self._marked, _blocks(data)))
        return self._marked(data)

    def _marked(self, data: bytes) -> bytes:
        if self._markers is None or self._markers.search(data) is None:
            return self._text(data)
        parts = self._markers.split(data)
        parts[::2] = map(self._text, parts[::2])
        return b"".join(parts)

    def _text(self, data: bytes) -> bytes:
        parts = _PIECE.split(data)
        parts[1::2] = map(self.__getitem__, parts[1::2])
        return b"".join(parts)

    def __missing__(self, piece: bytes) -> bytes:
        made = self._made(piece)
        if len(piece) <= LONGEST_WORD and len(self) < MOST_WORDS:
            self[piece] = made
        return made

    def _made(self, piece: bytes) -> bytes:
        if _UUID.fullmatch(piece):
            return self.ident(piece)
        if _TIMED.fullmatch(piece):
            # The time inside an id, behind its kind, tells the order.
            return piece[: 4 + _TIME_DIGITS] + self._replaced(piece[4 + _TIME_DIGITS :])
        end = cast("re.Match[bytes]", _LETTERS.match(piece)).end()
        if end < len(piece):
            if piece.startswith(b"data:"):
                return scrub_data_url(piece, self)
            return self[piece[:end]] + self._text(piece[end:])
        parts = _WORD.split(piece)
        parts[1::2] = map(self._replaced, parts[1::2])
        return b"".join(parts)

    def ident(self, name: bytes) -> bytes:
        """Return another id in hexadecimal digits, with or without hyphens.

        The time inside a version 7 UUID stays, of others the first digits, so that their order
        stays too.
        """
        digits = name.replace(b"-", b"").lower()
        is_uuid = len(digits) == 32
        timed = is_uuid and digits[12:13] == b"7" and digits[16:17] in (b"8", b"9", b"a", b"b")
        kept = _TIME_DIGITS if timed else _KEPT_DIGITS
        state = blake2b(b"id", key=self._key)
        made = bytearray()
        for at, digit in enumerate(digits):
            shift = 1 + state.digest()[0] % (len(HEX) - 1)
            state.update(digits[at : at + 1])
            stays = at < kept or (is_uuid and at in (12, 16))
            made.append(digit if stays else HEX[(HEX.index(digit) + shift) % len(HEX)])
        for at, byte in enumerate(name):
            if byte == ord("-"):
                made.insert(at, byte)
        return bytes(made)

    def blob(self, data: bytes, size: int) -> bytes:
        """Return `size` digits that tell `data` from any other content, and nothing else of it."""
        from hashlib import shake_128

        mark = blake2b(data, key=self._key).digest()
        return shake_128(mark).digest(size).translate(_DIGITS)

    def _replaced(self, run: bytes) -> bytes:
        state = blake2b(key=self._key)
        made = bytearray(run)
        before, digest = 0, b""
        for at, byte in enumerate(run):
            place = 0 if at < DEEP else (at - DEEP) % BLOCK
            if at <= DEEP or place == 0:
                digest = state.digest()
                state.update(run[at : at + (1 if at < DEEP else BLOCK)])
            source, target = _alphabets(byte, before)
            before = byte
            if not source:
                continue
            symbol = source.index(byte)
            if source is target:
                symbol += 1 + digest[place] % (len(source) - 1)
            elif at < DEEP:
                symbol = sorted(range(len(source)), key=digest.__getitem__)[symbol]
            else:
                symbol += digest[place]
            made[at] = target[symbol % len(source)]
        return bytes(made)


def _blocks(data: bytes) -> Iterator[bytes]:
    at = 0
    while len(data) - at > LARGE:
        end = data.rfind(b"\n", at, at + LARGE) + 1 or data.find(b"\n", at) + 1 or len(data)
        yield data[at:end]
        at = end
    yield data[at:]


_DIGITS = bytes(ord("0") + byte % 10 for byte in range(256))


def _alphabets(byte: int, before: int) -> tuple[bytes, bytes]:
    """Return among which bytes one is, and among which it becomes another; empty if it stays."""
    if byte >= 0xC0 or byte == ord("0"):
        return b"", b""
    if byte >= 0x80:
        more = SECOND.get(before, REST)
        return more, more
    if byte <= ord("9"):
        return NINE, NINE
    after_capital = ord("A") <= before <= ord("Z")
    if byte <= ord("Z"):
        return UPPER, QUIET if after_capital else LOUD
    return LOWER, LOUD if after_capital else QUIET
