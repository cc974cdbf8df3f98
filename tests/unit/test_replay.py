"""Replay: timelines, what the engine does, and input that lies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agentkv_trace.errors import InputError
from agentkv_trace.replay.setting import INSTANT, Setting, Speed, ideal
from agentkv_trace.replay.simulate import Load
from agentkv_trace.replay.timeline import Timeline
from agentkv_trace.tiers.backends import BACKENDS, find_backend
from replays import CHUNK, STEPS, every_backend, pool, trace_of
from workload_agents import make_agents

AGENTS = make_agents(6, mean_tokens=4_000, calls_per_task=8, tasks=2, head_tokens=800)


def grown(name: int, turns: int, head: int = 2, step: int = 3) -> list[list[int]]:
    """Return the prompts of a session that shares a head and grows."""
    own = [1000 * name + i for i in range(1, turns * step + 1)]
    return [[*range(1, head + 1), *own[: step * (turn + 1)]] for turn in range(turns)]


def sessions(count: int, turns: int, **fields):
    """Return sessions that take turns, one call a second each."""
    paths = [grown(name, turns) for name in range(1, count + 1)]
    order = [(turn, name) for turn in range(turns) for name in range(count)]
    return trace_of(
        [paths[name][turn] for turn, name in order],
        sessions=[f"s{name}" for _, name in order],
        **fields,
    )


def order_of(found):
    """Return the trace's rows in the order in which the engine took them up."""
    return found.call[np.lexsort((found.call, found.done.started))].tolist()


# --- hits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("agents", [1, 3, 6, 40])
@pytest.mark.parametrize("kind", ["closed-loop", "open-loop", "recorded"])
def test_an_unlimited_pool_computes_the_compulsory(kind, agents):
    load = Load(AGENTS, Timeline(kind=kind, agents=agents, rate=30.0))
    found = load.run(pool(None, speed=STEPS))
    shared = np.minimum(AGENTS.array("base_chunks"), AGENTS.array("prompt_chunks"))
    compulsory = AGENTS.array("prompt_tokens").sum() - shared.sum() * CHUNK
    if agents < 40 or kind != "closed-loop":
        assert found.computed_tokens == compulsory
    else:
        # Copies compute what is their own, never what all share.
        assert compulsory < found.computed_tokens < 3 * compulsory
    assert found.summary()["gpu_evicted_before_reuse"] == 0


def test_one_agent_keeps_the_order_of_the_trace():
    paths = [path for name in range(1, 5) for path in grown(name, 3)]
    names = [f"s{name}" for name in range(1, 5) for _ in range(3)]
    trace = trace_of(paths, sessions=names)
    for setting in every_backend(40, 60, speed=STEPS):
        found = Load(trace, Timeline(agents=1)).run(setting)
        assert order_of(found) == list(range(len(trace)))


def test_the_same_seed_gives_the_same_replay_and_another_another():
    def ends(seed):
        load = Load(AGENTS, Timeline(agents=4, order="random", sessions=20, seed=seed))
        return load.run(pool(2000, speed=STEPS)).done.ended.tolist()

    assert ends(1) == ends(1)
    assert ends(1) != ends(2)


def test_more_agents_on_a_small_pool_compute_more():
    computed = [
        Load(AGENTS, Timeline(agents=agents)).run(pool(600, speed=STEPS)).computed_tokens
        for agents in (1, 3, 6)
    ]
    assert computed[0] < computed[1] < computed[2]


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_a_host_tier_that_holds_everything_leaves_the_compulsory(backend):
    setting = Setting(
        backend=find_backend(backend),
        pool_tokens=600 * CHUNK,
        host_chunks=100_000,
        host_chunk_tokens=CHUNK,
        speed=STEPS,
        outputs=False,
    )
    load = Load(AGENTS, Timeline(agents=6))
    found, least = load.run(setting), load.run(pool(None, speed=STEPS)).computed_tokens
    # At most the last chunk of each call is computed although it is there.
    assert least <= found.computed_tokens <= least + len(AGENTS) * CHUNK
    assert found.summary()["restored_tokens"] > 0


