"""vLLM: prompts and token ids in the server's own log."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

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
_REPR = re.compile(rb"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|None""", re.DOTALL)
_IDS = re.compile(rb"prompt_token_ids: \[([0-9, ]*)\]")
_OUTPUT_IDS = re.compile(rb"output_token_ids: \[([0-9, ]*)\]")
_STAMP = re.compile(rb"(?:(\d{4})-)?(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{3}))?")
_YEAR = 2000
"""The server writes none; this one has all days of a year."""
_DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"
_UNCUT = 2
"""As many prompts of the greatest length there is were cut to it by `--max-log-len`."""
SOURCE = "gateways"


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
    limits = _limits(path)
    waiting: dict[str, _Asked] = {}
    bare: set[str] = set()
    sessions = _Sessions()
    clock = _Clock()
    file = xxhash.xxh3_64_hexdigest(path.name.encode())[:8]

    def count(amount: int) -> None:
        notes.count("bytes", amount)
        if on_bytes is not None:
            on_bytes(amount)

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
            waiting[asked.name] = asked
            bare.discard(asked.name)
        elif (found := _BARE.search(line)) is not None:
            bare.add(found["id"].decode(errors="replace"))
        elif (found := _OUTPUT.search(line)) is not None:
            name = found["id"].decode(errors="replace")
            if name in waiting:
                output, tokens = _output(line, found.end())
                asked = waiting.pop(name)
                yield _call(asked, output, tokens, at_us, sessions, file, notes)
    notes.count("requests without a prompt", len(bare))
    for asked in waiting.values():
        yield _call(asked, b"", None, None, sessions, file, notes)


def _limits(path: Path) -> tuple[int, int]:
    """Return the lengths of text and of token ids to which the log cuts them; -1 for none."""
    texts: Counter[int] = Counter()
    ids: Counter[int] = Counter()
    for _, line in reading.lines(path, Notes()):
        if (found := _LINE.search(line)) is not None:
            words, end = _text_at(line, found.end())
            texts[len(words or "")] += 1
            ids[len(_ids(_IDS, line, end))] += 1
    return _limit(texts), _limit(ids)


def _limit(lengths: Counter[int]) -> int:
    longest = max(lengths, default=0)
    return longest if longest and lengths[longest] >= _UNCUT else -1


def _asked(
    line: bytes, found: re.Match[bytes], at_us: int, limits: tuple[int, int]
) -> _Asked | None:
    name = (found["old"] or found["new"]).decode(errors="replace")
    words, end = _text_at(line, found.end())
    if ids := _ids(_IDS, line, end):
        return _Asked(name, _spelled(ids), len(ids), at_us, len(ids) == limits[1])
    if not words:
        return None
    return _Asked(name, words.encode(errors="replace"), None, at_us, len(words) == limits[0])


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


def _ids(pattern: re.Pattern[bytes], line: bytes, at: int) -> list[int]:
    """Return the token ids behind a place; a text before it may hold anything."""
    found = pattern.search(line, at)
    return [int(each) for each in found[1].split(b",") if each.strip()] if found else []


def _spelled(ids: list[int]) -> bytes:
    """Return token ids as text, four bytes each, so that bytes per token are known to be four."""
    low = len(_DIGITS) - 1
    return bytes(_DIGITS[each >> shift & low] for each in ids for shift in (18, 12, 6, 0))


def _output(line: bytes, at: int) -> tuple[bytes, int | None]:
    words, end = _text_at(line, at)
    if ids := _ids(_OUTPUT_IDS, line, end):
        return _spelled(ids), len(ids)
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
