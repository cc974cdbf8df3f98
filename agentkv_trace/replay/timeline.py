"""Timelines: which sessions run when, and the calls they make, as flat arrays."""

# ruff: noqa: TID253
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from agentkv_trace.errors import InputError
from agentkv_trace.replay.copies import copied_tree
from agentkv_trace.replay.sessions import GAP_MEDIAN_S, MAX_GAP_S, sessions_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from agentkv_trace.replay.sessions import Sessions
    from agentkv_trace.trace.store import Trace

Kind = Literal["closed-loop", "recorded", "open-loop"]
Order = Literal["trace", "longest", "random"]
KINDS = ("closed-loop", "recorded", "open-loop")
ORDERS = ("trace", "longest", "random")
MOST_CALLS = 20_000_000
"""Calls of a load with copies, about: more fit no memory that people have."""
_EVER = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """How the sessions of a trace become a load.

    kind: `closed-loop` lets `agents` take up one session after the other; `recorded` keeps the
        starts of the log, but no call arrives before what it waits for has ended; `open-loop` lets
        sessions begin at random, `rate` a minute.
    sessions: how many are run; more than the trace has are drawn from it with `seed`. Closed-loop,
        at least as many as agents.
    order: of the sessions: as in the trace, those with most prompt tokens first, or at random.
    max_agents: most sessions that run at a time, however many there are.
    max_gap_s: pauses are cut to it. gap_median_s: of the tool times drawn where a log has no times.
    """

    kind: Kind = "closed-loop"
    agents: int | None = None
    rate: float | None = None
    sessions: int | None = None
    order: Order = "trace"
    max_agents: int | None = None
    seed: int = 0
    max_gap_s: float = MAX_GAP_S
    gap_median_s: float = GAP_MEDIAN_S

    def check(self) -> None:
        """Raise InputError for numbers that cannot be meant."""
        if self.kind not in KINDS:
            raise InputError(f"--timeline {self.kind}: use one of {', '.join(KINDS)}")
        if self.order not in ORDERS:
            raise InputError(f"--order {self.order}: use one of {', '.join(ORDERS)}")
        for option, number in (
            ("--agents", self.agents),
            ("--sessions", self.sessions),
            ("--max-agents", self.max_agents),
        ):
            if number is not None and number < 1:
                raise InputError(f"{option} {number}: must be at least 1")
        if self.kind == "open-loop" and not (self.rate and 0 < self.rate < float("inf")):
            raise InputError("--timeline open-loop needs --rate, sessions a minute above 0")
        if not self.max_gap_s >= 0:
            raise InputError(f"--max-gap {self.max_gap_s:g}: must be 0 seconds or more")
        if self.seed < 0:
            raise InputError(f"--seed {self.seed}: must be 0 or more")
        if not self.gap_median_s > 0:
            raise InputError(f"--gap-median {self.gap_median_s:g}: must be above 0 seconds")


@dataclass(frozen=True, slots=True)
class Plan:
    """A load: the calls to replay and their tree, one entry per call or per tree row.

    call: int32[calls], the trace's row behind each; row: its row of the tree columns (`base`,
    `base_chunks`, `prompt_chunks`, `path_chunks`), which are the trace's and those of copies.
    Families are numbered in the order they are taken up; `release` in seconds. Edges are between
    replayed calls. agents: how many families run at a time.
    """

    call: NDArray[np.int32]
    row: NDArray[np.int32]
    session: NDArray[np.int32]
    family: NDArray[np.int32]
    gap: NDArray[np.float64]
    earliest: NDArray[np.float64]
    edge_from: NDArray[np.int64]
    edge_to: NDArray[np.int64]
    release: NDArray[np.float64]
    agents: int
    tree: dict[str, NDArray[np.int32]]
    notes: tuple[str, ...]


def plan(trace: Trace, timeline: Timeline) -> Plan:
    """Lay out a load. O(calls) but for sorting; the same for the same seed.

    Copies of a session share with it what sessions of the trace share with each other, and have
    the rest to themselves. Raises InputError for a timeline that cannot be meant or an empty trace.
    """
    timeline.check()
    if not len(trace):
        raise InputError("the trace has no calls to replay")
    sessions = sessions_of(
        trace,
        seed=timeline.seed,
        max_gap_s=timeline.max_gap_s,
        gap_median_s=timeline.gap_median_s,
    )
    picked, notes = _picked(trace, sessions, timeline)
    if sessions.drawn:
        notes.append(
            f"{sessions.drawn:,} calls have no times in the log: tool times drawn, lognormal with "
            f"median {timeline.gap_median_s:g} s"
        )
    if sessions.cut and timeline.kind != "recorded":
        pauses = "pause" if sessions.cut == 1 else "pauses"
        notes.append(f"{sessions.cut:,} {pauses} cut to {timeline.max_gap_s:g} s")
    return _laid_out(trace, sessions, timeline, picked, tuple(notes))