# --- the engine -----------------------------------------------------------------------------------


def times(found):
    """Return arrival, first token and end of each call, in the trace's order."""
    order = np.argsort(found.call)
    return [found.done[name][order].tolist() for name in ("arrived", "first", "ended")]


def test_a_call_takes_its_prefill_and_its_outputs():
    trace = trace_of([[1, 2, 3], [1, 2, 3, 4]], outputs=[1, 11], starts=[0, 5])
    found = Load(trace, Timeline(kind="recorded")).run(pool(None, speed=STEPS, step_tokens=CHUNK))
    # Three chunks in three steps; then one chunk, and ten more tokens behind the first.
    assert times(found) == [[0, 5], [3, 6], [3, 16]]


def test_later_chunks_cost_more():
    from agentkv_trace.advise.machine import machine
    from agentkv_trace.profiles.connectors import find_connector
    from agentkv_trace.profiles.flops import prefill_cost
    from agentkv_trace.profiles.load import find_gpu, find_model
    from agentkv_trace.tiers.capacity import Deployment

    model, gpu = find_model("qwen3-8b"), find_gpu("h100-sxm")
    one = machine(gpu, Deployment(), 1, find_connector("lmcache"))
    speed = Speed(cost=prefill_cost(model), machine=one, mfu=0.5)
    paths = [list(range(1, 2001)), list(range(1, 4001))]
    found = Load(trace_of(paths, starts=[0, 100]), Timeline(kind="recorded")).run(
        pool(None, speed=speed, step_tokens=1 << 20)
    )
    arrived, first, _ = times(found)
    took = np.subtract(first, arrived)
    exact = speed.prefill(np.array([2000.0, 4000.0]) * CHUNK)
    np.testing.assert_allclose(took, [exact[0], exact[1] - exact[0]], rtol=1e-9)
    assert took[1] > took[0]


def test_decoding_slows_down_with_the_batch_and_the_context():
    speed = Speed(dense_s=1.0, context_token_s=1.0)
    alone = trace_of([[1]], outputs=3)
    found = Load(alone, Timeline(kind="recorded")).run(pool(None, speed=speed))
    # One step to compute, two to decode, each reading 16 + 1.5 tokens.
    assert times(found)[2] == [1 + 2 * (1 + 17.5)]
    two = trace_of([[1], [2]], starts=[0, 0], outputs=3)
    found = Load(two, Timeline(kind="recorded", sessions=2)).run(pool(None, speed=speed))
    assert found.makespan_s > 1 + 2 * (1 + 17.5)


def test_calls_queue_for_a_slot_and_for_room():
    trace = sessions(2, 1, starts=[0, 0], outputs=5)
    load = Load(trace, Timeline(kind="recorded"))
    together = load.run(pool(None, speed=STEPS))
    assert times(together)[2] == [5, 5]
    one_slot = load.run(pool(None, speed=STEPS, max_num_seqs=1))
    # The second waits until the first has ended.
    assert times(one_slot)[2] == [5, 10]
    assert one_slot.summary()["queued_s"]["mean"] == 2.5
    short = load.run(pool(6, speed=STEPS))
    assert times(short)[2] == [5, 10]


def test_a_call_that_outgrows_the_pool_preempts_the_youngest():
    outputs = [1 + 4 * CHUNK, 1 + 9 * CHUNK]
    trace = trace_of(
        [[1, 2, 3, 4], [5, 6, 7, 8]], sessions=["a", "b"], starts=[0, 0], outputs=outputs
    )
    setting = Setting(backend=find_backend("vllm"), pool_tokens=12 * CHUNK, speed=STEPS)
    found = Load(trace, Timeline(kind="recorded")).run(setting)
    assert found.preemptions == 1
    # The first call's outputs push out the second's last chunks, which are computed again.
    assert found.done.recomputed[np.argsort(found.call)].tolist()[0] == 0
    assert found.done.recomputed.sum() > 0
    assert (found.done.computed + found.done.gpu == found.prompt).all()
    assert times(found)[2][1] > 1 + 9 * CHUNK


