"""`logstore lag` against a played leader: the table, JSON, --watch, and what is not known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from logstore.format.client_messages import StatusReply, StatusRequest
from tests.unit.cli_stage import run
from tests.unit.client_stage import Cluster, FakeReplica


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeReplica]:
    with Cluster() as cluster:
        monkeypatch.setenv("LOGSTORE_ENDPOINT", cluster.endpoint)
        yield cluster.replicas[1]


FOLLOWER = b'{"role": "follower"}'


def lag_document(cursors: list[dict] | None) -> bytes:
    """The status of a leader: it has not heard node 7, which the metadata does not name."""
    unknown = dict.fromkeys(("next_lsn", "payloads", "bytes", "since_ns", "seconds"))
    behind = {"next_lsn": 4, "payloads": 6, "bytes": 1_234_567, "since_ns": 8, "seconds": 12.345}
    lag = {
        "log_start_lsn": 1,
        "visible_lsn": 9,
        "newest_ns": 9,
        "followers": [
            {"node": 1, "silent_seconds": 0.05} | behind,
            {"node": 7, "silent_seconds": 431.0} | unknown,
        ],
        "cursors": cursors,
    }
    return json.dumps({"role": "leader", "term": 2, "visible_lsn": 9, "lag": lag}).encode()


def test_lag_shows_exact_numbers_and_what_is_not_known(
    replica: FakeReplica, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    row = {"name": "a\x1b[31m", "next_lsn": 12, "payloads": 0, "bytes": 0, "seconds": 0.0}
    replica.on[StatusRequest] = lambda _: StatusReply(lag_document([row]))
    assert run("lag") == 0
    said = capfd.readouterr()
    lines = [line.replace("│", " ").split() for line in said.out.splitlines()]
    assert said.out.startswith("node 1 leads in term 2, LSN 1 to 9 committed\n")
    assert ["1", "leader", "4", "6", "1234567", "12.3", "0.1"] in lines
    assert ["7", "-", "-", "-", "-", "-", "431.0"] in lines, "it was a KeyError"
    assert [r"a\x1b[31m", "12", "0,", "2", "beyond", "the", "end", "0", "0.0"] in lines
    assert said.err == ""
    target = tmp_path / "lag"
    assert run("lag", "--json", target) == 0
    found = json.loads(target.read_bytes())
    assert found.keys() >= {"leader", "term", "log_start_lsn", "visible_lsn"}
    assert found["followers"][0]["bytes"] == 1_234_567
    assert found["cursors"] == [row | {"beyond_end": 2, "trimmed": 0}]
    assert (found["answering"], found["unreachable"]) == ([1], [])
    assert datetime.fromisoformat(found["time"]).tzinfo == UTC


def test_status_and_lag_say_what_the_log_holds_and_which_cursor_keeps_its_start(
    replica: FakeReplica, capfd: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(lag_document([]))
    document["lag"]["log"] = {"payloads": 9, "bytes": 77, "held_by": None}
    replica.on[StatusRequest] = lambda _: StatusReply(json.dumps(document).encode())
    assert run("lag") == 0
    assert "LSN 1 to 9 committed, 9 payloads, 77 bytes\n" in capfd.readouterr().out
    document["lag"]["log"] |= {"bytes": None, "held_by": {"name": "a\x1b", "lsn": 3}}
    for command in ("lag", "status"):
        assert run(command) == 0
        said = " ".join(capfd.readouterr().out.split())
        assert r"9 payloads, an unknown number of bytes; cursor a\x1b holds from LSN 3 on" in said


def test_a_cursor_below_the_log_start_is_said_to_lack_what_is_trimmed(
    replica: FakeReplica, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    row = {"name": "late", "next_lsn": 2, "payloads": 6, "bytes": 9, "seconds": 1.0}
    document = json.loads(lag_document([row]))
    document["lag"]["log_start_lsn"] = 4
    replica.on[StatusRequest] = lambda _: StatusReply(json.dumps(document).encode())
    assert run("lag") == 0
    lines = [line.replace("│", " ").split() for line in capfd.readouterr().out.splitlines()]
    assert ["late", "2", "6,", "2", "trimmed", "9", "1.0"] in lines
    assert run("lag", "--json", tmp_path / "lag") == 0
    found = json.loads((tmp_path / "lag").read_bytes())
    assert found["cursors"] == [row | {"beyond_end": 0, "trimmed": 2}]


def test_more_cursors_than_one_reads_have_the_worst_first(
    replica: FakeReplica, capfd: pytest.CaptureFixture[str]
) -> None:
    def first_of(count: int) -> str:
        row = {"next_lsn": 1, "bytes": 0, "seconds": 0.0}
        rows = [row | {"name": f"c{number:02}", "payloads": number} for number in range(count)]
        replica.on[StatusRequest] = lambda _: StatusReply(lag_document(rows))
        assert run("lag") == 0
        lines = [line.strip("│ ").split() for line in capfd.readouterr().out.splitlines()]
        return next(words[0] for words in lines if words and words[0].startswith("c0"))

    assert first_of(20) == "c00"
    assert first_of(21) == "c09", "of those below c10"


@pytest.mark.parametrize(
    ("document", "status", "words"),
    [
        (
            FOLLOWER,
            3,
            "nobody leads, and only a leader knows how far the others are; an"
            " election may be under way",
        ),
        (b'{"role": "leader", "term": 1}', 3, "node 1 leads and shows nothing yet: ask again"),
        (lag_document([]), 0, "there are no cursors"),
        (lag_document(None), 0, "its cursors are not known yet: ask again"),
    ],
)
def test_lag_says_what_there_is_nothing_to_say_about(
    replica: FakeReplica,
    capfd: pytest.CaptureFixture[str],
    document: bytes,
    status: int,
    words: str,
) -> None:
    replica.on[StatusRequest] = lambda _: StatusReply(document)
    assert run("lag") == status
    assert capfd.readouterr().err.startswith(words)
    assert run("lag", "--json", "-") == status
    found = json.loads(capfd.readouterr().out)
    assert (found["visible_lsn"] is None) == (found["newest_ns"] is None) == bool(status)
    assert found["leader"] == (None if document == FOLLOWER else 1)


@pytest.mark.slow
def test_lag_without_a_leader_says_who_answers_and_that_it_is_no_majority(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with Cluster(nodes=3) as cluster:
        monkeypatch.setenv("LOGSTORE_ENDPOINT", cluster.endpoint)
        cluster.replicas[1].on[StatusRequest] = lambda _: StatusReply(FOLLOWER)
        cluster.replicas[2].stop()
        cluster.replicas[3].stop()
        assert run("lag") == 3
        assert run("status") == 3
    said = capfd.readouterr()
    assert said.out.count(" unreachable ") == 2, "whole, in 80 columns"
    words = "nodes without an answer: 2, 3 (a leader needs 2 of 3)\n"
    assert said.err.count(words) == 2, "both commands say it"


@pytest.mark.slow
def test_a_silent_learner_is_no_part_of_the_majority_that_a_leader_needs(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    roles = {1: "voter", 2: "learner", 3: "voter"}
    rows = [
        {"number": number, "role": role, "host": "a", "port": 1} for number, role in roles.items()
    ]
    document = {"role": "follower", "members": {"id": 3, "members": rows}}
    with Cluster(nodes=3) as cluster:
        monkeypatch.setenv("LOGSTORE_ENDPOINT", cluster.endpoint)
        cluster.replicas[1].on[StatusRequest] = lambda _: StatusReply(json.dumps(document).encode())
        cluster.replicas[2].stop()
        cluster.replicas[3].stop()
        assert run("lag") == 3
        assert run("status") == 3
    words = "nodes without an answer: 3 (a leader needs 2 of 2)\n"
    assert capfd.readouterr().err.count(words) == 2, "both commands say it"


def test_an_empty_log_has_nothing_committed(
    replica: FakeReplica, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of LSN 1 to 0."""
    lag = {"log_start_lsn": 1, "visible_lsn": 0, "newest_ns": 0, "followers": [], "cursors": []}
    document = {"role": "leader", "term": 2, "visible_lsn": 0, "log_start_lsn": 1, "lag": lag}
    replica.on[StatusRequest] = lambda _: StatusReply(json.dumps(document).encode())
    for command in ("status", "lag"):
        assert run(command) == 0
        assert capfd.readouterr().out.startswith("node 1 leads in term 2, nothing committed yet\n")


