"""Stamps joined by index: where an append's time goes, and who made its majority."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.cli.explain.breakdown import (
    AWAY,
    PATH_STAGES,
    STAGES,
    join_samples,
    path_times,
    percentile,
    stage_times,
)
from logstore.cli.explain.explanation import explain_readings
from logstore.cli.explain.readings import Readings
from tests.unit.explain_stage import (
    ACKNOWLEDGED,
    APPENDED,
    COMMITTED,
    FORMED,
    MS,
    TOTAL,
    WRITTEN,
    Times,
    readings,
)


def joined(found: Readings):
    return join_samples(found.replicas[1], {node: found.replicas.get(node) for node in (2, 3)})


def medians(stages) -> dict[str, float]:
    return {each.stage: each.median_ms for each in stages}


def test_an_appends_time_is_the_sum_of_its_stages() -> None:
    times = Times()
    times.append(5, at_ms=10)
    (sample,) = joined(readings(times))
    stages = {name: ns / MS for name, ns in sample.stages.items()}
    assert list(stages) == list(STAGES)
    assert stages == {
        "ingress": FORMED,
        "raft": APPENDED,
        "majority": sum(WRITTEN),
        "commit": COMMITTED,
        "acknowledgement": ACKNOWLEDGED,
        "total": TOTAL,
    }
    assert sample.decided_by == 1, "node 2 has it before, node 3 after the leader"


def test_a_followers_time_is_of_its_own_clock_and_the_network_is_the_rest() -> None:
    times = Times()
    times.append(5, at_ms=10)
    (sample,) = joined(readings(times))
    paths = {node: {n: ns / MS for n, ns in path.items()} for node, path in sample.paths.items()}
    writer = {"writer": 3, "data_flush": 4, "records_wait": 0, "records_flush": 5, "total": 12}
    assert paths[1] == writer
    inside = {"ingress": 1, "raft": 1, "writer": 1, "data_flush": 2, "records_wait": 0}
    rest = {"records_flush": 2, "answer": 1}
    assert paths[2] == {"send": 1, "network": 1, **inside, **rest, "total": 10}
    assert paths[3] == paths[2] | {"data_flush": 20, "total": 28}


def test_the_share_of_majorities_that_each_replica_made_is_told() -> None:
    times = Times()
    for number in range(4):
        times.append(5 + 5 * number, at_ms=50 * number, slower_ms=100 if number == 3 else 0)
    samples = joined(readings(times))
    assert [each.decided_by for each in samples] == [1, 1, 1, 3]
    leader, second, third = path_times(samples, 1)
    assert [leader.node, second.node, third.node] == [1, 2, 3]
    assert [leader.decides, second.decides, third.decides] == [0.75, 0.0, 0.25]
    assert (leader.is_leader, second.is_leader) == (True, False)
    assert [each.stage for each in second.stages] == [each for each in PATH_STAGES if each != AWAY]
    assert [each.stage for each in leader.stages] == [*PATH_STAGES[4:8], "total"]


def test_medians_p99s_and_shares_of_the_stages() -> None:
    times = Times()
    for number in range(100):
        slower_ms = 10 if number in (7, 8) else 0
        times.append(5 + 5 * number, at_ms=50 * number, slower_ms=slower_ms)
    stages = stage_times(joined(readings(times, seconds=10)))
    by_name = {each.stage: each for each in stages}
    assert [each.stage for each in stages] == list(STAGES)
    assert all(each.count == 100 for each in stages)
    majority, total = by_name["majority"], by_name["total"]
    assert (majority.median_ms, majority.p99_ms) == (12, 22)
    assert (total.median_ms, total.p99_ms, total.share) == (17, 27, 1.0)
    assert majority.share == round((98 * 12 + 2 * 22) / (98 * 17 + 2 * 27), 4)
    assert sum(each.share for each in stages[:-1]) == pytest.approx(1.0, abs=1e-3)


def test_a_follower_that_does_not_answer_leaves_the_way_there_and_back() -> None:
    times = Times()
    times.append(5)
    found = readings(times, silent=(2,))
    (sample,) = joined(found)
    path = {name: ns / MS for name, ns in sample.paths[2].items()}
    assert path == {"send": 1, "away": 9, "total": 10}
    assert explain_readings(found).silent == {2: "it does not answer"}


def test_entries_that_passed_before_the_measurement_are_left_out() -> None:
    times = Times()
    times.append(5, at_ms=-1)
    times.append(10, at_ms=0)
    assert len(joined(readings(times))) == 1


@pytest.mark.parametrize(
    ("node", "point"), [(1, "proposed"), (1, "appended"), (1, "committed"), (1, "acknowledged")]
)
def test_an_entry_with_a_stamp_too_few_is_left_out(node: int, point: str) -> None:
    times = Times()
    times.append(5)
    times.append(10)
    del times.stamps[node][point][5]
    assert len(joined(readings(times))) == 1


def test_an_entry_whose_stamps_do_not_rise_is_left_out() -> None:
    """Its index was used again, by the leader of a newer term."""
    times = Times()
    times.append(5)
    times.stamps[1]["proposed"][5] += 1_000 * MS
    assert joined(readings(times)) == []


def test_a_path_whose_stamps_are_gone_does_not_make_a_majority() -> None:
    """Without the path that decided, an entry would seem to be durable after its commit."""
    times = Times()
    times.append(5)
    times.append(10, at_ms=40)
    del times.stamps[1]["records_flushed"][5]
    (sample,) = joined(readings(times))
    assert sample.decided_by == 1


def test_a_follower_that_took_longer_than_its_leader_waited_is_left_out() -> None:
    """Its stamps are of another time that it got the entry."""
    times = Times()
    times.append(5)
    times.stamps[2]["answered"][5] += 50 * MS
    assert joined(readings(times)) == [], "two of three do not say who decided"


def test_nothing_sampled_is_nothing_to_tell() -> None:
    found = readings()
    assert joined(found) == stage_times([]) == path_times([], 1) == []


def test_a_percentile_is_the_lowest_value_that_so_many_do_not_exceed() -> None:
    values = list(range(1, 201))
    assert percentile(values, 0.5) == 100
    assert percentile(values, 0.99) == 198
    assert percentile([3.0], 0.99) == 3.0
    assert percentile([], 0.5) == 0.0


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_percentiles_are_as_counting_gives_them(values: list[float], fraction: float) -> None:
    found = percentile(values, fraction)
    wanted = next(
        v for v in sorted(values) if sum(w <= v for w in values) >= fraction * len(values)
    )
    assert found == wanted