def test_a_call_larger_than_the_pool_is_rejected_and_counted():
    trace = trace_of([[1, 2], list(range(1, 20)), [1, 2, 3]], starts=[0, 1, 2])
    found = Load(trace, Timeline(agents=1)).run(pool(6, speed=STEPS))
    assert found.served.tolist() == [True, False, True]
    assert found.summary()["rejected"] == 1
    assert found.summary()["prompt_tokens"] == 5 * CHUNK
    # The session goes on.
    assert found.done.gpu.tolist() == [0, 0, 2 * CHUNK]


def test_restores_take_the_link_and_may_run_beside_the_engine():
    trace = trace_of([[1, 2, 3, 4], [5, 6, 7, 8], [1, 2, 3, 4]], starts=[0, 100, 200])
    slow = Speed(step_s=1.0, restore_s=3.0, restore_token_s=0.25)
    setting = Setting(
        backend=find_backend("vllm"),
        pool_tokens=5 * CHUNK,
        host_chunks=100,
        host_chunk_tokens=CHUNK,
    )
    load = Load(trace, Timeline(kind="recorded"))
    beside = load.run(replace(setting, speed=slow))
    assert beside.done.restored.tolist() == [0, 0, 4 * CHUNK]
    # A fixed time and 64 tokens on the link, then the step that computes the last token.
    assert times(beside)[1][2] == 200 + 3 + 16 + 1
    within = load.run(replace(setting, speed=replace(slow, in_step=True)))
    assert times(within)[1][2] == 200 + 3 + 16 + 1
    faster = replace(slow, restore_s=0.0, restore_token_s=0.0)
    assert times(load.run(replace(setting, speed=faster)))[1][2] == 201


def test_a_store_makes_the_step_wait():
    trace = trace_of([[1, 2, 3, 4], [1, 2, 3, 4, 5]], starts=[0, 100])
    setting = Setting(
        backend=find_backend("lmcache"),
        pool_tokens=50 * CHUNK,
        host_chunks=100,
        host_chunk_tokens=CHUNK,
        speed=Speed(step_s=1.0, store_sync_s=7.0, write_token_s=0.5),
        step_tokens=2 * CHUNK,
    )
    found = Load(trace, Timeline(kind="recorded")).run(setting)
    assert times(found)[1] == [2 * 8 + 32, 100 + 8 + 8]
    assert found.done.written.tolist() == [4 * CHUNK, CHUNK]


def test_the_write_filter_declines_calls_that_add_much():
    trace = trace_of([list(range(1, 9)), list(range(1, 11)), [20, 21]], starts=[0, 100, 200])
    setting = Setting(
        backend=find_backend("lmcache"),
        pool_tokens=50 * CHUNK,
        host_chunks=100,
        host_chunk_tokens=CHUNK,
        kappa=3,
        filter_tokens=CHUNK,
        speed=STEPS,
    )
    load = Load(trace, Timeline(kind="recorded"))
    assert load.run(setting).done.written.sum() == 12 * CHUNK
    fixed = load.run(replace(setting, write_filter="fixed"))
    # The first call adds too much. The second adds two chunks and is stored whole.
    assert fixed.done.written.tolist() == [0, 10 * CHUNK, 2 * CHUNK]
    # The tier never overflows, so nothing is declined.
    free = load.run(replace(setting, write_filter="conditioned"))
    assert free.done.written.sum() == 12 * CHUNK