def _picked(
    trace: Trace, sessions: Sessions, timeline: Timeline
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the families to run, in order."""
    count = sessions.families
    notes: list[str] = []
    draw = np.random.default_rng([timeline.seed, 2])
    if timeline.kind == "recorded":
        return np.arange(count), notes
    wanted = timeline.sessions or count
    if timeline.kind == "closed-loop":
        wanted = max(wanted, timeline.agents or 1)
    if wanted > count and wanted / count * len(trace) > MOST_CALLS:
        option = "--sessions" if wanted == timeline.sessions else "--agents"
        raise InputError(
            f"{option} {wanted}: copies of sessions would make more than {MOST_CALLS:,} calls; "
            "give less"
        )
    picked = np.arange(min(count, wanted))
    if wanted > count:
        picked = np.concatenate([picked, draw.integers(0, count, wanted - count)])
        notes.append(
            f"{wanted - count:,} of {wanted:,} sessions are copies: the trace has {count:,}"
        )
    if timeline.order == "random":
        picked = draw.permutation(picked)
    elif timeline.order == "longest":
        work = np.bincount(sessions.family, trace.array("prompt_tokens"), count)
        picked = picked[np.argsort(-work[picked], kind="stable")]
    return picked, notes


def _laid_out(
    trace: Trace,
    sessions: Sessions,
    timeline: Timeline,
    picked: NDArray[np.int64],
    notes: tuple[str, ...],
) -> Plan:
    order = np.argsort(sessions.family, kind="stable")
    sizes = np.bincount(sessions.family, minlength=sessions.families)
    first = np.concatenate([[0], np.cumsum(sizes)])
    # Take each picked family's calls one after another.
    starts = np.concatenate([[0], np.cumsum(sizes[picked])])
    nth = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes[picked])
    call = order[np.repeat(first[picked], sizes[picked]) + nth]
    family = np.repeat(np.arange(picked.size), sizes[picked])
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size) - np.repeat(first[:-1], sizes)

    by_family = np.argsort(sessions.family[sessions.edge_to], kind="stable")
    edges = np.bincount(sessions.family[sessions.edge_to], minlength=sessions.families)
    edge_first = np.concatenate([[0], np.cumsum(edges)])
    edge_starts = np.concatenate([[0], np.cumsum(edges[picked])])
    nth = np.arange(edge_starts[-1]) - np.repeat(edge_starts[:-1], edges[picked])
    edge = by_family[np.repeat(edge_first[picked], edges[picked]) + nth]
    shift = np.repeat(starts[:-1], edges[picked])

    # How often the family ran before: which copy of its chunks a call has.
    seen = np.argsort(picked, kind="stable")
    runs = np.diff(np.flatnonzero(np.diff(picked[seen], prepend=-1, append=-2)))
    copy = np.empty(picked.size, np.int64)
    copy[seen] = np.arange(picked.size) - np.repeat(np.cumsum(runs) - runs, runs)
    tree, row = copied_tree(trace, sessions.family, call, copy[family])

    code = _codes(sessions.session[call], family)
    earliest = np.full(call.size, -np.inf)
    gap = sessions.gap[call]
    release = np.zeros(picked.size)
    agents = timeline.agents or 1
    if timeline.kind == "recorded":
        start = trace.array("t_start_us") / 1e6
        earliest = start[call] - start.min()
        gap = np.zeros(call.size)
        release = np.full(picked.size, np.inf)
        np.minimum.at(release, family, earliest)
        agents = _EVER
    elif timeline.kind == "open-loop":
        rate = timeline.rate or 1.0
        draw = np.random.default_rng([timeline.seed, 3])
        release = np.cumsum(draw.exponential(60 / rate, picked.size))
        agents = _EVER
    return Plan(
        call.astype(np.int32),
        row,
        code,
        family.astype(np.int32),
        gap,
        earliest,
        place[sessions.edge_from[edge]] + shift,
        place[sessions.edge_to[edge]] + shift,
        release,
        min(agents, timeline.max_agents or agents),
        tree,
        notes,
    )


def _codes(session: NDArray[np.int32], family: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return codes for sessions of which each family has its own: int32[calls], dense."""
    pairs = family * (int(session.max(initial=0)) + 1) + session
    codes: NDArray[np.int32] = np.unique(pairs, return_inverse=True)[1].astype(np.int32)
    return codes
