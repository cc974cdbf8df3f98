"""One call while its items and its usage come in, in the order that the version has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from agentkv_trace.ingest.codex.history import History, chained
from agentkv_trace.ingest.codex.items import FOLDED, Entry, digest, message, words_of

if TYPE_CHECKING:
    from agentkv_trace.ingest.codex.records import Usage
    from agentkv_trace.notes import Notes
    from agentkv_trace.trace.call import LoggedCall, Node


class Found(NamedTuple):
    """A call and the provider's id of its response, where the log has one."""

    call: LoggedCall
    response_id: str | None


@dataclass(slots=True)
class Pending:
    """A call whose items or usage may still come."""

    size: int
    prompt: Node | None
    started: tuple[int | None, bool]
    fidelity: str
    copied: bool
    model: str | None
    rewritten: bool = False
    resumed: bool = False
    retried: bool = False
    sequence: int | None = None
    outputs: list[Entry] = field(default_factory=list)
    usage: Usage | None = None
    usage_first: bool = False
    response_id: str | None = None
    interrupted: bool = False
    answered: bool = False
    new_batch: bool = False
    summarises: bool = False

    @property
    def wants_usage(self) -> bool:
        """Whether a usage that comes now is this call's."""
        cut = self.interrupted and self.sequence is None
        return self.usage is None and bool(self.outputs) and not cut

    @property
    def cut_off(self) -> bool:
        """Whether its items are all that came of it: no usage, and nothing that answers it."""
        return self.usage is None and not (self.interrupted or self.answered)


def continues(pending: Pending, sequence: int | None, batches: bool) -> bool:
    """Tell whether the next model item belongs to the same response."""
    if sequence is not None and pending.sequence is not None:
        return pending.usage is None and pending.sequence == sequence
    if pending.interrupted or (pending.usage is not None and not pending.usage_first):
        return False
    # Where a response is logged in one batch, answers stand between its calls.
    in_batch = pending.usage_first or (batches and not pending.new_batch)
    return in_batch or not pending.answered


def is_summary(pending: Pending, summary: str) -> bool:
    """Tell whether the call before a `compacted` record is the one that wrote the summary."""
    if pending.summarises or any(entry.type in FOLDED for entry in pending.outputs):
        return True
    if pending.interrupted or pending.answered:
        return False
    if not pending.outputs:
        return pending.usage is not None
    if any(entry.type not in ("reasoning", "message") for entry in pending.outputs):
        return False
    words = "".join(_words(entry) for entry in pending.outputs).strip()
    return bool(words) and words in summary


def _words(entry: Entry) -> str:
    piece = entry.pieces[0]
    return words_of(msgspec.json.decode(piece)) if isinstance(piece, bytes) else ""


def summary_path(pending: Pending, prompt: Node, summary: str) -> Node:
    """Return the node that ends a compaction's prompt and the summary it wrote."""
    if pending.outputs:
        return chained(prompt, pending.outputs)
    data = msgspec.json.encode(message("assistant", summary))
    if pending.usage is not None:
        return prompt.opaque(b"summary\0" + digest(data), pending.usage.output)
    return prompt.text(data) if summary else prompt


def size_reasoning(entries: list[Entry], usage: Usage | None) -> None:
    """Share a response's reasoning tokens among its reasoning items."""
    total = usage.reasoning if usage is not None else None
    parts = [part for entry in entries if (part := entry.reasoning) is not None]
    if total is None or not parts:
        return
    share, more = divmod(total, len(parts))
    for at, part in enumerate(parts):
        part.tokens = share + (at < more)


def path_of(pending: Pending, history: History, root: Node, prompt: Node) -> Node:
    """Return the node that ends prompt and output, in the history's own chain where it can be."""
    end = pending.size
    for output in pending.outputs:
        if end >= len(history) or history.entries[end] is not output:
            break
        end += 1
    node = history.node_at(end, root) if end > pending.size else prompt
    return chained(node, pending.outputs[end - pending.size :])


def set_usage(call: LoggedCall, usage: Usage | None, notes: Notes) -> None:
    """Give a call what the provider said it used; cached tokens are at most the prompt's."""
    if usage is None:
        return
    if usage.cached > usage.prompt:
        notes.count("calls with more cached than prompt tokens")
    call.output_tokens = usage.output
    call.logged_prompt_tokens = usage.prompt
    call.logged_cached_tokens = min(usage.cached, usage.prompt)
    call.usage_source = "logged"