def test_the_conditioned_filter_declines_once_the_tier_overflows():
    load = Load(AGENTS, Timeline(agents=6))
    setting = Setting(
        backend=find_backend("lmcache"),
        pool_tokens=700 * CHUNK,
        host_chunks=700,
        host_chunk_tokens=CHUNK,
        speed=Speed(step_s=0.05),
        filter_tokens=CHUNK,
        kappa=24,
    )
    off, fixed, conditioned = (
        load.run(replace(setting, write_filter=name)).summary()["written_tokens"]
        for name in ("off", "fixed", "conditioned")
    )
    assert fixed <= conditioned < off


@pytest.mark.parametrize("routing", ["sticky", "round-robin", "longest-prefix"])
def test_replicas_have_tiers_of_their_own(routing):
    load = Load(AGENTS, Timeline(agents=6))
    found = load.run(pool(2000, speed=STEPS, replicas=3, routing=routing))
    assert sorted(set(found.done.replica.tolist())) == [0, 1, 2]
    homes = {}
    for session, replica in zip(found.session, found.done.replica, strict=True):
        homes.setdefault(int(session), set()).add(int(replica))
    if routing == "sticky":
        assert all(len(replicas) == 1 for replicas in homes.values())
    if routing == "round-robin":
        assert any(len(replicas) > 1 for replicas in homes.values())


def test_sticky_and_longest_prefix_reuse_more_than_round_robin():
    load = Load(AGENTS, Timeline(agents=6))
    computed = {
        routing: load.run(pool(2000, speed=STEPS, replicas=3, routing=routing)).computed_tokens
        for routing in ("sticky", "round-robin", "longest-prefix")
    }
    assert computed["sticky"] < computed["round-robin"]
    assert computed["longest-prefix"] < computed["round-robin"]


# --- timelines ------------------------------------------------------------------------------------


def test_tool_times_are_kept_and_slow_calls_delay_the_next():
    trace = trace_of(grown(1, 3), starts=[0, 10, 30], ends=[4, 15, 31])
    load = Load(trace, Timeline(agents=1))
    # Gaps of 6 and 15 s behind calls that now take one step.
    assert times(load.run(pool(None, speed=STEPS)))[0] == [0, 7, 23]
    slow = load.run(pool(None, speed=Speed(step_s=100.0)))
    assert times(slow)[0] == [0, 106, 221]


def test_agents_take_up_one_session_after_the_other():
    trace = sessions(4, 1, starts=[0, 1, 2, 3], outputs=4)
    arrived, _, ended = times(Load(trace, Timeline(agents=2)).run(pool(None, speed=STEPS)))
    assert arrived[:2] == [0, 0]
    assert arrived[2:] == ended[:2]


def test_longest_chains_first():
    trace = trace_of([[1], list(range(10, 30)), [2, 3]], sessions=["a", "b", "c"])
    found = Load(trace, Timeline(agents=1, order="longest")).run(pool(None, speed=STEPS))
    assert order_of(found) == [1, 2, 0]


def test_more_agents_than_sessions_run_copies_that_share_only_the_head():
    trace = sessions(2, 2)
    load = Load(trace, Timeline(agents=4, seed=3))
    found = load.run(pool(None, speed=STEPS))
    assert len(found.call) == 8
    assert "2 of 4 sessions are copies" in found.notes[0]
    # A head of two chunks once, and six chunks of each of four sessions.
    assert found.computed_tokens == (2 + 4 * 6) * CHUNK


def test_sub_agents_start_when_their_parents_call_ends_and_are_waited_for():
    trace = trace_of(
        [[1, 2], [5], [5, 6], [1, 2, 3]],
        sessions=["main", "sub", "sub", "main"],
        parents=[None, "main", "main", None],
        starts=[0, 10, 20, 40],
        ends=[8, 12, 30, 41],
    )
    arrived, _, ended = times(Load(trace, Timeline(agents=1)).run(pool(None, speed=STEPS)))
    assert arrived[1] == ended[0] + 2
    assert arrived[2] == ended[1] + 8
    # The parent goes on ten seconds behind its sub-agent, not behind its own last call.
    assert arrived[3] == ended[2] + 10