def test_a_log_that_was_trimmed_to_its_end_has_something_committed(
    replica: FakeReplica, capfd: pytest.CaptureFixture[str]
) -> None:
    log = {"payloads": 0, "bytes": 0, "held_by": None}
    lag = {"log_start_lsn": 61, "visible_lsn": 60, "newest_ns": 0, "followers": [], "cursors": []}
    bounds = {"visible_lsn": 60, "log_start_lsn": 61}
    document = {"role": "leader", "term": 2, "lag": lag | {"log": log}} | bounds
    replica.on[StatusRequest] = lambda _: StatusReply(json.dumps(document).encode())
    for command in ("status", "lag"):
        assert run(command) == 0
        assert " ".join(capfd.readouterr().out.split()).startswith(
            "node 1 leads in term 2, LSN 60 committed, none of it kept: the log begins at LSN 61, "
            "0 payloads, 0 bytes "
        )
    document |= {"role": "follower", "visible_lsn": 0}
    assert run("status") == 3
    said = " ".join(capfd.readouterr().out.split())
    assert "nothing shown yet: the log begins at LSN 61" in said


def test_a_file_that_cannot_be_written_is_named_in_words(
    replica: FakeReplica, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    replica.on[StatusRequest] = lambda _: StatusReply(lag_document([]))
    target = tmp_path / "absent" / "lag"
    assert run("lag", "--json", target) == 2
    assert capfd.readouterr().err == f"error: {target}: No such file or directory\n"


@pytest.mark.parametrize("option", ["--watch", "--timeout"])
def test_nan_is_no_number_of_seconds(option: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("lag", option, "nan") == 2
    assert "nan is no number" in capfd.readouterr().err


def test_lag_watches_until_it_is_interrupted(
    replica: FakeReplica, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    replies = [b'{"role": "follower"}', lag_document([])]
    replica.on[StatusRequest] = lambda _: StatusReply(replies[len(waits) % 2])
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("logstore.cli.lag.time.sleep", sleep)
    assert run("lag", "--watch", "0.5") == 130
    assert waits == [0.5] * 4
    said = capfd.readouterr()
    assert said.out.count("Z node 1 leads in term 2") == said.err.count("Z nobody leads") == 2
    waits.clear()
    assert run("lag", "--watch", "--json", "-") == 130
    assert waits == [2.0] * 4
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["leader"] for line in lines] == [None, 1, None, 1]
    assert all(line["time"] for line in lines)
