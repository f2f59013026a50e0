"""What the figures of failovers are made of: moments from log lines, parts, when a cluster is
whole."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from benchmarks import leader_failover, leader_faults
from benchmarks.append_probe import Acknowledged, RecentAcknowledgements
from benchmarks.failover_split import PARTS, Happened, Moment, Split, read_moments, split
from benchmarks.leader_failover import (
    FailoverRow,
    draw_failover,
    make_row,
    measure_failovers,
    summarise,
)
from benchmarks.leader_faults import ALL, KINDS, LINK, Kind, Struck, StruckCluster, is_whole
from benchmarks.results import Result, as_read
from logstore.config import Config
from logstore.config_layout import with_mode
from logstore.errors import LogStoreError, Unreachable
from logstore.settings import ClusterSettings, NodeSettings

MS = 1_000_000
LOG = """\
2026-11-23 10:00:00,100 WARNING struck node 2 raft: node 2 campaigns in term 3
2026-11-23 10:00:00,130 WARNING struck node 2 raft: node 2 leads term 3 after entry 77
2026-11-23 10:00:00,190 INFO struck node 2 ingress: admission is open in term 3 with 1 sessions
2026-11-23 10:00:00,200 WARNING struck node 1 raft: node 1 stops leading term 2: a newer term
a line that nobody wrote
"""


def test_moments_are_read_from_what_replicas_say() -> None:
    found = read_moments(LOG)
    assert [(each.node, each.what, each.term) for each in found] == [
        (2, Happened.CAMPAIGNS, 3),
        (2, Happened.LEADS, 3),
        (2, Happened.ADMITS, 3),
    ]
    assert [each.at_ns - found[0].at_ns for each in found] == [0, 30 * MS, 90 * MS]
    first = time.localtime(found[0].at_ns // 1_000_000_000)
    assert (first.tm_hour, first.tm_min, found[0].at_ns % 1_000_000_000) == (10, 0, 100 * MS)


def test_a_change_of_leader_has_four_parts_that_add_up() -> None:
    moments = read_moments(LOG)
    fault_ns = moments[0].at_ns - 1_000 * MS
    found = split(fault_ns, moments[0].at_ns + 140 * MS, moments)
    assert found == Split(1_000.0, 30.0, 60.0, 50.0, new_leader=2)


def test_without_a_change_of_leader_all_is_the_clients() -> None:
    moments = read_moments(LOG)
    after_ns = moments[-1].at_ns + 5 * MS
    assert split(after_ns, after_ns + 7 * MS, moments) == Split(0.0, 0.0, 0.0, 7.0, new_leader=0)


def test_what_happens_after_the_acknowledgement_does_not_count() -> None:
    moments = read_moments(LOG)
    fault_ns = moments[0].at_ns - 20 * MS
    assert split(fault_ns, fault_ns + 5 * MS, moments).new_leader == 0


def test_a_lost_election_belongs_to_the_election() -> None:
    moments = [
        Moment(10 * MS, 2, Happened.CAMPAIGNS, 3),
        Moment(60 * MS, 3, Happened.CAMPAIGNS, 4),
        Moment(65 * MS, 3, Happened.LEADS, 4),
        Moment(70 * MS, 3, Happened.ADMITS, 4),
    ]
    assert split(0, 80 * MS, moments) == Split(10.0, 55.0, 5.0, 10.0, new_leader=3)


def test_stamps_that_are_cut_to_milliseconds_make_no_part_negative() -> None:
    moments = [
        Moment(0, 2, Happened.CAMPAIGNS, 3),
        Moment(0, 2, Happened.LEADS, 3),
    ]
    found = split(400_000, 2 * MS, moments)
    assert found == Split(0.0, 0.0, 0.0, 1.6, new_leader=2)


def test_the_first_acknowledgement_of_an_append_sent_after_a_moment_is_found() -> None:
    recent = RecentAcknowledgements()
    for appended_ns in (10, 20, 30):
        recent.add(Acknowledged(appended_ns, appended_ns + 100))
    assert recent.wait_for_first(sent_after_ns=10, timeout_s=0.0) == Acknowledged(20, 120)
    with pytest.raises(Unreachable, match="no append was acknowledged"):
        recent.wait_for_first(sent_after_ns=30, timeout_s=0.0)
    with ThreadPoolExecutor() as pool:
        found = pool.submit(recent.wait_for_first, sent_after_ns=30, timeout_s=60.0)
        recent.add(Acknowledged(40, 400))
        recent.add(Acknowledged(50, 401))
    assert found.result() == Acknowledged(40, 400)
    recent.end()
    with pytest.raises(Unreachable, match="ended"):
        recent.wait_for_first(sent_after_ns=50, timeout_s=60.0)


def counters(**changed: int) -> dict[str, int]:
    return {"visible": 5, "term": 2, "is_leader": 0, "raft.pid": 10, "egress.pid": 11, **changed}


def test_a_cluster_is_whole_when_all_run_and_follow_one_leader() -> None:
    followers = [counters(), counters()]
    assert is_whole([counters(is_leader=1), *followers])
    assert not is_whole([counters(), *followers])
    assert not is_whole([counters(is_leader=1), counters(is_leader=1), counters()])
    assert not is_whole([counters(is_leader=1, term=1), *followers])
    assert not is_whole([counters(is_leader=1), counters(visible=0), counters()])
    assert not is_whole([counters(is_leader=1, **{"egress.pid": 0}), *followers])
    assert not is_whole([{}, *followers])
    assert not is_whole([counters(is_leader=1, **{"egress.loops": 0}), *followers])
    assert is_whole([counters(is_leader=1, **{"supervisor.loops": 0}), *followers])


class Target(StruckCluster):
    """A leader of made-up processes."""

    def __init__(self) -> None:
        nodes = [NodeSettings(node=node, port=7_000 + 10 * node) for node in (1, 2, 3)]
        config = Config(cluster=ClusterSettings(name="made-up"), nodes=nodes)
        self.config = with_mode(config, "processes")
        self._random = leader_faults.Random(1)
        self._network = None
        self._cpus = {}

    def wait_for_leader(self, *_: Any, **__: Any) -> int:
        return 3

    def counters(self, node: int) -> dict[str, int]:
        return {"last_index": 10 * node}

    def processes(self, node: int) -> dict[str, int]:
        names = ("supervisor", "ingress", "raft", "writer", "replicator-1", "replicator-2")
        return {name: 100 * node + at for at, name in enumerate(names)}


def test_a_fault_reaches_what_its_kind_names(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(leader_faults.os, "kill", lambda pid, number: sent.append((pid, number)))
    cluster = Target()
    for kind in KINDS:
        if kind.strikes in (LINK, "egress"):
            with pytest.raises(Unreachable, match="no (links to cut|egress now)"):
                cluster.strike(kind)
            continue
        struck = cluster.strike(kind)
        assert (struck.kind, struck.node, struck.entries) == (kind, 3, 30)
        assert struck.before_ns <= struck.after_ns
        assert struck.pid == (0 if kind.signal == signal.SIGSTOP else abs(sent[-1][0]))
    replicators = {pid for pid, _ in sent} & {304, 305}
    assert len(replicators) == 1
    assert [each for each in sent if each[0] not in replicators] == [
        (-300, signal.SIGKILL),
        (300, signal.SIGKILL),
        (301, signal.SIGKILL),
        (302, signal.SIGKILL),
        (303, signal.SIGKILL),
        (-300, signal.SIGSTOP),
    ]


class Restarting(StruckCluster):
    """Three replicas; of node 1 the file of counters is still that of the killed one at first."""

    def __init__(self, *pids: int) -> None:
        self._pids = iter(pids)
        self._pid = 0
        self.looks = 0

    @property
    def nodes(self) -> list[int]:
        return [1, 2, 3]

    def start_all(self) -> None:
        pass

    def processes(self, node: int) -> dict[str, int]:
        if node == 1:
            self.looks += 1
            self._pid = next(self._pids, self._pid)
        return {"supervisor": self._pid if node == 1 else 100 * node}

    def counters(self, node: int) -> dict[str, int]:
        return counters(is_leader=int(node == 2))


def test_a_cluster_is_not_whole_while_a_killed_process_is_still_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def look_ten_times(is_true: Callable[[], bool], _: float) -> bool:
        return any(is_true() for _ in range(10))

    monkeypatch.setattr(leader_faults, "poll_until", look_ten_times)
    cluster = Restarting(17, 17, 0, 18)
    cluster.wait_until_whole(without_pid=17)
    assert cluster.looks == 3
    cluster = Restarting(17)
    cluster.wait_until_whole()
    assert cluster.looks == 1


def row(number: int, kind: str, total_ms: float, *, new_leader: int) -> FailoverRow:
    struck = Struck(Kind(kind, ALL), 1, 70, 0, 50_000)
    parts = Split(total_ms - 3, 1.0, 1.0, 1.0, new_leader)
    return make_row(number, struck, Acknowledged(1 * MS, int(total_ms * MS)), parts, whole_s=2.0)


ROWS = [
    *(
        row(at, "replica killed", each, new_leader=2)
        for at, each in enumerate((900.0, 700.0, 800.0))
    ),
    row(3, "egress killed", 5.0, new_leader=0),
    FailoverRow(0, "link cut", skipped="no network here"),
]


def test_each_kind_has_its_medians_and_what_was_skipped_says_why() -> None:
    found = summarise(ROWS)
    killed = found["replica killed"]
    assert (killed["faults"], killed["leader_changes"]) == (3, 3)
    assert (killed["median_ms"], killed["most_ms"]) == (800.0, 900.0)
    assert "p99_ms" not in killed  # of three it is their maximum
    assert killed["detect_ms"] == 797.0
    assert found["every change of leader"]["faults"] == 3
    assert found["link cut"] == {"skipped": "no network here"}


def test_of_a_hundred_faults_there_is_a_p99() -> None:
    found = summarise([row(at, "replica killed", float(at), new_leader=2) for at in range(100)])
    assert found["replica killed"]["p99_ms"] == 98.0


def test_a_fault_that_was_not_survived_is_told_and_counts_in_no_median() -> None:
    found = summarise([*ROWS, FailoverRow(4, "replica killed", failed="no append goes on")])
    assert found["failed"] == ["4, replica killed: no append goes on"]
    assert found["replica killed"]["faults"] == 3


def test_each_kind_that_was_measured_has_a_bar_of_its_parts() -> None:
    result = as_read(Result("failover", {}, "", list(ROWS), summarise(ROWS)))
    axes = draw_failover(result, [])["failover"].axes[0]
    bars = ["replica killed", "egress killed", "every change of leader"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == bars[::-1]
    assert len(axes.containers) == len(PARTS)
    assert [text.get_text() for text in axes.texts][-1] == "800, at most 900"


class Faults:
    """Instead of a cluster: notes which kinds strike."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def measure(self, _: Any, __: Any, number: int, kind: Kind, ___: Any) -> FailoverRow:
        self.kinds.append(kind.name)
        return row(number, kind.name, 10.0, new_leader=0)


