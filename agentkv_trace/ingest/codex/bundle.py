"""Trace bundles: the exact requests of a thread, with their true start and end.

A bundle is a folder with `manifest.json`, `trace.jsonl` (events) and `payloads/NNNNNN.zst`
(what the events refer to, one record after the other: identifier length as 2 bytes, payload
length as 8 bytes, both little-endian, then identifier and payload).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from agentkv_trace.ingest import reading
from agentkv_trace.ingest.codex.heads import Heads, base_key
from agentkv_trace.ingest.codex.history import chained
from agentkv_trace.ingest.codex.items import entry_of, sent, words_of
from agentkv_trace.ingest.codex.pending import Found, set_usage, size_reasoning
from agentkv_trace.ingest.codex.records import Meta, Record, meta_of, table, text, usage_of, whole
from agentkv_trace.trace.call import LoggedCall, Node, weakest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentkv_trace.ingest.codex.files import Files
    from agentkv_trace.notes import Notes

MAX_MANIFEST = 1 << 20


@dataclass(slots=True)
class _Request:
    """One inference, as its events tell of it."""

    thread: str
    model: str | None
    start_us: int
    end_us: int
    response_id: str | None = None
    call: LoggedCall | None = None


class _Step(NamedTuple):
    """One item of a thread's last prompt, and the node that ends it."""

    data: bytes
    node: Node
    fidelity: str


class _Prompts:
    """The prompts of one thread: each goes on from the last as far as they are equal."""

    def __init__(self, meta: Meta, turn: Record) -> None:
        self.meta = meta
        self.heads = Heads(meta)
        self.heads.base_text = None
        self.heads.see_turn_context(turn)
        self._steps: list[_Step] = []
        self._root: Node | None = None
        self._reasoning: dict[bytes, int] = {}

    def base_of(self, body: Record) -> str | None:
        """Return the base instructions that a request holds where the log too has some."""
        if self.meta.base_text is None or self.heads.tools_logged:
            return None
        first = next(iter(_items(body.get("input"))), {})
        alone = text(body.get("instructions"))
        return alone or (words_of(first) if first.get("role") == "developer" else None)

    def add(self, body: Record, model: str | None, kind: str) -> tuple[Node, str]:
        """Return the node that ends a request's prompt, and its fidelity."""
        items = _items(body.get("input"))
        for item in items[:2]:
            if (entry := entry_of(item)) is not None:
                self.heads.see_item(entry)
        root = self.heads.root(model, kind)
        if root is not self._root:
            self._root, self._steps = root, []
        if (instructions := text(body.get("instructions"))) is not None:
            items = [{"instructions": instructions}, *items]
        datas = [msgspec.json.encode(sent(item)) for item in items]
        same = 0
        for step, data in zip(self._steps, datas, strict=False):
            if step.data != data:
                break
            same += 1
        del self._steps[same:]
        for data, item in zip(datas[same:], items[same:], strict=True):
            last = self._steps[-1] if self._steps else _Step(b"", root, "exact")
            node, fidelity = self._next(last.node, item, data)
            self._steps.append(_Step(data, node, weakest(last.fidelity, fidelity)))
        last = self._steps[-1] if self._steps else _Step(b"", root, "exact")
        return last.node, last.fidelity

    def _next(self, node: Node, item: Record, data: bytes) -> tuple[Node, str]:
        if "instructions" in item:
            return node.text(item["instructions"].encode()), "exact"
        entry = entry_of(item)
        if entry is None:
            return node.text(data), "exact"
        if (part := entry.reasoning) is not None:
            part.tokens = self._reasoning.get(part.identity, part.tokens)
        return chained(node, [entry]), entry.fidelity

    def answer(self, node: Node, response: Record) -> Node:
        """Return the node that ends a response's items behind a prompt."""
        items = _items(response.get("output_items"))
        entries = [entry_of(item) for item in items]
        known = [entry for entry in entries if entry is not None]
        size_reasoning(known, usage_of(response.get("token_usage")))
        for item, entry in zip(items, entries, strict=True):
            if entry is None:
                continue
            if (part := entry.reasoning) is not None:
                self._reasoning[part.identity] = part.tokens
            node = chained(node, [entry])
            # The next request is expected to go on from here.
            last = self._steps[-1].fidelity if self._steps else "exact"
            data = msgspec.json.encode(sent(item))
            self._steps.append(_Step(data, node, weakest(last, entry.fidelity)))
        return node