def test_a_session_waits_for_the_last_of_several_sub_agents():
    trace = trace_of(
        [[1], [2], [3], [1, 4]],
        sessions=["main", "a", "b", "main"],
        parents=[None, "main", "main", None],
        starts=[0, 2, 2, 20],
        ends=[1, 3, 15, 21],
    )
    arrived, _, ended = times(Load(trace, Timeline(agents=1)).run(pool(None, speed=STEPS)))
    assert arrived[3] == max(ended[1], ended[2]) + 5


def test_recorded_calls_come_as_logged_but_never_before_what_they_wait_for():
    trace = trace_of(grown(1, 2), starts=[100, 105], ends=[101, 106])
    load = Load(trace, Timeline(kind="recorded"))
    assert times(load.run(pool(None, speed=STEPS)))[0] == [0, 5]
    assert times(load.run(pool(None, speed=Speed(step_s=30.0))))[0] == [0, 30]


def test_open_loop_sessions_begin_at_the_rate():
    trace = sessions(400, 1)
    arrived = Load(trace, Timeline(kind="open-loop", rate=6.0)).run(pool(None)).done.arrived
    assert np.diff(np.sort(arrived)).mean() == pytest.approx(10, rel=0.15)


def test_a_cap_keeps_sessions_waiting():
    trace = sessions(6, 2)
    timeline = Timeline(kind="open-loop", rate=600.0, max_agents=2)
    found = Load(trace, timeline).run(pool(None, speed=Speed(step_s=60.0)))
    for begin in found.done.arrived:
        inside = (found.done.arrived <= begin) & (found.done.ended > begin)
        assert inside.sum() <= 2


# --- input that lies ------------------------------------------------------------------------------


def test_overlapping_calls_of_a_session_stay_side_by_side():
    trace = trace_of([[1], [2], [1, 3]], starts=[0, 2, 10], ends=[8, 3, 11])
    arrived, *_ = times(Load(trace, Timeline(agents=1)).run(pool(None, speed=STEPS)))
    # The second began while the first ran: both begin with the session, two seconds apart.
    assert arrived[:2] == [0, 2]
    # The third waits for the one that had ended last, though that is not the one begun last.
    assert arrived[2] == 1 + 2


def test_gaps_of_no_length_and_clock_jumps():
    trace = trace_of(grown(1, 3), starts=[0, 0, 90_000], ends=[0, 0, 90_000])
    load = Load(trace, Timeline(agents=1, max_gap_s=50.0))
    arrived, *_ = times(load.run(pool(None, speed=STEPS)))
    assert arrived == [0, 1, 2 + 50]
    assert "1 pause cut to 50 s" in load.plan.notes


def test_sessions_without_times_get_stated_gaps():
    trace = trace_of(grown(1, 200, step=1), starts=[0] * 200, time_source="order_only")
    load = Load(trace, Timeline(agents=1, gap_median_s=5.0))
    assert "lognormal with median 5 s" in load.plan.notes[0]
    assert np.median(load.plan.gap[1:]) == pytest.approx(5, rel=0.3)


def test_an_empty_prompt_is_served():
    trace = trace_of([[], [1], []], starts=[0, 1, 2])
    for setting in every_backend(8, 8, speed=STEPS):
        found = Load(trace, Timeline(agents=1)).run(setting)
        assert found.served.all()
        assert found.computed_tokens == CHUNK


