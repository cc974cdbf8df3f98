"""Replay against slow twins: tracks, copies of sessions, the engine and its pool."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv_trace.replay.copies import copied_tree
from agentkv_trace.replay.sessions import sessions_of
from agentkv_trace.replay.setting import Setting
from agentkv_trace.replay.simulate import Load
from agentkv_trace.replay.timeline import Timeline
from agentkv_trace.replay.tracks import tracks_of
from agentkv_trace.tiers.backends import BACKENDS, find_backend
from agentkv_trace.tiers.trace_tiers import TraceTiers
from naive import ReplayTwin, brought_before, chunks_of, closed_loop_starts, link
from replays import CHUNK, STEPS, every_backend, pool, trace_of, trace_of_columns
from strategies import Calls, calls


def places(tracks, row, depth):
    """Return the track and depth of each chunk of a path, head first."""
    track, found = int(tracks.track[row]), []
    while depth > 0:
        begin = int(tracks.attach[track])
        found += [(track, at) for at in range(depth - 1, begin - 1, -1)]
        depth = min(depth, begin)
        track = int(tracks.parent[track])
    return found[::-1]


@given(calls())
def test_tracks_give_equal_chunks_equal_places_and_others_different_ones(made: Calls) -> None:
    tree = made.tree()
    tracks = tracks_of(tree["base"], tree["base_chunks"], tree["path_chunks"])
    known = {}
    for row, path in enumerate(made.paths):
        at = places(tracks, row, len(path))
        assert len(at) == len(path)
        for chunk, place in zip(chunks_of(path), at, strict=True):
            assert known.setdefault(chunk, place) == place
    assert len(set(known.values())) == len(known)


@given(calls())
def test_paths_cross_few_tracks(made: Calls) -> None:
    tree = made.tree()
    tracks = tracks_of(tree["base"], tree["base_chunks"], tree["path_chunks"])
    for row, path in enumerate(made.paths):
        crossed = {track for track, _ in places(tracks, row, len(path))}
        assert len(crossed) <= np.log2(len(made.paths)) + 1


@given(calls(), st.integers(1, 3))
def test_copies_share_what_families_share_and_nothing_else(made: Calls, copies: int) -> None:
    families = np.array(made.sessions, np.int32)
    trace = trace_of_columns(made.tree(), families)
    order = np.concatenate([np.flatnonzero(families == f) for f in range(4)]).astype(np.int64)
    call = np.concatenate([order] * copies) if len(order) else order
    copy = np.repeat(np.arange(copies), len(order))
    # Rows of one copy of a family stand together, as the timeline lays them out.
    tree, row = copied_tree(trace, families, call, copy)
    holders: dict = {}
    for path, family in zip(made.paths, made.sessions, strict=True):
        for chunk in chunks_of(path):
            holders.setdefault(chunk, set()).add(family)
    expected = [
        [
            (chunk, 0 if len(holders[chunk]) > 1 else (number, made.sessions[source]))
            for chunk in chunks_of(made.paths[source])
        ]
        for source, number in zip(call, copy, strict=True)
    ]
    tracks = tracks_of(tree["base"], tree["base_chunks"], tree["path_chunks"])
    known: dict = {}
    for at, chunks in zip(row, expected, strict=True):
        assert tree["path_chunks"][at] == len(chunks)
        for chunk, place in zip(chunks, places(tracks, at, len(chunks)), strict=True):
            assert known.setdefault(chunk, place) == place
    assert len(set(known.values())) == len(known)


@given(calls(most=10), st.integers(1, 12), st.integers(1, 6), st.data())
def test_the_engine_and_its_pool_step_by_step(made: Calls, room: int, step: int, data) -> None:
    prompts = [path[:size] for path, size in zip(made.paths, made.prompts, strict=True)]
    longest = max(map(len, prompts), default=0)
    capacity = max(longest, room) * 2
    outputs = data.draw(
        st.lists(st.sampled_from([1, 1, 2, 5]), min_size=len(prompts), max_size=len(prompts))
    )
    if not prompts:
        return
    base, shared = link(prompts)
    trace = trace_of_columns(
        {
            "base": np.array(base, np.int32),
            "base_chunks": np.array(shared, np.int32),
            "prompt_chunks": np.array([len(p) for p in prompts], np.int32),
            "path_chunks": np.array([len(p) for p in prompts], np.int32),
        },
        np.arange(len(prompts)),
    )
    starts = np.array(made.starts, np.int64)
    for name, values in (
        ("t_start_us", starts * 1_000_000),
        ("t_end_us", starts * 1_000_000),
        ("output_tokens", np.array(outputs, np.int32)),
    ):
        at = trace.table.schema.get_field_index(name)
        field = trace.table.schema.field(at)
        trace = replace(trace, table=trace.table.set_column(at, field, pa.array(values)))
    load = Load(trace, Timeline(kind="recorded"))
    found = load.run(pool(capacity, speed=STEPS, step_tokens=step * CHUNK))
    twin = ReplayTwin(
        [
            {"path": chunks_of(p), "prompt": len(p), "output": o, "at": float(s - starts[0])}
            for p, o, s in zip(prompts, outputs, starts, strict=True)
        ],
        capacity,
        step,
    )
    hits, ends = twin.run()
    order = np.argsort(found.call)
    assert found.done.gpu[order].tolist() == [hits[i] * CHUNK for i in range(len(prompts))]
    np.testing.assert_allclose(found.done.ended[order], [ends[i] for i in range(len(prompts))])


def one_by_one(made: Calls):
    """Return a trace of the drawn prompts whose calls do not overlap."""
    prompts = [path[:size] for path, size in zip(made.paths, made.prompts, strict=True)]
    keys = [[1 + 2 * hash(c) % (1 << 40) for c in chunks_of(p)] for p in prompts]
    return trace_of(keys, sessions=[str(s) for s in made.sessions], tail=3)


def same_as_tiers(trace, name, tokens, host) -> None:
    """Compare calls that do not overlap with what `tiers/` says of them, call by call."""
    backend = find_backend(name)
    engine = backend.replay != "ideal"
    found = Load(trace, Timeline(kind="recorded")).run(
        Setting(
            backend=backend,
            pool_tokens=tokens,
            host_chunks=host,
            host_chunk_tokens=CHUNK,
            watermark_tick_s=0.0,
            skip_last=engine,
            tails=engine,
        )
    )
    tiers = TraceTiers(trace)
    tiers.host_chunk_tokens = lambda backend: CHUNK  # type: ignore[method-assign]
    use = tiers.use(backend, tokens, [host])[0]
    order = np.argsort(found.call)
    assert found.done.gpu[order].tolist() == use.gpu.tolist()
    assert found.done.restored[order].tolist() == use.restored.tolist()
    assert found.summary()["written_tokens"] == use.written.sum()
    assert found.counts[1, 4] * CHUNK == use.evicted.sum()


@pytest.mark.parametrize("name", [name for name in BACKENDS if not name.startswith("sglang")])
@given(made=calls(most=12), room=st.integers(0, 12), host=st.integers(1, 30))
def test_calls_one_by_one_hit_as_the_tiers_say(name, made, room, host) -> None:
    if not made.paths:
        return
    trace = one_by_one(made)
    engine = find_backend(name).replay != "ideal"
    longest = max(made.prompts) + 2
    tokens = (longest + room + engine) * CHUNK
    # The ideal stack lets a path longer than the tier push out its own tail, chunk by chunk.
    host = max(host, longest) if name == "ideal" else host
    same_as_tiers(trace, name, tokens, host)


@st.composite
def turns(draw: st.DrawFn) -> tuple[list[list[int]], list[str]]:
    """Draw prompts of sessions that take turns and grow from a shared head: far more is evicted."""
    count = draw(st.integers(2, 4))
    paths = [[1, 2] for _ in range(count)]
    prompts, names, fresh = [], [], 10
    for who in draw(st.lists(st.integers(0, count - 1), min_size=6, max_size=18)):
        grown = draw(st.integers(1, 3))
        paths[who] = [*paths[who], *range(fresh, fresh + grown)]
        fresh += grown
        prompts.append(paths[who])
        names.append(f"s{who}")
    return prompts, names


@pytest.mark.parametrize("name", [name for name in BACKENDS if not name.startswith("sglang")])
@given(drawn=turns(), room=st.integers(0, 8), host=st.integers(1, 30))
def test_sessions_that_take_turns_hit_as_the_tiers_say(name, drawn, room, host) -> None:
    prompts, names = drawn
    engine = find_backend(name).replay != "ideal"
    longest = max(map(len, prompts))
    same_as_tiers(
        trace_of(prompts, sessions=names, tail=3),
        name,
        (longest + 1 + room + engine) * CHUNK,
        max(host, longest) if name == "ideal" else host,
    )


@given(turns(), st.integers(0, 8), st.integers(1, 6), st.data())
def test_the_engine_with_a_pool_that_is_short(drawn, room, step, data) -> None:
    prompts, _ = drawn
    size = len(prompts)
    outputs = data.draw(
        st.lists(st.sampled_from([1, 2, 5, 9]), min_size=size, max_size=size), label="outputs"
    )
    gaps = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size), label="gaps")
    starts = np.cumsum(gaps).tolist()
    trace = trace_of(
        prompts, sessions=[f"{i:02}" for i in range(size)], starts=starts, outputs=outputs
    )
    capacity = max(map(len, prompts)) + room
    load = Load(trace, Timeline(kind="recorded"))
    found = load.run(pool(capacity, speed=STEPS, step_tokens=step * CHUNK))
    twin = ReplayTwin(
        [
            {"path": chunks_of(p), "prompt": len(p), "output": o, "at": float(s - starts[0])}
            for p, o, s in zip(prompts, outputs, starts, strict=True)
        ],
        capacity,
        step,
    )
    hits, ends = twin.run()
    order = np.argsort(found.call)
    assert found.done.gpu[order].tolist() == [hits[i] * CHUNK for i in range(size)]
    np.testing.assert_allclose(found.done.ended[order], [ends[i] for i in range(size)])


@given(
    calls(most=12),
    st.integers(1, 30),
    st.integers(0, 40),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from(["sticky", "round-robin", "longest-prefix"]),
    st.sampled_from(["off", "fixed", "conditioned"]),
    st.integers(1, 7),
)
def test_every_prompt_token_is_hit_restored_or_computed_once(
    made, room, host, agents, replicas, routing, write_filter, step
) -> None:
    if not made.paths:
        return
    prompts = [path[:size] for path, size in zip(made.paths, made.prompts, strict=True)]
    keys = [[1 + 2 * hash(c) % (1 << 40) for c in chunks_of(p)] for p in prompts]
    trace = trace_of(
        keys,
        sessions=[str(s) for s in made.sessions],
        starts=made.starts,
        ends=made.ends,
        outputs=[1 + 7 * i % 60 for i in range(len(keys))],
        tail=5,
    )
    load = Load(trace, Timeline(agents=agents, sessions=6))
    for setting in every_backend(
        room + 1,
        host,
        speed=replace(STEPS, restore_s=0.5, restore_token_s=0.01, in_step=bool(step % 2)),
        replicas=replicas,
        routing=routing,
        write_filter=write_filter,
        kappa=1,
        filter_tokens=CHUNK,
        step_tokens=step * 11,
    ):
        found = load.run(setting)
        done = found.done
        served = found.served
        assert (done.gpu + done.restored + done.computed == found.prompt * served).all()
        assert (done.computed >= 0).all()
        assert (done.arrived <= done.started).all()
        assert (done.started <= done.first).all()
        assert (done.first <= done.ended).all()
        # Nothing is held once all calls have ended, and no tier is above its capacity.
        assert (found.counts[:, 0] == found.counts[:, 1]).all()
        assert (found.counts[0::2, 0] <= room + 1).all()
        assert (found.counts[1::2, 0] <= host).all()
        again = load.run(setting)
        assert all((again.done[n] == done[n]).all() for n in done.dtype.names)


def with_outputs(made: Calls):
    """Return a trace of the drawn paths; calls overlap as drawn, outputs fill what is no prompt."""
    trace = trace_of_columns(made.tree(), np.array(made.sessions))
    columns = {
        "t_start_us": np.array(made.starts, np.int64) * 1_000_000,
        "t_end_us": np.array(made.ends, np.int64) * 1_000_000,
        "output_tokens": np.array(
            [
                1 + CHUNK * (len(path) - prompt)
                for path, prompt in zip(made.paths, made.prompts, strict=True)
            ],
            np.int32,
        ),
    }
    table = trace.table
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.array(values))
    return replace(trace, table=table)


def as_dicts(made: Calls, found):
    """Return the replayed calls that were served as `brought_before` takes them."""
    return [
        {
            "path": chunks_of(made.paths[row]),
            "prompt": made.prompts[row],
            "replica": int(found.done.replica[at]),
            "started": float(found.done.started[at]),
            "ended": float(found.done.ended[at]),
            "hit": int(found.done.gpu[at] + found.done.restored[at]) // CHUNK,
        }
        for at, row in enumerate(found.call)
        if found.served[at]
    ]


TIMELINES = [
    Timeline(kind="recorded"),
    Timeline(agents=1),
    Timeline(agents=3, order="longest"),
    Timeline(agents=4, order="random", seed=5),
    Timeline(kind="open-loop", rate=6.0, max_agents=2),
]


@pytest.mark.parametrize("timeline", TIMELINES, ids=lambda t: f"{t.kind} {t.order}")
@given(
    made=calls(most=12),
    room=st.integers(1, 30),
    host=st.integers(0, 40),
    replicas=st.integers(1, 3),
    routing=st.sampled_from(["sticky", "round-robin", "longest-prefix"]),
)
def test_nothing_is_hit_that_no_call_brought(timeline, made, room, host, replicas, routing) -> None:
    # Copies of sessions would need paths of their own, so there are no more agents than sessions.
    if len(set(made.sessions)) < (timeline.agents or 1):
        return
    load = Load(with_outputs(made), timeline)
    for setting in every_backend(
        room + 1, host, speed=STEPS, replicas=replicas, routing=routing, step_tokens=50
    ):
        found = as_dicts(made, load.run(setting))
        for call, most in zip(found, brought_before(found, ties=True), strict=True):
            assert call["hit"] <= most


@pytest.mark.parametrize("timeline", TIMELINES, ids=lambda t: f"{t.kind} {t.order}")
@given(made=calls(most=12), replicas=st.integers(1, 3), step=st.integers(1, 90))
def test_an_unlimited_pool_hits_all_that_calls_brought(timeline, made, replicas, step) -> None:
    if len(set(made.sessions)) < (timeline.agents or 1):
        return
    load = Load(with_outputs(made), timeline)
    found = as_dicts(made, load.run(pool(None, speed=STEPS, replicas=replicas, step_tokens=step)))
    assert len(found) == len(made.paths)
    least, most = (brought_before(found, ties=ties) for ties in (False, True))
    for call, low, high in zip(found, least, most, strict=True):
        assert low <= call["hit"] <= high


@given(calls(most=12), st.integers(1, 5), st.sampled_from(["trace", "longest", "random"]))
def test_calls_arrive_when_their_agent_comes_to_them(made: Calls, agents: int, order: str) -> None:
    if not made.paths:
        return
    load = Load(with_outputs(made), Timeline(agents=agents, order=order, seed=agents))
    # With room for all, and steps of a second, a call lasts a second for each token it says.
    found = load.run(pool(None, speed=STEPS))
    lasts = found.output.astype(float)
    np.testing.assert_allclose(found.done.ended - found.done.arrived, lasts, atol=1e-6)
    expected = closed_loop_starts(load.plan, lasts, min(agents, len(load.plan.release)))
    np.testing.assert_allclose(found.done.arrived, expected, atol=1e-6)


@given(calls(most=12))
def test_one_agent_takes_the_calls_of_a_session_in_order(made: Calls) -> None:
    if not made.paths:
        return
    trace = with_outputs(made)
    load = Load(trace, Timeline(agents=1))
    for setting in every_backend(40, 60, speed=STEPS):
        done = load.run(setting).done
        family = load.plan.family
        for number in range(1, int(family.max()) + 1):
            assert (
                done.arrived[family == number].min()
                >= done.ended[family == number - 1].max() - 1e-6
            )


@given(calls())
def test_calls_wait_for_the_one_of_their_session_that_ended_last(made: Calls) -> None:
    trace = with_outputs(made)
    found = sessions_of(trace)
    waits = dict(zip(found.edge_to.tolist(), found.edge_from.tolist(), strict=True))
    expected = {}
    for call in range(len(made.paths)):
        ended = [
            (made.ends[other], made.starts[other], other)
            for other in range(call)
            if made.sessions[other] == made.sessions[call] and made.ends[other] <= made.starts[call]
        ]
        if ended:
            expected[call] = max(ended)[2]
    assert waits == expected
