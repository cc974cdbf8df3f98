"""vLLM: prompts and token ids in the server's own log."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import xxhash

from agentkv_trace.ingest import reading
from agentkv_trace.notes import Notes
from agentkv_trace.trace.call import LoggedCall, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_LINE = re.compile(
    rb"(?:Received request (?P<old>\S+?): prompt: |Request (?P<new>\S+?) details: prompt: )"
)
_BARE = re.compile(rb"Received request (?P<id>\S+?): params: SamplingParams\(")
"""What newer servers log of a request unless they are told to log all."""
_OUTPUT = re.compile(rb"Generated response (?P<id>\S+?)(?: \([^)]*\))?: output: ")
_REPR = re.compile(rb"""'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*"|None""", re.DOTALL)
_ESCAPE = re.compile(rb"\\(?:x..|u.{4}|U.{8}|.)", re.DOTALL)
_IDS = re.compile(rb"prompt_token_ids: \[([0-9, ]*)\]")
_OUTPUT_IDS = re.compile(rb"output_token_ids: \[([0-9, ]*)\]")
_STAMP = re.compile(rb"(?:(\d{4})-)?(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{3}))?")
_YEAR = 2000
"""The server writes none; this one has all days of a year."""
_DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"
_UNCUT = 2
"""As many prompts of the greatest length there is were cut to it by `--max-log-len`."""
SOURCE = "gateways"
NO_PROMPTS = "no prompt is logged; vLLM needs VLLM_LOGGING_LEVEL=DEBUG"


@dataclass(slots=True)
class _Asked:
    """A request, its prompt as bytes: of token ids four for each."""

    name: str
    prompt: bytes
    tokens: int | None
    at_us: int
    cut: bool


def looks_like(head: bytes) -> bool:
    """Tell from the first bytes of a file whether requests are logged in it."""
    return _LINE.search(head) is not None or _BARE.search(head) is not None


def read(
    path: Path, notes: Notes, on_bytes: Callable[[int], None] | None = None
) -> Iterator[LoggedCall]:
    """Yield the calls of a server's log in its order. Raises OSError where it cannot be read."""
    limits, has_outputs = _looked_through(path)
    waiting: dict[str, _Asked] = {}
    bare: set[str] = set()
    told: set[str] = set()
    sessions = _Sessions()
    clock = _Clock()
    # Servers' logs have one name, and begin at different times.
    start = next(reading.chunks(path, Notes()), b"")
    file = xxhash.xxh3_64_hexdigest(path.name.encode() + start)[:8]
    count = reading.counter(notes, on_bytes)
    for number, line in reading.lines(path, notes, count):
        notes.count("lines")
        at_us = clock.see(line)
        if (found := _LINE.search(line)) is not None:
            asked = _asked(line, found, at_us, limits)
            if asked is None:
                notes.skip("request without a prompt", str(path), number)
                continue
            if asked.name in waiting:
                yield _call(waiting.pop(asked.name), b"", None, None, sessions, file, notes)
            # What else is logged of a request comes before or after, by version.
            bare.discard(asked.name)
            told.add(asked.name)
            if has_outputs:
                waiting[asked.name] = asked
            else:
                yield _call(asked, b"", None, None, sessions, file, notes)
        elif (found := _BARE.search(line)) is not None:
            name = found["id"].decode(errors="replace")
            if name not in told:
                bare.add(name)
        elif (found := _OUTPUT.search(line)) is not None:
            name = found["id"].decode(errors="replace")
            if name in waiting:
                output, tokens = _output(line, found.end())
                asked = waiting.pop(name)
                yield _call(asked, output, tokens, at_us, sessions, file, notes)
    notes.count("requests without a prompt", len(bare))
    if bare and not told:
        notes.skip(NO_PROMPTS, str(path))
    for asked in waiting.values():
        yield _call(asked, b"", None, None, sessions, file, notes)


def _looked_through(path: Path) -> tuple[tuple[int, int], bool]:
    """Return the lengths of text and of token ids to which a log cuts them, and if it has outputs.

    A length is -1 where nothing is cut.
    """
    texts: Counter[int] = Counter()
    ids: Counter[int] = Counter()
    has_outputs = False
    for _, line in reading.lines(path, Notes()):
        has_outputs = has_outputs or _OUTPUT.search(line) is not None
        if (found := _LINE.search(line)) is not None:
            length, end = _length_at(line, found.end())
            texts[length] += 1
            listed = _IDS.search(line, end)
            ids[listed[1].count(b",") + 1 if listed is not None and listed[1] else 0] += 1
    return (_limit(texts), _limit(ids)), has_outputs


def _limit(lengths: Counter[int]) -> int:
    longest = max(lengths, default=0)
    return longest if longest and lengths[longest] >= _UNCUT else -1


