"""How busy processes and disks are, and which stage is said to bound throughput."""

from __future__ import annotations

import msgspec
import pytest

from actors.loop_usage import USAGE
from actors.topology import PROCESS_GAUGES
from logstore.cli.explain.bottleneck import (
    IDLE,
    IN_FLIGHT,
    NOTHING,
    PROCESSORS,
    STUCK,
    Bound,
    awaited_nodes,
)
from logstore.cli.explain.explanation import Explanation, explain_readings
from logstore.cli.explain.readings import put_together
from logstore.cli.explain.utilisation import flush_uses, process_uses
from tests.unit.explain_stage import CLOCKS, MS, SECOND, Times, busy, readings, trace

ACKNOWLEDGED = {"groups_committed": 200, "payloads_acknowledged": 5_000}
ACKNOWLEDGED |= {"payload_bytes_acknowledged": 4_000_000}


def sampled() -> Times:
    times = Times()
    for number in range(10):
        times.append(5 + 5 * number, at_ms=50 * number)
    return times


def explained(
    use: dict[int, dict[str, dict[str, int]]] | None = None,
    *,
    flushed: dict[int, dict[str, int]] | None = None,
    traffic: dict[str, int] | None = None,
    times: Times | None = None,
    **fields,
) -> Explanation:
    counters = {1: ACKNOWLEDGED if traffic is None else traffic}
    for node, each in (flushed or {}).items():
        counters[node] = counters.get(node, {}) | {"flushes": 400} | each
    found = sampled() if times is None else times
    return explain_readings(readings(found, counters=counters, use=use, **fields))


def bound_of(*args, **kwargs) -> Bound:
    bound = explained(*args, **kwargs).bound
    assert bound is not None
    return bound


def test_a_process_is_busy_while_it_is_not_idle_and_its_wake_ups_are_counted_by_kind() -> None:
    wakes = {"bell_wakes": 600, "socket_wakes": 200, "timer_wakes": 20, "empty_wakes": 30}
    found = readings(use={1: {"raft": busy(0.25, cpu=0.2, turns=2_000, **wakes)}})
    (raft,) = [each for each in process_uses(1, found.replicas[1]) if each.process == "raft"]
    assert (raft.busy, raft.cpu, raft.turns) == (0.25, 0.2, 1_000.0)
    assert (raft.bell_wakes, raft.socket_wakes, raft.timer_wakes) == (300.0, 100.0, 10.0)
    assert (raft.wakes, raft.empty_wakes) == (410.0, 15.0)


def test_what_a_process_did_before_the_measurement_does_not_count() -> None:
    """It publishes once a second: what it had published at the first answer is older."""

    def answer(at_s: float, published_s: float, turns: int):
        use = busy(0.0) | {"measured_ns": CLOCKS[1] + int(published_s * SECOND), "turns": turns}
        return {1: trace(1, at_s=at_s, use={"raft": use})}

    def turns_of(*answers) -> float:
        found = put_together(answers).replicas[1]
        return next(each.turns for each in process_uses(1, found) if each.process == "raft")

    first, second = answer(5, 4.5, 1_000), answer(6, 5.5, 4_000)
    assert turns_of(first, second, answer(7, 6.5, 4_030), answer(8, 7.5, 4_060)) == 30.0
    assert turns_of(first, second) == 3_000.0, "if there is nothing else"


def test_a_process_that_was_started_again_or_published_nothing_has_no_usage() -> None:
    found = readings(use={1: {"egress": {"pid": 999}, "replicator-2": {"measured_ns": 0}}})
    names = [each.process for each in process_uses(1, found.replicas[1])]
    assert names == ["writer", "raft", "ingress", "replicator-3"], "the supervisor has no such loop"


def test_a_group_is_one_process_and_is_passed_where_one_of_its_actors_is() -> None:
    rows = {
        "supervisor": {"pid": 7, "measured_ns": 0},
        "core": busy(0.9) | {"pid": 8, "turns": 600, "measured_ns": 2 * SECOND},
        "senders": {"pid": 9, "measured_ns": 2 * SECOND},
    }
    began = {name: {"pid": row["pid"], "measured_ns": 5} for name, row in rows.items()}
    layout = {"core": ("writer", "raft", "ingress"), "senders": ("egress", "replicator-2")}
    found = readings()
    first = msgspec.structs.replace(trace(1), processes=_whole(began), layout=layout)
    last = trace(1, at_s=2.0, counters=ACKNOWLEDGED)
    last = msgspec.structs.replace(last, processes=_whole(rows), layout=layout)
    found.replicas[1] = type(found.replicas[1])(first, last, {}, first.processes)
    core, senders = process_uses(1, found.replicas[1])
    assert (core.process, core.actors) == ("core", layout["core"])
    assert (round(core.busy, 1), round(core.turns)) == (0.9, 300)
    assert senders.actors == layout["senders"]
    bound = explain_readings(found).bound
    assert bound is not None
    assert (bound.kind, bound.node) == ("core process", 1)


