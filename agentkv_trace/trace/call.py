"""What an ingester hands over: calls whose prompts are paths in a tree of nodes."""

from __future__ import annotations

from dataclasses import dataclass

TIME_SOURCES = ("logged", "estimated", "order_only")
USAGE_SOURCES = ("logged", "estimated", "none")
KINDS = ("turn", "fold", "resume", "fork", "subagent", "compaction", "title", "retry")
FIDELITIES = (
    "exact",
    "head_estimated",
    "reasoning_opaque",
    "output_reformatted",
    "compaction_estimated",
    "usage_only",
)
"""From strongest to weakest; a call carries the weakest that applies."""


def weakest(*fidelities: str) -> str:
    """Return the weakest of some fidelities."""
    return max(fidelities, key=FIDELITIES.index)


class Node:
    """One piece of a prompt; a prompt is the chain of pieces from the head to it.

    Ingesters extend prompts by making children, so that a call costs only what it adds
    and a rewound prompt simply goes on from an earlier node. Four kinds:

    * `Node.head(key)`: text that is in the prompt but in no log (tool schemas, system
      prompt). It is sized from usage and shared by all calls with an equal key.
    * `node.text(data)`: what the model reads, as UTF-8 bytes (an item's JSON without its id).
    * `node.opaque(identity, tokens)`: content of known length whose text is not there or
      not worth reading (images); equal identities are equal content.
    * `node.reasoning(identity, tokens)`: reasoning that is resent unreadable; `tokens` is what
      usage said when it was made, and how much of that later prompts hold is fitted.

    The builder takes the content of a node away once it has stored it (`size` stays), so
    memory does not grow with the log.
    """

    __slots__ = ("content", "fitted", "index", "parent", "size", "tokens")

    def __init__(
        self, parent: Node | None, content: bytes, tokens: int | None, *, fitted: bool = False
    ) -> None:
        self.parent = parent
        self.content = content
        self.size = len(content)
        self.tokens = tokens
        self.fitted = fitted
        self.index = -1

    @staticmethod
    def head(*key: str | None, typical_tokens: int | None = None) -> Node:
        """Return a hidden head; `key` is all that decides its text.

        `typical_tokens` is its length where no usage sizes it (none: as good as empty).
        """
        return Node(None, "\x1f".join(part or "" for part in key).encode(), typical_tokens)

    def text(self, data: bytes) -> Node:
        """Return the node that follows this one with `data`."""
        return Node(self, data, None)

    def opaque(self, identity: bytes, tokens: int) -> Node:
        """Return the node that follows this one with `tokens` tokens of unseen content."""
        return Node(self, identity, max(tokens, 0))

    def reasoning(self, identity: bytes, tokens: int) -> Node:
        """Return the node that follows this one with reasoning of `tokens` tokens of usage."""
        return Node(self, identity, max(tokens, 0), fitted=True)


@dataclass(slots=True)
class LoggedCall:
    """One call as an ingester found it.

    `prompt` ends the prompt; `path` ends prompt plus output as later calls resend it, or as
    logged where no later call does (`path` is `prompt` or one of its descendants).
    Times are UTC microseconds. `output_tokens` of None is measured from the nodes.
    `logged_prompt_tokens` includes cached and cache-written tokens.
    """

    session: str
    source: str
    agent: str
    prompt: Node
    path: Node
    start_us: int
    end_us: int
    time_source: str
    model: str | None = None
    parent_session: str | None = None
    output_tokens: int | None = None
    logged_prompt_tokens: int | None = None
    logged_cached_tokens: int | None = None
    usage_source: str = "none"
    kind: str = "turn"
    fidelity: str = "exact"