@pytest.mark.parametrize("why_not", ["", "this is no root"])
def test_kinds_take_turns_and_a_link_is_cut_only_where_it_can_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, why_not: str
) -> None:
    faults, said = Faults(), []
    monkeypatch.setattr(leader_failover, "why_no_switch", lambda: why_not)
    monkeypatch.setattr(leader_failover, "_measure", faults.measure)
    monkeypatch.setattr(leader_failover, "_struck_cluster", entered)
    rows = measure_failovers(tmp_path, faults=19, seed=1, say=said.append)
    names = [kind.name for kind in KINDS if not why_not or kind.strikes != LINK]
    assert faults.kinds == [names[at % len(names)] for at in range(19)]
    skipped = [(each.kind, each.skipped) for each in rows if each.skipped]
    assert skipped == ([("link cut", why_not)] if why_not else [])


class Fragile:
    """Instead of a cluster: notes each one that is made; some faults are not survived."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *fatal: int, error: Exception) -> None:
        self.made = 0
        self.struck: list[int] = []
        self._fatal = fatal
        self._error = error
        monkeypatch.setattr(leader_failover, "why_no_switch", lambda: "this is no root")
        monkeypatch.setattr(leader_failover, "_struck_cluster", self.enter)
        monkeypatch.setattr(leader_failover, "_measure", self.measure)

    @leader_failover.contextmanager
    def enter(self, *_: Any, **__: Any) -> Any:
        self.made += 1
        yield None, None

    def measure(self, _: Any, __: Any, number: int, kind: Kind, ___: Any) -> FailoverRow:
        self.struck.append(number)
        if number in self._fatal:
            raise self._error
        return row(number, kind.name, 10.0, new_leader=0)


def test_after_a_fault_that_is_not_survived_a_new_cluster_takes_the_next_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    error = FileNotFoundError(2, "No such file", f"{tmp_path}/log")
    clusters = Fragile(monkeypatch, 2, 4, error=error)
    said: list[str] = []
    rows = measure_failovers(tmp_path, faults=5, seed=1, say=said.append)
    assert (clusters.struck, clusters.made) == ([1, 2, 3, 4, 5], 3)
    assert [each.number for each in rows if each.failed] == [2, 4]
    assert rows[2].failed == "[Errno 2] No such file: 'DATA/log'"


def test_a_machine_on_which_all_fails_is_not_asked_to_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    error = Unreachable("no append goes on")
    clusters = Fragile(monkeypatch, *range(3, 100), error=error)
    rows = measure_failovers(tmp_path, faults=7, seed=1, say=str)
    assert clusters.struck == [1, 2, 3, 4, 5]
    assert [each.number for each in rows if not each.failed and not each.skipped] == [1, 2]
    reasons = ["no append goes on"] * 3 + ["not measured, as 3 in a row had failed"] * 2
    assert [each.failed for each in rows if each.failed] == reasons
    Fragile(monkeypatch, *range(100), error=error)
    with pytest.raises(LogStoreError, match="no fault was survived; .* no append goes on"):
        measure_failovers(tmp_path, faults=7, seed=1, say=str)


@leader_failover.contextmanager
def entered(*_: Any, **__: Any) -> Any:
    yield None, None
