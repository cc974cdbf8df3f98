"""A thread's calls where both a rollout and a trace bundle hold them: each once, at its best."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentkv_trace.ingest.codex.pending import Found
    from agentkv_trace.trace.call import Node


def merged(rollout: Iterator[Found], traced: list[Found]) -> Iterator[Found]:
    """Yield a thread's calls in order, each once.

    A request that a bundle holds has its time and prompt from there. Where the prompt rebuilt
    from the rollout agrees with it piece by piece, those pieces are kept, so that the thread's
    other calls go on from them. What a call does to its session only the rollout tells.
    """
    waiting = list(traced)
    agreed: dict[Node, Node] = {}
    for logged in rollout:
        at = next((at for at, one in enumerate(waiting) if _same_call(one, logged)), None)
        if at is None:
            yield logged
            continue
        found = waiting.pop(at)
        found.call.kind = logged.call.kind
        if _agree(logged.call.prompt, found.call.prompt, agreed):
            # Whoever takes the call may empty its nodes, so what follows is compared now.
            _agree(logged.call.path, found.call.path, agreed)
            found.call.prompt, found.call.path = logged.call.prompt, logged.call.path
        yield found
    yield from waiting


def _same_call(traced: Found, logged: Found) -> bool:
    if traced.response_id is not None and logged.response_id is not None:
        return traced.response_id == logged.response_id
    one, other = traced.call, logged.call
    return one.logged_prompt_tokens is not None and (
        one.logged_prompt_tokens,
        one.logged_cached_tokens,
        one.output_tokens,
    ) == (other.logged_prompt_tokens, other.logged_cached_tokens, other.output_tokens)


def _agree(logged: Node | None, traced: Node | None, agreed: dict[Node, Node]) -> bool:
    """Tell whether two prompts have the same pieces, by length, and remember them if so.

    Lengths, not bytes: names may have been replaced in the plain log and not in the payloads.
    A piece that was shortened or rewritten as it was sent differs in length.
    """
    new: dict[Node, Node] = {}
    while logged is not None and traced is not None and agreed.get(logged) is not traced:
        if logged.size != traced.size or logged.tokens != traced.tokens:
            return False
        new[logged] = traced
        logged, traced = logged.parent, traced.parent
    if (logged is None) != (traced is None):
        return False
    agreed.update(new)
    return True