def _asked(
    line: bytes, found: re.Match[bytes], at_us: int, limits: tuple[int, int]
) -> _Asked | None:
    name = (found["old"] or found["new"]).decode(errors="replace")
    length, end = _length_at(line, found.end())
    spelled, count = _ids(_IDS, line, end)
    if count:
        return _Asked(name, spelled, count, at_us, count == limits[1])
    words, _ = _text_at(line, found.end())
    if not words:
        return None
    return _Asked(name, words.encode(errors="replace"), None, at_us, length == limits[0])


def _text_at(line: bytes, at: int) -> tuple[str | None, int]:
    """Return the text written at a place as Python writes it, None without one, and its end."""
    found = _REPR.match(line, at)
    if found is None:
        return None, at
    if found[0] == b"None":
        return None, found.end()
    try:
        value = ast.literal_eval(found[0].decode(errors="replace"))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = None
    return (value if isinstance(value, str) else None), found.end()


def _length_at(line: bytes, at: int) -> tuple[int, int]:
    """Return the length in characters of the text written at a place, and its end."""
    found = _REPR.match(line, at)
    if found is None or found[0] == b"None":
        return 0, at if found is None else found.end()
    return len(_ESCAPE.sub(b"x", found[0]).decode(errors="replace")) - 2, found.end()


def _ids(pattern: re.Pattern[bytes], line: bytes, at: int) -> tuple[bytes, int]:
    """Return the token ids behind a place as text, and how many they are.

    Each is four bytes, so that bytes per token are known to be four. A text before the place may
    hold anything.
    """
    found = pattern.search(line, at)
    if found is None or not found[1].strip():
        return b"", 0
    import numpy as np

    try:
        ids = np.array(msgspec.json.decode(b"[" + found[1] + b"]", type=list[int]), dtype=np.int64)
    except (msgspec.DecodeError, OverflowError):
        return b"", 0
    digits = np.frombuffer(_DIGITS, dtype=np.uint8)
    places = ids[:, None] >> np.array([18, 12, 6, 0])
    return digits[places & (len(_DIGITS) - 1)].tobytes(), len(ids)


def _output(line: bytes, at: int) -> tuple[bytes, int | None]:
    _, end = _length_at(line, at)
    spelled, count = _ids(_OUTPUT_IDS, line, end)
    if count:
        return spelled, count
    words, _ = _text_at(line, at)
    return (words or "").encode(errors="replace"), None


class _Clock:
    """Times of lines, which have no year: each month before the last one begins another."""

    def __init__(self) -> None:
        self._year = _YEAR
        self._month = 0
        self._last_us = 0

    def see(self, line: bytes) -> int:
        """Return a line's time in UTC microseconds; that of the line before where it has none."""
        found = _STAMP.search(line[:80])
        if found is None:
            return self._last_us
        year, month, *rest = (int(each or 0) for each in found.groups())
        if not year:
            self._year += month < self._month
            self._month, year = month, self._year
        day, hour, minute, second, millis = rest
        try:
            time = datetime(year, month, day, hour, minute, second, millis * 1000, UTC)
        except ValueError:
            return self._last_us
        self._last_us = round(time.timestamp() * 1e6)
        return self._last_us


class _Sessions:
    """Whose prompt goes on from whose: by the longest earlier prompt that it begins with."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, int], str] = {}
        self._count = 0

    def take(self, prompt: bytes, file: str) -> tuple[str, bool]:
        """Return the session of a prompt, and whether it goes on with one."""
        mark, at, name = xxhash.xxh3_64(), 0, None
        end = None
        for length in sorted({length for length, _ in self._ends if length <= len(prompt)}):
            mark.update(prompt[at:length])
            at = length
            if (length, mark.intdigest()) in self._ends:
                end = (length, mark.intdigest())
        if end is not None:
            name = self._ends.pop(end)
        else:
            self._count += 1
        goes_on = name is not None
        name = name or f"vllm-{file}-{self._count}"
        self._ends[len(prompt), xxhash.xxh3_64_intdigest(prompt)] = name
        return name, goes_on


def _call(
    asked: _Asked,
    output: bytes,
    output_tokens: int | None,
    end_us: int | None,
    sessions: _Sessions,
    file: str,
    notes: Notes,
) -> LoggedCall:
    session, _ = sessions.take(asked.prompt, file)
    prompt = Node.head("vllm").text(asked.prompt)
    if asked.cut:
        notes.count("prompts that the log cut")
    notes.count("calls")
    return LoggedCall(
        session=session,
        source=SOURCE,
        agent="vllm",
        prompt=prompt,
        path=prompt.text(output) if output else prompt,
        start_us=asked.at_us,
        end_us=max(asked.at_us, end_us or asked.at_us),
        time_source="estimated" if asked.at_us else "order_only",
        output_tokens=output_tokens,
        logged_prompt_tokens=asked.tokens,
        usage_source="none" if asked.tokens is None else "logged",
        fidelity="output_reformatted" if asked.cut else "exact",
    )
