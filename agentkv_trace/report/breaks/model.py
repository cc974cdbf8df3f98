"""What `explain` found; the JSON output has exactly these fields (`explain.schema.json`)."""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA = "agentkv-trace/explain/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostBasis:
    """The GPU that `cost_s` is on; seconds of prefill at `mfu` of its peak."""

    gpu: str
    name: str
    model: str
    tp: int
    mfu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRef:
    """A call, by its session and its index there."""

    session: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseRow:
    """All breaks of one class and cause; `examples` are those that lost most."""

    break_class: str
    cause: str | None
    words: str
    fix: str | None
    breaks: int
    sessions: int
    lost_tokens: int
    lost_share: float
    cost_s: tuple[float, ...]
    examples: tuple[CallRef, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakRow:
    """One call that reused less than it could; positions and sizes in tokens.

    The prefixes part at `token`, in `chunk`, within the `place` of the prompt (empty without a
    layout). `waited_s` is the time since the session's last call ended.
    """

    session: str
    index: int
    agent: str
    model: str | None
    before: CallRef
    break_class: str
    cause: str | None
    words: str
    token: int
    chunk: int
    place: str
    lost_tokens: int
    reused_tokens: int
    waited_s: float
    cost_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The lost reuse of a trace: the same input gives the same result, no clock and no path.

    `reused_tokens` are what prompts share with earlier calls, in a cache without limit; `intact`
    are resumed calls whose prompt goes on unbroken. `breaks` may be the largest ones only, of
    `broken_calls`.
    """

    schema: str
    version: str
    layout: bool
    chunk_tokens: int
    calls: int
    sessions: int
    prompt_tokens: int
    reused_tokens: int
    broken_calls: int
    lost_tokens: int
    lost_share: float
    gpus: tuple[CostBasis, ...]
    causes: tuple[CauseRow, ...]
    breaks: tuple[BreakRow, ...]
    intact: tuple[CallRef, ...]
