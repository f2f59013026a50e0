"""The comparison with peers: its rules, its arithmetic, what it does without them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import msgspec
import pytest

from benchmarks.measurement import Site, without_paths
from benchmarks.peers import kafka, programs, rounds, side_by_side
from benchmarks.peers.etcd import ETCD, open_etcd
from benchmarks.peers.kafka import KAFKA, open_kafka
from benchmarks.peers.loads import (
    AT_A_RATE,
    CACHED_IN_SYNC,
    FLUSHED_IN_SYNC,
    FLUSHED_ON_MAJORITY,
    LOADS,
    ONE_IN_FLIGHT,
    SINGLES,
    Load,
    Way,
    choose,
)
from benchmarks.peers.nats import NATS, NATS_ALWAYS, open_nats
from benchmarks.peers.ours import CONTENDER, OURS
from benchmarks.peers.peer import Peer, System
from benchmarks.peers.programs import BIN
from benchmarks.peers.ratios import by_load, quartiles, summarise
from benchmarks.peers.rounds import (
    Course,
    Failed,
    Rounds,
    Skipped,
    Start,
    turned,
)
from benchmarks.peers.servers import Client, ServerCluster
from benchmarks.peers.side_by_side import SYSTEMS, find_missing, measure_peers
from benchmarks.peers.timed_run import Curve, Run
from benchmarks.peers.warm_up import WarmUp, agree, run_until_settled
from logstore.errors import InvalidRequest, LogStoreError, Unreachable
from logstore.limits import SESSION_WINDOW_BYTES

COURSE = Course([SINGLES.name], seconds=1.0, warm_s=0.5, warm_up_runs=4, minutes_max=1.0)


def run(contender: str, round_: int = 1, load: Load = SINGLES, **values: float | str) -> Run:
    facts = {"round": round_, "system": contender, "contender": contender, "load": load.name}
    values = {"window_bytes": load.window_bytes, **values}
    zeros = dict.fromkeys(Run.__struct_fields__, 0) | {"error": ""}
    return msgspec.convert(
        {**zeros, "durability": FLUSHED_ON_MAJORITY, **facts, **values, "kind": "run"}, Run
    )


# --- what is offered ---


def test_names_are_chosen_in_their_order_and_others_are_refused() -> None:
    known = ["one", "two", "three"]
    assert choose("all", known, option="--x") == known
    assert choose("three, one", known, option="--x") == ["one", "three"]
    with pytest.raises(InvalidRequest, match="--x four: name some of one, two, three"):
        choose("one,four", known, option="--x")


def test_latency_is_the_figure_where_the_rate_is_given_or_one_is_in_flight() -> None:
    found = {
        load
        for load in LOADS
        if msgspec.structs.replace(
            run("x", load=load),
            rate=load.rate,
            window_bytes=load.window_bytes,
            payload_bytes=load.payload_bytes,
        ).is_for_latency
    }
    assert found == {ONE_IN_FLIGHT, AT_A_RATE}


def test_a_schedule_waits_for_no_room() -> None:
    half_a_minute = 30 * AT_A_RATE.rate * AT_A_RATE.payload_bytes
    assert half_a_minute <= AT_A_RATE.window_bytes <= SESSION_WINDOW_BYTES


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_every_system_takes_every_load_and_says_how_durable_it_is(system: System) -> None:
    assert {way.load for way in system.ways} == set(LOADS)
    named = [(way.contender, way.load) for way in system.ways]
    assert len(set(named)) == len(named)
    words = {"flushed", "page cache"}
    assert all(any(word in way.durability for word in words) for way in system.ways)


def test_kafka_packs_three_sizes_with_every_message_flushed_and_without() -> None:
    singles = [way for way in KAFKA.ways if way.load == SINGLES]
    for durability in (FLUSHED_IN_SYNC, CACHED_IN_SYNC):
        packs = {way.arguments[2] for way in singles if way.durability == durability}
        assert packs == {"16384", "65536", "1048576"}


# --- configurations ---


def test_no_configuration_has_a_name_left_to_fill_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "_format", lambda *_: None)
    monkeypatch.setattr(kafka, "_java", lambda *words: list(words))
    monkeypatch.setattr(kafka, "KafkaClient", lambda *_: None)
    for name, make in (
        ("kafka", open_kafka),
        ("nats", lambda folder: open_nats(folder, "sync_interval: always")),
        ("etcd", open_etcd),
    ):
        folder = tmp_path / name
        folder.mkdir()
        make(folder)
        written = [path.read_text() for path in folder.iterdir()]
        assert len(written) == (0 if name == "etcd" else 3)
        assert not [text for text in written if re.search(r"@\w+@", text)]
    assert "sync_interval: always" in (tmp_path / "nats" / "node-1.conf").read_text()


# --- what is missing ---


def test_a_peer_that_is_not_built_is_missing_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "BIN", tmp_path)
    assert find_missing(list(SYSTEMS)) == dict.fromkeys(
        (NATS_ALWAYS.name, NATS.name, ETCD.name, KAFKA.name),
        "not built: run tools/build-peers.sh",
    )
    for name in ("etcd", "etcdload"):
        (tmp_path / name).touch()
    assert ETCD.find_missing() == ""


def test_what_an_older_build_left_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "BIN", tmp_path)
    for name in ("etcd", "etcdload"):
        (tmp_path / name).touch()
    (tmp_path / "etcd.missing").write_text("needs Go 1.26\n")
    assert ETCD.find_missing() == "needs Go 1.26"


def test_kafka_is_missing_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "BIN", tmp_path)
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / ".complete").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "Java 17" in KAFKA.find_missing()


def test_versions_come_from_the_pins_and_from_what_programs_say() -> None:
    assert re.fullmatch(
        r"\d+\.\d+\.\d+", programs.pinned_version("nats", "github.com/nats-io/nats.go")
    )
    with pytest.raises(LogStoreError, match="requires no x"):
        programs.pinned_version("nats", "x")
    assert programs.said_version("echo", "etcd Version: 3.7.3, Go 1.26.8") == "3.7.3"
    with pytest.raises(LogStoreError, match="does not tell"):
        programs.said_version("echo", "no version")


# --- warm-up ---


def test_two_runs_agree_within_a_tenth_of_the_larger_one() -> None:
    assert agree(90.0, 100.0)
    assert agree(100.0, 90.0)
    assert not agree(89.9, 100.0)


@pytest.mark.parametrize(
    ("rates", "runs_max", "counted", "is_settled"),
    [
        ([100.0, 95.0, 1.0], 8, 2, True),
        ([50.0, 80.0, 100.0, 101.0, 1.0], 8, 4, True),
        ([10.0, 20.0, 40.0, 80.0, 80.0], 4, 4, False),
        ([10.0, 20.0, 20.0], 2, 2, False),
    ],
)
def test_a_system_is_warm_when_two_runs_agree(
    rates: list[float], runs_max: int, counted: int, is_settled: bool
) -> None:
    source = iter(rates)
    found = run_until_settled(lambda: next(source), runs_max=runs_max)
    assert found == (rates[:counted], is_settled)


# --- rounds ---


def test_each_is_first_once() -> None:
    assert [turned("abc", by)[0] for by in range(4)] == ["a", "b", "c", "a"]
    assert sorted(turned("abc", 2)) == ["a", "b", "c"]
    assert turned([], 3) == []


class NoServers:
    """A peer whose servers are this process."""

    def __init__(self, done: list[str], *, fails: bool = False) -> None:
        self.done = done
        self.fails = fails

    def start(self, node: int) -> None:
        self.done.append(f"start {node}")

    def wait_first_ack(self) -> int:
        if self.fails:
            raise Unreachable("no majority")
        return rounds.monotonic_ns()

    def pids(self) -> list[int]:
        return [os.getpid()]

    def logs(self) -> str:
        return "what the nodes wrote"

    def close(self) -> None:
        self.done.append("close")


def system(name: str, peer: NoServers, *, warm_ups: int = 0, missing: str = "") -> System:
    way = Way(name, SINGLES, FLUSHED_ON_MAJORITY)
    versions: Mapping[str, str] = {name: "1.0.0"}
    return System(
        name=name,
        ways=(way,),
        warm_ups=(way,) * warm_ups,
        durability=(FLUSHED_ON_MAJORITY, FLUSHED_ON_MAJORITY),
        find_missing=lambda: missing,
        versions=lambda: versions,
        open=lambda _: as_peer(peer),
    )


def as_peer(peer: NoServers) -> Peer:
    return peer  # type: ignore[return-value]  # loads and kills are not asked of it


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[float]]:
    """What runs find, by contender; an empty list: the run fails."""
    left: dict[str, list[float]] = {}

    def run_timed(_: Peer, way: Way, **course: object) -> tuple[Run, Curve]:
        if not left[way.contender]:
            raise Unreachable("a process ended while it was measured")
        number = int(str(course["round_"]))
        row = run(way.contender, number, payloads_per_s=left[way.contender].pop(0))
        return row, Curve(number, way.contender, way.load.name, 1, [1.0], [1.0])

    monkeypatch.setattr(rounds, "run_timed", run_timed)
    monkeypatch.setattr(rounds, "write_back", lambda: None)
    return left


def test_the_page_cache_is_written_out_before_a_start(
    tmp_path: Path, rates: dict[str, list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(rounds, "write_back", lambda: done.append("sync"))
    rates["a"] = [1.0, 1.0]
    for number in (1, 2):
        Rounds(COURSE, tmp_path, str).measure([system("a", NoServers(done))], number)
    assert done == ["sync", "start 1", "start 2", "start 3", "close"] * 2


def test_a_round_starts_warms_runs_and_leaves_nothing(
    tmp_path: Path, rates: dict[str, list[float]]
) -> None:
    rates["a"] = [10.0, 20.0, 21.0, 30.0]
    done: list[str] = []
    said: list[str] = []
    work = Rounds(COURSE, tmp_path, said.append)
    work.measure([system("a", NoServers(done), warm_ups=1)], 1)
    start, warm_up, measured = work.rows
    assert isinstance(start, Start)
    assert warm_up == WarmUp(1, "a", "a", SINGLES.name, [10.0, 20.0, 21.0], True)
    assert isinstance(measured, Run)
    assert measured.payloads_per_s == 30.0
    assert done == ["start 1", "start 2", "start 3", "close"]
    assert not list(tmp_path.iterdir())
    assert len(work.curves) == 1
    assert any("flushed on a majority before the ack" in line for line in said)


def test_nothing_is_warmed_up_where_no_run_may_be_spent_on_it(
    tmp_path: Path, rates: dict[str, list[float]]
) -> None:
    rates["a"] = [10.0]
    work = Rounds(msgspec.structs.replace(COURSE, warm_up_runs=0), tmp_path, str)
    work.measure([system("a", NoServers([]), warm_ups=1)], 1)
    assert [type(row) for row in work.rows] == [Start, Run]


def test_a_system_that_fails_loses_its_turn_and_the_others_go_on(
    tmp_path: Path, rates: dict[str, list[float]]
) -> None:
    rates.update(starts=[1.0], runs=[], whole=[1.0])
    done: list[str] = []
    said: list[str] = []
    work = Rounds(COURSE, tmp_path, said.append)
    systems = [
        system("starts", NoServers(done, fails=True)),
        system("runs", NoServers(done)),
        system("whole", NoServers(done)),
    ]
    work.measure(systems, 1)
    failed = [row for row in work.rows if isinstance(row, Failed)]
    assert [(row.system, row.what) for row in failed] == [
        ("starts", "start"),
        ("runs", f"runs, {SINGLES.name}"),
    ]
    assert [row.system for row in work.rows if isinstance(row, Run)] == ["whole"]
    assert done.count("close") == 3
    assert any("what the nodes wrote" in line for line in said)


def test_a_published_error_names_no_folder(tmp_path: Path) -> None:
    error = LogStoreError(f"{BIN}/etcd --data {tmp_path}/1 failed; it wrote: a\nb")
    assert (
        without_paths(error, tmp_path) == "CHECKOUT/benchmarks/peers/bin/etcd --data DATA/1 failed"
    )


def test_a_failed_turn_names_no_folder_outside_its_own_either(
    tmp_path: Path, rates: dict[str, list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_samples(*_: object, **course: object) -> tuple[Run, Curve]:
        raise FileNotFoundError(2, "No such file", f"{course['folder']}/samples")

    monkeypatch.setattr(rounds, "run_timed", no_samples)
    work = Rounds(COURSE, tmp_path, str)
    work.measure([system("a", NoServers([]))], 1)
    failed = work.rows[-1]
    assert isinstance(failed, Failed)
    assert failed.error == "[Errno 2] No such file: 'DATA/samples'"


def test_a_server_that_has_ended_is_no_zombie_that_is_measured(tmp_path: Path) -> None:
    cluster = ServerCluster(tmp_path, {1: ["true"]}, cast("Client", None))
    cluster.start(1)
    cluster._running[1].wait()
    with pytest.raises(Unreachable, match="node 1 has ended with status 0"):
        cluster.pids()


def test_no_turn_begins_when_the_time_is_over(tmp_path: Path) -> None:
    course = msgspec.structs.replace(COURSE, minutes_max=-1.0)
    work = Rounds(course, tmp_path, str)
    work.measure([system("a", NoServers([]))], 1)
    work.measure_failovers([system("a", NoServers([]))], 5)
    assert work.rows == [Skipped(1, "a"), Skipped(0, "a")]


def test_what_is_missing_is_told_and_the_rest_is_measured(
    tmp_path: Path, rates: dict[str, list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rates[CONTENDER] = [1.0, 2.0]
    systems = (
        system(CONTENDER, NoServers([])),
        system("kafka", NoServers([]), missing="needs a JDK"),
    )
    monkeypatch.setattr(side_by_side, "SYSTEMS", systems)
    said: list[str] = []
    found = measure_peers(
        Site(tmp_path, said.append),
        rounds=2,
        seconds=1.0,
        kills=0,
        warm_ups=2,
        minutes_max=1.0,
        systems="all",
        loads=SINGLES.name,
    )
    assert found.summary["missing"] == ["kafka: needs a JDK"]
    assert "kafka is MISSING: needs a JDK" in said
    assert found.versions == {CONTENDER: "1.0.0"}
    rate = found.summary[f"{SINGLES.name}: {CONTENDER}"]["payloads_per_s"]
    assert rate == {"median": 1.5, "low": 1.0, "high": 2.0}
    assert not list(tmp_path.iterdir())


# --- ratios ---


def test_ratios_are_made_within_rounds_and_told_with_quartiles() -> None:
    rows = [
        *(run(CONTENDER, n, payloads_per_s=rate) for n, rate in ((1, 30.0), (2, 10.0), (3, 40.0))),
        # round 2 met a slow machine: both sides
        *(run("peer", n, payloads_per_s=rate) for n, rate in ((1, 10.0), (2, 5.0), (3, 10.0))),
        run("late", 4, payloads_per_s=1.0),
    ]
    summary = summarise(rows, {}, ours=CONTENDER)
    peer = summary[f"{SINGLES.name}: peer"]
    assert peer["ours_over_it"] == {
        "payloads_per_s": {"median": 3.0, "quartile_1": 2.5, "quartile_3": 3.5}
    }  # and not of processor time: a peer's 0 is no figure
    assert peer["durability"] == FLUSHED_ON_MAJORITY
    assert peer["payloads_per_s"] == {"median": 10.0, "low": 5.0, "high": 10.0}
    assert summary[f"{SINGLES.name}: late"]["ours_over_it"] == {}
    ours = summary[f"{SINGLES.name}: {CONTENDER}"]["ours_over_it"]["payloads_per_s"]
    assert set(ours.values()) == {1.0}


def test_latencies_are_compared_where_they_are_the_figure() -> None:
    def one(contender: str, p50_ms: float) -> Run:
        figures = {"p50_ms": p50_ms, "p99_ms": 2 * p50_ms, "payload_bytes": 1_024}
        return run(contender, load=ONE_IN_FLIGHT, **figures)

    summary = summarise([one(CONTENDER, 3.0), one("peer", 1.5)], {}, ours=CONTENDER)
    line = summary[f"{ONE_IN_FLIGHT.name}: peer"]
    assert line["p50_ms"] == {"median": 1.5, "low": 1.5, "high": 1.5}
    assert {name: each["median"] for name, each in line["ours_over_it"].items()} == {
        "p50_ms": 2.0,
        "p99_ms": 2.0,
    }


def test_one_round_has_a_ratio_without_spread() -> None:
    assert quartiles([2.5]) == {"median": 2.5, "quartile_1": 2.5, "quartile_3": 2.5}


def test_a_run_with_errors_is_told_and_is_in_no_figure() -> None:
    rows = [
        run(CONTENDER, 1, payloads_per_s=10.0),
        run(CONTENDER, 2, payloads_per_s=90.0, errors=3, error="3 were not acknowledged"),
        run("peer", 1, payloads_per_s=5.0),
        run("peer", 2, payloads_per_s=5.0),
        run("broken", 1, payloads_per_s=99.0, errors=1, error="refused"),
    ]
    assert {name: len(runs) for name, runs in by_load(rows)[SINGLES.name].items()} == {
        CONTENDER: 1,
        "peer": 2,
    }
    summary = summarise(rows, {}, ours=CONTENDER)
    assert f"{SINGLES.name}: broken" not in summary
    ours, peer = (summary[f"{SINGLES.name}: {name}"] for name in (CONTENDER, "peer"))
    assert (ours["runs"], ours["payloads_per_s"]["median"]) == (1, 10.0)
    assert peer["ours_over_it"]["payloads_per_s"]["median"] == 2.0
    assert summary["with_errors"] == [
        f"{CONTENDER}, {SINGLES.name}, round 2: 3, 3 were not acknowledged",
        f"broken, {SINGLES.name}, round 1: 1, refused",
    ]


def test_what_did_not_go_as_it_should_is_in_the_summary() -> None:
    rows = [
        WarmUp(2, "kafka", "Kafka, 16 KiB", SINGLES.name, [1.0, 2.0], False),
        WarmUp(3, "kafka", "Kafka, 16 KiB", SINGLES.name, [2.0, 2.0], True),
        Failed(1, "etcd", "start", "no majority"),
        Skipped(5, "nats"),
    ]
    summary = summarise(rows, {}, ours=OURS.name)
    assert summary["not_settled"] == ["Kafka, 16 KiB, round 2"]
    assert summary["failed"] == ["etcd, round 1, start: no majority"]
    assert summary["skipped"] == ["nats, round 5"]