@pytest.mark.parametrize(
    ("timeline", "said"),
    [
        (Timeline(agents=0), "--agents 0"),
        (Timeline(kind="open-loop"), "--rate"),
        (Timeline(kind="other"), "--timeline other"),  # type: ignore[arg-type]
        (Timeline(order="other"), "--order other"),  # type: ignore[arg-type]
        (Timeline(max_gap_s=-1.0), "--max-gap -1"),
        (Timeline(gap_median_s=0.0), "--gap-median 0"),
    ],
)
def test_timelines_that_cannot_be_meant(timeline, said):
    with pytest.raises(InputError, match=said):
        Load(AGENTS, timeline)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"routing": "other"}, "--routing other"),
        ({"write_filter": "other"}, "--write-filter other"),
        ({"max_num_seqs": 0}, "--max-num-seqs 0"),
        ({"replicas": 0}, "--dp 0"),
        ({"pool_tokens": 0}, "0 tokens"),
        ({"pool_tokens": 8}, "holds no chunk"),
        ({"host_chunks": 4, "host_chunk_tokens": 24}, "multiple"),
    ],
)
def test_settings_that_cannot_be_meant(rules, said):
    with pytest.raises(InputError, match=said):
        Load(AGENTS, Timeline()).run(replace(ideal(1600), **rules))


def test_an_empty_trace_is_refused():
    with pytest.raises(InputError, match="no calls"):
        Load(trace_of([]), Timeline())


def test_a_replay_in_no_time_divides_by_nothing():
    found = Load(trace_of([[1]]), Timeline(agents=1)).run(pool(None, speed=INSTANT))
    summary = found.summary()
    assert summary["makespan_s"] == 0
    assert summary["calls_per_s"] is None


# --- results --------------------------------------------------------------------------------------


def test_sums_and_series_agree():
    setting = Setting(
        backend=find_backend("vllm"),
        pool_tokens=900 * CHUNK,
        host_chunks=3000,
        host_chunk_tokens=CHUNK,
        speed=STEPS,
    )
    found = Load(AGENTS, Timeline(agents=6)).run(setting)
    summary, series = found.summary(), found.over_time()
    assert summary["gpu_tokens"] + summary["restored_tokens"] + summary["computed_tokens"] == (
        AGENTS.array("prompt_tokens").sum()
    )
    assert series["prompt_tokens"][-1] == summary["prompt_tokens"]
    assert series["gpu_tokens"][-1] == summary["gpu_tokens"]
    # The last sample is what held until the last call ended.
    last = found.done.ended.argmax()
    assert series["live_tokens"][-1] >= found.prompt[last]
    assert series["running"][-1] == 1
    assert (series["held_chunks"] <= series["resident_chunks"]).all()
    assert (series["resident_chunks"] <= 900).all()
    assert (np.diff(series["time_s"]) >= 0).all()
    assert 0 < summary["gpu_held"] <= summary["gpu_occupancy"] <= 1
    assert summary["ttft_s"]["p50"] <= summary["ttft_s"]["p95"] <= summary["ttft_s"]["p99"]


@pytest.mark.parametrize("field", ["agents", "sessions"])
def test_copies_without_end_are_refused(field):
    with pytest.raises(InputError, match=f"--{field} 100000000: copies of sessions would make"):
        Load(sessions(3, 2), Timeline(**{"agents": 2, field: 100_000_000}))


def test_running_and_waiting_calls_are_means_over_time():
    # Two calls arrive at once where one runs at a time, each for as long: of 1 and 1 in all,
    # one runs always, the other waits half of the time.
    one = pool(None, speed=STEPS, max_num_seqs=1)
    found = Load(trace_of([[1], [2]], sessions=["a", "b"], starts=[0, 0]), Timeline(agents=2))
    summary = found.run(one).summary()
    assert summary["mean_running"] == pytest.approx(1)
    assert summary["mean_queue"] == pytest.approx(0.5)
    series = found.run(one).over_time()
    assert series["running"].tolist() == [1, 1]
    assert series["queue"].tolist() == [1, 0]


def test_too_many_replicas_are_refused():
    with pytest.raises(InputError, match="--dp 10000: must be at most 1024"):
        Load(sessions(1, 1)).run(pool(None, replicas=10_000))