def _whole(rows: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {name: dict.fromkeys((*PROCESS_GAUGES, *USAGE), 0) | row for name, row in rows.items()}


def test_flushes_have_their_rate_their_times_and_how_busy_they_keep_the_disk() -> None:
    counters = {"flushes": 400, "data_flush_ns": 1_000 * MS, "record_flush_ns": 500 * MS}
    found = readings(sampled(), counters={1: counters})
    data, records = flush_uses(1, found.replicas[1])
    assert (data.kind, records.kind) == ("data", "records")
    assert data.per_s == records.per_s == 100.0
    assert (data.mean_ms, records.mean_ms) == (5.0, 2.5)
    assert (data.busy, records.busy) == (0.5, 0.25)
    assert (data.p99_ms, records.p99_ms) == (4.0, 5.0)
    assert flush_uses(2, found.replicas[2]) == []


def test_entries_of_one_flush_count_once_in_its_percentile() -> None:
    times = Times()
    for number in range(99):
        times.append(5 + 5 * number, at_ms=50 * number)
    writes = ("write_begun", "data_flushed")
    for number in range(30):  # one slow flush of many entries
        times.put(1, writes, 1_000 + 5 * number, 7_000, 7_900)
    found = readings(times, seconds=10, counters={1: {"flushes": 200}})
    assert flush_uses(1, found.replicas[1])[0].p99_ms == 4.0


def test_traffic_and_the_groups_in_flight_by_littles_law() -> None:
    traffic = explained().traffic
    assert traffic is not None
    assert (traffic.groups_per_s, traffic.payloads_per_s) == (100.0, 2_500.0)
    assert (traffic.payloads_per_group, traffic.mb_per_s) == (25.0, 2.0)
    # each is 16 ms between proposal and acknowledgement
    assert (traffic.groups_in_flight, traffic.groups_in_flight_max) == (1.6, 16)


def test_wake_ups_a_group_are_those_of_all_processes() -> None:
    use = {1: {"raft": busy(0.1, bell_wakes=400)}, 3: {"writer": busy(0.1, timer_wakes=200)}}
    assert explained(use).wakes_per_group == 3.0


@pytest.mark.parametrize(
    ("node", "process"), [(1, "ingress"), (1, "raft"), (1, "replicator-2"), (2, "raft")]
)
def test_the_busiest_process_that_appends_pass_bounds(node: int, process: str) -> None:
    use = {1: {"raft": busy(0.3)}}
    use.setdefault(node, {})[process] = busy(0.93, cpu=0.9)
    bound = bound_of(use, flushed={1: {"data_flush_ns": SECOND}})
    assert (bound.kind, bound.node, bound.busy) == (process, node, 0.93)
    assert bound.words.startswith(
        f"The {process} of node {node} bounds throughput now: it is busy 93% of the time, 90% on a"
        " processor; next is "
    )


def test_a_process_that_waits_for_processors_says_so() -> None:
    bound = bound_of({1: {"raft": busy(0.9, cpu=0.5, wait_ns=8 * SECOND // 10)}})
    assert "50% on a processor, and waits for one 40% of it: the machine has too few" in bound.words


def test_a_process_is_busy_while_it_waits_for_a_processor_after_a_wake_up() -> None:
    """Its loop takes that for idle."""
    use = busy(0.3, run_ns=6 * SECOND // 10, wait_ns=12 * SECOND // 10)
    bound = bound_of({1: {"raft": use}})
    assert (bound.kind, bound.busy) == ("raft", 0.9)


def test_processors_bound_where_many_wait_a_little() -> None:
    use = busy(0.3, run_ns=6 * SECOND // 10, wait_ns=4 * SECOND // 10)
    bound = bound_of({1: {"raft": use, "ingress": use}, 2: {"raft": use}})
    assert bound.kind == PROCESSORS
    assert bound.words.startswith(
        "Processors bound throughput now: the processes that appends pass want one for 150% of the "
        "time together, and wait for it in 40% of that; the busiest stage, "
    )


def test_a_writer_counts_by_what_its_loop_works_not_by_its_flushes() -> None:
    assert bound_of({1: {"writer": busy(1.0)}}).kind == NOTHING
    works = busy(1.0, run_ns=17 * SECOND // 10)
    bound = bound_of({1: {"writer": works}})
    assert (bound.kind, bound.node, bound.busy) == ("writer", 1, 0.85)


def test_an_awaited_node_that_was_not_measured_is_named() -> None:
    bound = bound_of({1: {"raft": busy(0.5)}}, silent=(2,))
    assert (bound.kind, bound.node) == (NOTHING, 2)
    assert "Nothing that was measured bounds throughput now" in bound.words
    assert "Commits wait for node 2, of which nothing is known." in bound.words
    assert "more can be offered" not in bound.words


def test_entries_that_wait_while_nothing_is_acknowledged_are_told() -> None:
    bound = bound_of(traffic={"last_index": 50, "commit_index": 38}, times=Times())
    assert bound.kind == STUCK
    assert "Nothing was acknowledged meanwhile, and 12 entries wait to be committed" in bound.words


def test_a_group_in_ten_minutes_is_traffic() -> None:
    found = explained(traffic={"groups_committed": 1}, seconds=600.0)
    assert found.bound is not None
    assert found.bound.kind != IDLE
    assert found.wakes_per_group == 0.0


def test_a_flush_that_began_before_keeps_no_disk_more_than_busy() -> None:
    found = readings(counters={1: {"flushes": 2, "data_flush_ns": 3 * SECOND}})
    assert flush_uses(1, found.replicas[1])[0].busy == 1.0


@pytest.mark.parametrize(
    ("counter", "kind"), [("data_flush_ns", "data flush"), ("record_flush_ns", "records flush")]
)
def test_a_disk_that_flushes_all_the_time_bounds(counter: str, kind: str) -> None:
    bound = bound_of(flushed={2: {counter: 1_900 * MS}, 1: {counter: 1_000 * MS}})
    assert (bound.kind, bound.node, bound.busy) == (kind, 2, 0.95)
    assert f"The {kind} of node 2 bounds" in bound.words
    assert (
        "one is under way 95% of the time, 100/s of 9.50 ms, for groups of 20.0 kB, which would "
        "carry more in about the same time if more were in flight or batches were larger; next is"
    ) in bound.words


def test_what_commits_do_not_wait_for_bounds_nothing() -> None:
    """Node 3 is the slower follower; egress, the supervisor and its replicator are on no path."""
    use = {1: {"replicator-3": busy(1.0), "egress": busy(1.0)}, 3: {"raft": busy(1.0)}}
    bound = bound_of(use, flushed={3: {"data_flush_ns": 2_000 * MS}})
    assert bound.kind == NOTHING


def test_nodes_that_are_awaited_are_the_quickest_majority() -> None:
    paths = explained().paths
    assert awaited_nodes(paths, 3) == {1, 2}
    assert awaited_nodes(paths[:1], 1) == {1}
    assert awaited_nodes([], 3) == set()
    assert awaited_nodes(paths, 5) == {1, 2, 3}, "two of five are down"


def test_without_a_sample_the_leader_counts() -> None:
    bound = bound_of({1: {"ingress": busy(0.9)}, 2: {"raft": busy(1.0)}}, times=Times())
    assert (bound.kind, bound.node) == ("ingress", 1)


def test_the_number_of_groups_in_flight_bounds_where_nothing_is_busy() -> None:
    bound = bound_of({1: {"raft": busy(0.5)}}, traffic={"groups_committed": 2_000})
    assert bound.kind == IN_FLIGHT
    assert "16.0 of at most 16 on average, while the busiest stage, raft of node 1," in bound.words


def test_where_nothing_bounds_the_longest_wait_is_named() -> None:
    bound = bound_of({1: {"raft": busy(0.5)}})
    assert (bound.kind, bound.node, bound.busy) == (NOTHING, 0, 0.5)
    assert bound.words == (
        "Nothing in the cluster bounds throughput now: the busiest stage, raft of node 1, is busy"
        " 50% of the time; more can be offered. An append waits longest for its record to be"
        " flushed on node 1: 29% of its time."
    )


def test_a_wait_of_the_leader_itself_is_named_in_its_words() -> None:
    times = Times()
    times.append(5)
    times.stamps[1]["received"][5] -= 0
    times.stamps[1]["acknowledged"][5] += 900 * MS
    bound = bound_of(times=times)
    assert "An append waits longest for ingress to acknowledge it: 9" in bound.words


def test_a_wait_in_a_follower_names_the_follower() -> None:
    times = Times()
    times.append(5, slower_ms=100)  # node 3 makes the majority; node 2 is before it
    assert "for its data to be flushed on node 3" in bound_of(times=times).words


def test_where_nothing_is_appended_nothing_is_bounded() -> None:
    bound = bound_of({1: {"raft": busy(1.0)}}, traffic={}, times=Times())
    assert bound == Bound(IDLE, 0, 0.0, "Nothing was appended meanwhile: nothing is bounded.")


def test_without_a_leader_there_is_only_what_processes_and_disks_do() -> None:
    found = explained({2: {"raft": busy(0.5)}}, flushed={2: {"data_flush_ns": MS}}, leader=0)
    assert found.leader == 0
    assert found.bound is found.traffic is None
    assert found.stages == found.paths == []
    assert any(each.busy == 0.5 for each in found.processes)
    assert found.flushes[0].node == 2
