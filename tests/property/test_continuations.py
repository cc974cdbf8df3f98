"""Where prompts part, against the prompts themselves."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agentkv_trace.advise.lost_reuse import RELATIONS, compared
from agentkv_trace.engine.continuations import WINDOW, nth_of_group, part_tails, shared_chunks
from agentkv_trace.trace.paths import paths
from made import trace

PROMPTS = st.lists(st.lists(st.integers(0, 2), max_size=8), min_size=1, max_size=12)


def common(one: list[int], other: list[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


@given(PROMPTS)
def test_shared_chunks_of_every_pair(prompts: list[list[int]]) -> None:
    built = trace(*prompts)
    whole = [path.tolist() for path in paths(built)]
    pairs = [(a, b) for a in range(len(whole)) for b in range(len(whole))]
    first, second = zip(*pairs, strict=True)
    columns = (built.array(name) for name in ("base", "base_chunks", "path_chunks"))
    shared = shared_chunks(first, second, *columns)
    assert shared.tolist() == [common(whole[a], whole[b]) for a, b in pairs]


@given(PROMPTS, st.data())
def test_what_was_allowed_reused_and_shared(prompts: list[list[int]], data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from("ab"), min_size=len(prompts), max_size=len(prompts)))
    built = trace(*prompts, sessions=names)
    whole = [path.tolist() for path in paths(built)]
    found = compared(built)
    last: dict[str, int] = {}
    expected = []
    for row, name in enumerate(names):
        before = last.get(name, next(iter(last.values()), None))
        if before is not None:
            reused = max((common(whole[row], whole[e]) for e in range(row)), default=0)
            allowed = min(len(whole[before]), len(whole[row]))
            relation = "next" if name in last else "first"
            expected.append((row, relation, allowed, reused, common(whole[row], whole[before])))
        last.setdefault(name, row) if name not in last else last.update({name: row})
    rows = zip(
        found.call.tolist(),
        [RELATIONS[at] for at in found.relation],
        found.allowed.tolist(),
        found.reused.tolist(),
        found.shared.tolist(),
        strict=True,
    )
    # A session's first call is compared with another session's first one, whichever it shares
    # more with: only calls that go on from their own session are foretold here.
    assert [row for row in rows if row[1] == "next"] == [
        row for row in expected if row[1] == "next"
    ]


@st.composite
def trees(draw: st.DrawFn) -> list[int]:
    size = draw(st.integers(1, 60))
    return [draw(st.integers(-1, part - 1)) for part in range(size)]


@given(trees(), st.data())
def test_tails_are_what_follows_the_common_parts(parent: list[int], data: st.DataObject) -> None:
    leaf = st.integers(-1, len(parent) - 1)
    old, new = data.draw(leaf), data.draw(leaf)

    def chain(part: int) -> list[int]:
        return [] if part < 0 else [*chain(parent[part]), part]

    one, other = chain(old), chain(new)
    same = common(one, other)
    tails = part_tails(parent, [old], [new])
    assert tails.common.tolist() == [one[same - 1] if same else -1]
    for found, count, expected in (
        (tails.old, tails.old_parts, one[same:]),
        (tails.new, tails.new_parts, other[same:]),
    ):
        assert count.tolist() == [len(expected)]
        assert [part for part in found[0].tolist() if part >= 0] == expected[:WINDOW]


@given(trees(), st.data())
def test_places_within_a_group(parent: list[int], data: st.DataObject) -> None:
    group = data.draw(st.lists(st.integers(0, 2), min_size=len(parent), max_size=len(parent)))

    def nth(part: int, wanted: int) -> int:
        return 0 if part < 0 else (group[part] == wanted) + nth(parent[part], wanted)

    found = nth_of_group(parent, group, np.arange(len(parent)))
    assert found.tolist() == [nth(part, group[part]) for part in range(len(parent))]
