"""The classes of breaks and the causes that a user can fix: names, words and remedies."""

from __future__ import annotations

from typing import NamedTuple

CLASSES = {
    "head_changed": "head changed",
    "tools_changed": "tool set changed",
    "message_edited": "message edited",
    "history_folded": "history folded",
    "pruned": "pruned",
    "reverted": "reverted",
    "reasoning_dropped": "reasoning dropped",
    "resumed_expired": "session resumed after expiry",
    "subagent_head": "sub-agent with another head",
    "model_changed": "different model",
    "unknown": "not known without a layout",
}
"""What became of the prefix, by the name in JSON."""

HEAD_CLASSES = frozenset({"head_changed", "tools_changed"})
"""Classes that are a changed head to `max-head-change-tokens`."""


class Cause(NamedTuple):
    """A cause in words, and what to do about it."""

    words: str
    fix: str


CAUSES = {
    "date": Cause(
        "a date or time changes",
        "write the date once per session, or behind what stays the same",
    ),
    "id": Cause(
        "an id or number changes",
        "leave random ids and counters out of the prompt, or move them to its end",
    ),
    "tool_order": Cause(
        "tool definitions come in another order",
        "sort tools by name before sending them",
    ),
    "serialisation": Cause(
        "the same JSON is written with its keys in another order",
        "serialise with sorted keys, or keep the text that was sent first",
    ),
    "whitespace": Cause(
        "white space changes",
        "resend messages byte for byte",
    ),
    "growing": Cause(
        "content grows before what stays the same",
        "append news at the end of the prompt instead of rewriting an early part",
    ),
    "session_head": Cause(
        "each session has a head of its own that could be shared",
        "move what differs (place, date, ids) behind the tools and the system prompt",
    ),
    "frequent_folds": Cause(
        "the history is folded too often",
        "raise the size at which the agent compacts, or keep fewer tokens afterwards",
    ),
    "fold_request": Cause(
        "the request that folds is sent with a head of its own",
        "send it behind the same tools and system prompt",
    ),
    "inserted": Cause(
        "something is inserted before what was there",
        "append to the end of the prompt instead",
    ),
    "removed": Cause(
        "something is taken out before what stays",
        "keep earlier parts, or drop them all at once when the context is full",
    ),
    "tools_differ": Cause(
        "tools are added, removed or redefined",
        "declare all tools from the first call on",
    ),
    "resent": Cause(
        "the model's output is resent in another form",
        "resend outputs byte for byte",
    ),
}
"""Why, by the name in JSON."""
