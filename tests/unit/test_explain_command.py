"""`logstore explain` against played replicas: how they are asked, what is shown or missing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from logstore.cli.explain import readings as readings_module
from logstore.cli.explain.explain_tables import show
from logstore.cli.explain.explanation import explain_readings
from logstore.cli.explain.readings import put_together
from logstore.cli.output import Terminal
from logstore.client.client import connect
from logstore.client.replica_trace import ReplicaTrace, parse_trace
from logstore.errors import ErrorCode, FormatError
from logstore.format.client_messages import ErrorReply, TraceReply, TraceRequest
from tests.unit.cli_stage import run
from tests.unit.client_stage import Cluster, FakeReplica
from tests.unit.explain_stage import NODES, Times, busy, readings, trace
from tests.unit.ingress_stage import Stage as IngressStage

OLD = ErrorReply(ErrorCode.INVALID_REQUEST, 0, 0, 0, b"unknown message type 85")
COUNTERS = {1: {"groups_committed": 100, "flushes": 40, "payloads_acknowledged": 300}}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """They are asked twice, without a wait between."""
    monkeypatch.setenv("COLUMNS", "200")
    left_ms = itertools.cycle([1_000, 0])
    monkeypatch.setattr(readings_module, "milliseconds_until", lambda _: next(left_ms))
    monkeypatch.setattr(readings_module.time, "sleep", lambda _: None)
    with Cluster(nodes=3) as cluster:
        monkeypatch.setenv("LOGSTORE_ENDPOINT", cluster.endpoint)
        yield cluster


def play(replica: FakeReplica, *traces: ReplicaTrace) -> None:
    """Give these answers, one after the other, the last one for ever."""
    replica.answer_in_turn(TraceRequest, *(TraceReply(msgspec.json.encode(t)) for t in traces))


def play_all(cluster: Cluster, **fields) -> None:
    times = Times()
    for number in range(10):
        times.append(5 + 5 * number, at_ms=50 * number)
    for node in NODES:
        late = {"counters": COUNTERS.get(node), "stamps": times.stamps[node]}
        play(cluster.replicas[node], trace(node, **fields), trace(node, at_s=2, **late, **fields))


def lines_of(text: str) -> list[list[str]]:
    return [line.replace("│", " ").split() for line in text.splitlines()]


def test_a_replica_answers_what_the_client_reads() -> None:
    stage = IngressStage()
    stage.lead()
    client = stage.client()
    client.ask(TraceRequest())
    answer = client.answer()
    assert isinstance(answer, TraceReply)
    found = parse_trace(answer.document, node=1)
    assert (found.node, found.leader, found.term) == (1, 1, 1)
    assert found.now_ns == stage.clock.now_ns
    assert found.groups_in_flight_max == 4
    assert found.counters["flushes"] == 0
    assert set(found.processes) >= {"supervisor", "ingress", "replicator-2", "replicator-3"}
    assert found.processes["raft"].keys() == trace(1).processes["raft"].keys()
    assert found.stamps == stage.read_stamps()


def test_a_trace_that_cannot_be_read_names_its_node() -> None:
    with pytest.raises(FormatError, match="node 3"):
        parse_trace(b'{"node": 3}', node=3)


def test_the_answer_and_why_it_is_so_come_first_then_the_tables(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    play_all(cluster)
    assert run("explain", "--seconds", "2") == 0
    said = capfd.readouterr()
    assert said.err == ""
    assert said.out.startswith("Nothing in the cluster bounds throughput now: ")
    assert "node 1 leads in term 4; in 2.0 s: 50.0 groups/s of 3.0 payloads" in said.out
    lines = lines_of(said.out)
    assert [
        "durable",
        "on",
        "a",
        "majority",
        "(the",
        "next",
        "table)",
        "12.00",
        "12.00",
        "71%",
    ] in lines
    assert [
        "network",
        "and",
        "sockets,",
        "both",
        "ways",
        "-",
        "1.00",
        "/",
        "1.00",
        "1.00",
        "/",
        "1.00",
    ] in lines
    assert ["node", "1,", "data", "10", "0.00", "4.00", "0%"] in lines
    assert ["1", "raft", "0%", "0%", "0", "0", "0", "0", "0", "0"] in lines


def test_json_has_everything_for_programs(
    cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    play_all(cluster)
    assert run("explain", "--seconds", "2", "--json", tmp_path / "found") == 0
    found = json.loads((tmp_path / "found").read_bytes())
    assert capfd.readouterr().out == ""
    assert (found["leader"], found["sampled"], found["silent"]) == (1, 10, {})
    assert [each["stage"] for each in found["stages"]][-1] == "total"
    assert [path["node"] for path in found["paths"]] == [1, 2, 3]
    assert found["bound"]["kind"] == "nothing"
    assert {row["node"] for row in found["processes"]} == {1, 2, 3}


@pytest.mark.slow
def test_nodes_that_tell_nothing_are_named_with_the_reason(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    play_all(cluster)
    cluster.replicas[2].on[TraceRequest] = lambda _: OLD
    cluster.replicas[3].stop()
    assert run("explain", "--seconds", "2") == 0
    said = capfd.readouterr()
    assert "nothing is known of node 2: it runs a version that does not know this" in said.err
    assert "nothing is known of node 3: it does not answer" in said.err
    assert ["send"] not in lines_of(said.out)
    assert "node 1 leads in term 4" in said.out


def test_without_a_leader_it_says_so_and_ends_with_3(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    play_all(cluster, leader=0)
    assert run("explain", "--seconds", "2") == 3
    said = capfd.readouterr()
    assert said.err == "nobody leads, so there are no appends to explain: see `logstore status`\n"
    assert ["2", "raft", "0%", "0%", "0", "0", "0", "0", "0", "0"] in lines_of(said.out)


def test_where_only_older_versions_run_nobody_is_said_not_to_lead(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    for replica in cluster.replicas.values():
        replica.on[TraceRequest] = lambda _: OLD
    assert run("explain", "--seconds", "2") == 3
    said = capfd.readouterr()
    assert said.err.count("runs a version that does not know this request") == 3
    assert "nobody leads" not in said.err
    assert said.out == ""


def test_nothing_sampled_says_what_to_do(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    for node in NODES:
        play(cluster.replicas[node], trace(node), trace(node, at_s=2))
    assert run("explain", "--seconds", "2") == 0
    said = capfd.readouterr()
    assert said.out.startswith("Nothing was appended meanwhile: nothing is bounded.\n")
    assert said.err == "no entry was sampled, one of 11 is: ask under load, or for longer\n"


def test_a_change_of_leader_meanwhile_is_told(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    for node in NODES:
        play(cluster.replicas[node], trace(node, leader=2), trace(node, at_s=2, term=5))
    assert run("explain", "--seconds", "2") == 0
    assert "leadership changed meanwhile: ask again" in capfd.readouterr().err


def test_replicas_are_asked_so_often_that_no_stamp_is_forgotten(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(readings_module.time, "sleep", waits.append)
    left = iter([1_000, 700, 200, 0])
    monkeypatch.setattr(readings_module, "milliseconds_until", lambda _: next(left))
    early, late = Times(), Times()
    early.append(5)
    late.append(5_000)
    for node in NODES:
        between = [
            trace(node, at_s=n, stamps=each.stamps[node]) for n, each in ((1, early), (2, late))
        ]
        play(cluster.replicas[node], trace(node), *between)
    with connect(cluster.endpoint) as client:
        found = readings_module.gather(client, 1.0)
    assert waits == [0.5, 0.5, 0.2]
    assert set(found.replicas[1].stamps["appended"]) == {5, 5_000}


def test_a_replica_that_starts_again_meanwhile_is_measured_since_then() -> None:
    def answer(at_s: float, pid: int):
        return {1: trace(1, at_s=at_s, use={"ingress": {"pid": pid}}), 2: trace(2, at_s=at_s)}

    found = put_together([answer(0, 7), answer(1, 8), answer(3, 8)])
    assert found.replicas[1].seconds == 2.0
    found = put_together([answer(0, 7), answer(1, 8)])
    assert set(found.replicas) == {2}
    assert "started again" in found.silent[1]


def test_a_replica_that_misses_one_question_is_measured_on() -> None:
    def answer(at_s: float):
        return {1: trace(1, at_s=at_s), 2: trace(2, at_s=at_s)}

    lost = answer(1) | {1: "it does not answer"}
    found = put_together([answer(0), lost, answer(2)])
    assert (found.replicas[1].seconds, found.silent, found.nodes) == (2.0, {}, 2)
    found = put_together([answer(0), answer(1), lost])
    assert (found.replicas[1].seconds, found.leader, found.nodes) == (1.0, 1, 2)
    assert found.silent == {1: "it does not answer"}
    assert put_together([answer(0), lost, lost]).replicas.keys() == {2}


def test_a_pid_that_comes_back_after_a_restart_is_no_going_on() -> None:
    """As in a container, whose processes have the same numbers each time."""
    answers = [
        {1: msgspec.structs.replace(trace(1, at_s=n), boot=boot)} for n, boot in ((0, 4), (1, 5))
    ]
    assert put_together(answers).replicas == {}


def test_the_leader_is_who_says_so_of_itself_in_the_newest_term() -> None:
    answers = [
        {1: trace(1, at_s=s, leader=1, term=4), 2: trace(2, at_s=s, leader=2, term=5),
         3: trace(3, at_s=s, leader=1, term=4)}
        for s in (0, 1)
    ]  # fmt: skip
    assert put_together(answers).leader == 2


def test_times_are_shown_with_two_places_and_shares_in_percent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    use = {1: {"raft": busy(0.125, turns=1_000, bell_wakes=400, empty_wakes=41)}}
    show(explain_readings(readings(counters=COUNTERS, use=use)), Terminal())
    lines = lines_of(capsys.readouterr().out)
    assert ["1", "raft", "12%", "12%", "500", "200", "200", "0", "0", "20"] in lines


def test_tables_of_three_replicas_are_whole_in_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    times = Times()
    times.append(11, slower_ms=12_345)
    show(explain_readings(readings(times, counters=COUNTERS)), Terminal())
    shown = capsys.readouterr().out
    assert "…" not in shown
    rows = {line.split("│")[1].strip() for line in shown.splitlines() if line.startswith("│")}
    assert {"in all, from ingress to ingress", "in all, from being appended"} <= rows
    assert {"node 1, records", "3 replicator-2"} <= rows
