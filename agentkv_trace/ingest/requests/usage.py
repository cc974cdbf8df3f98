"""One meaning for the token counts of all providers: the prompt includes what was cached."""

from __future__ import annotations

from typing import NamedTuple

from agentkv_trace.ingest.codex.records import Record, table, whole


class Usage(NamedTuple):
    """Tokens of one call; `prompt` includes cached and cache-written ones."""

    prompt: int
    cached: int | None
    output: int | None


def usage_of(value: object) -> Usage | None:
    """Return the usage in an object of any known provider; None where it holds no tokens."""
    fields = table(value)
    if whole(fields.get("prompt_tokens")) is not None:
        usage = _chat(fields)
    elif whole(fields.get("input_tokens")) is not None:
        usage = _input(fields)
    else:
        return None
    return usage if usage.prompt + (usage.output or 0) > 0 else None


def total_prompt(prompt: int, cached: int, written: int) -> int:
    """Return the tokens of a whole prompt, cached and cache-written ones included.

    They are part of `prompt` where they fit into it. LiteLLM once left out what was written,
    and some agents report what was read beside the prompt.
    """
    if cached > prompt:
        return prompt + cached + written
    return prompt + written if written > prompt - cached else prompt


def _chat(fields: Record) -> Usage:
    details = table(fields.get("prompt_tokens_details"))
    cached = _first(
        details.get("cached_tokens"),
        fields.get("cache_read_input_tokens"),
        fields.get("cache_read_tokens"),
        fields.get("prompt_cache_hit_tokens"),
    )
    written = _first(
        fields.get("cache_creation_input_tokens"),
        details.get("cache_creation_tokens"),
        fields.get("cache_write_tokens"),
    )
    prompt = total_prompt(whole(fields["prompt_tokens"]) or 0, cached or 0, written or 0)
    return Usage(prompt, cached, whole(fields.get("completion_tokens")))


def _input(fields: Record) -> Usage:
    prompt = whole(fields["input_tokens"]) or 0
    output = whole(fields.get("output_tokens"))
    details = fields.get("input_tokens_details")
    if isinstance(details, dict):
        return Usage(prompt, whole(details.get("cached_tokens")), output)
    read, written = (
        whole(fields.get(name))
        for name in ("cache_read_input_tokens", "cache_creation_input_tokens")
    )
    # Anthropic counts the three parts of a prompt apart.
    return Usage(prompt + (read or 0) + (written or 0), read, output)


def _first(*values: object) -> int | None:
    """Return the first count that is above zero, else zero where any is given."""
    counts = [count for value in values if (count := whole(value)) is not None]
    return next(filter(None, counts), 0) if counts else None