def read(
    manifest: Path, files: Files, notes: Notes, on_bytes: Callable[[int], None] | None = None
) -> Iterator[Found]:
    """Yield the answered requests of a bundle in order, and note what they tell in `files`.

    Raises OSError where a file of it cannot be read.
    """
    if manifest.stat().st_size > MAX_MANIFEST or "trace_id" not in _json(manifest.read_bytes()):
        notes.skip("no manifest of a trace bundle", str(manifest))
        return
    # Names inside a log are not followed; these are the ones that are always written.
    folder = manifest.parent
    requests, wanted = _events(folder / "trace.jsonl", notes, on_bytes)
    described: dict[str, Record] = {}
    prompts: dict[str, _Prompts] = {}
    answered = 0
    for shard in sorted((folder / "payloads").glob("*.zst")):
        for name, payload in _payloads(shard, wanted, notes, on_bytes):
            part, key = wanted[name]
            body = _json(payload)
            if part == "thread":
                described[key] = body
                continue
            request = requests[key]
            if request.thread not in prompts:
                meta = files.meta_of(request.thread) or _meta(
                    request.thread, described.get(request.thread, {}), manifest
                )
                prompts[request.thread] = _Prompts(meta, files.first_turn(request.thread))
            line = prompts[request.thread]
            if part == "request":
                request.call = _asked(request, body, line)
                if (base := line.base_of(body)) is not None:
                    files.sent_bases[base_key(line.meta)] = base
            elif request.call is not None:
                answered += 1
                yield _answered(request, request.call, body, line, notes)
                request.call = None
    if unanswered := len(requests) - answered:
        notes.count("requests without a response", unanswered)


def _asked(request: _Request, body: Record, line: _Prompts) -> LoggedCall:
    meta = line.meta
    kind = "compaction" if _is_compaction(body) else "turn"
    model = request.model or text(body.get("model"))
    prompt, fidelity = line.add(body, model, kind)
    return LoggedCall(
        session=request.thread,
        source="codex",
        agent=meta.agent,
        prompt=prompt,
        path=prompt,
        start_us=request.start_us,
        end_us=max(request.start_us, request.end_us),
        time_source="logged",
        model=model,
        parent_session=meta.parent or meta.forked_from,
        kind=kind,
        fidelity=fidelity,
    )


def _answered(
    request: _Request, call: LoggedCall, response: Record, line: _Prompts, notes: Notes
) -> Found:
    call.path = line.answer(call.prompt, response)
    set_usage(call, usage_of(response.get("token_usage")), notes)
    return Found(call, text(response.get("response_id")) or request.response_id)


def _is_compaction(body: Record) -> bool:
    about = _json(
        (text(table(body.get("client_metadata")).get("x-codex-turn-metadata")) or "{}").encode()
    )
    kind = text(about.get("request_kind"))
    return body.get("tools") == [] if kind is None else "compact" in kind


def _meta(thread: str, described: Record, manifest: Path) -> Meta:
    return meta_of(
        {
            "id": thread,
            "source": described.get("session_source"),
            "agent_role": described.get("agent_role"),
            "parent_thread_id": described.get("parent_thread_id"),
        },
        manifest,
    )


def _events(
    path: Path, notes: Notes, on_bytes: Callable[[int], None] | None
) -> tuple[dict[str, _Request], dict[str, tuple[str, str]]]:
    """Return the requests by their id, and for each payload that is needed its part and owner."""
    requests: dict[str, _Request] = {}
    wanted: dict[str, tuple[str, str]] = {}
    for _, record in reading.objects(path, notes, (b'{"schema_version":',), on_bytes):
        event = table(record.get("payload"))
        kind = text(event.get("type"))
        at = (whole(record.get("wall_time_unix_ms")) or 0) * 1000
        key = text(event.get("inference_call_id"))
        thread = text(event.get("thread_id")) or text(record.get("thread_id"))
        if kind == "thread_started" and thread is not None:
            _want(wanted, event.get("metadata_payload"), "thread", thread)
        elif kind == "inference_started" and key is not None and thread is not None:
            requests[key] = _Request(thread, text(event.get("model")), at, at)
            _want(wanted, event.get("request_payload"), "request", key)
        elif kind == "inference_completed" and key is not None and key in requests:
            requests[key].end_us = at
            requests[key].response_id = text(event.get("response_id"))
            _want(wanted, event.get("response_payload"), "response", key)
    return requests, wanted


def _want(wanted: dict[str, tuple[str, str]], reference: object, part: str, owner: str) -> None:
    if (name := text(table(reference).get("raw_payload_id"))) is not None:
        wanted[name] = (part, owner)


def _payloads(
    path: Path,
    wanted: dict[str, tuple[str, str]],
    notes: Notes,
    on_bytes: Callable[[int], None] | None,
) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the wanted payloads of a file; others are not held."""
    count = reading.counter(notes, on_bytes)
    source = reading.chunks(path, notes, count)
    held = bytearray()
    while _fill(held, source, 10):
        name_size = int.from_bytes(held[:2], "little")
        size = int.from_bytes(held[2:10], "little")
        if not _fill(held, source, 10 + name_size):
            break
        name = bytes(held[10 : 10 + name_size]).decode(errors="replace")
        del held[: 10 + name_size]
        if name in wanted and size <= reading.MAX_LINE:
            if not _fill(held, source, size):
                break
            yield name, bytes(held[:size])
            del held[:size]
            continue
        if name in wanted:
            notes.skip("payload too long", str(path))
        while size > len(held) and (data := next(source, b"")):
            size -= len(held)
            held[:] = data
        del held[:size]
    if held:
        notes.skip("payload file breaks off", str(path))


def _fill(held: bytearray, source: Iterator[bytes], size: int) -> bool:
    while len(held) < size:
        data = next(source, b"")
        if not data:
            return False
        held += data
    return True


def _items(value: object) -> list[Record]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _json(data: bytes) -> Record:
    try:
        return table(msgspec.json.decode(data))
    except (msgspec.DecodeError, RecursionError):
        return {}
