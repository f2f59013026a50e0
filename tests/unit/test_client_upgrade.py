"""The log's format level as an operator sees and raises it, against played replicas (S11)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import logstore
from logstore.cli.main import main
from logstore.errors import ErrorCode, LevelRefused
from logstore.format.client_messages import (
    DoneReply,
    ErrorReply,
    RaiseLevelRequest,
    StatusReply,
    StatusRequest,
)
from tests.unit.client_stage import Cluster


class Levels:
    """Three nodes; `newest` is what each reads, None: it says nothing of levels."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.level = 1
        self.newest: dict[int, int | None] = {1: 3, 2: 3, 3: 3}
        self.asked: list[int] = []
        self.learners: tuple[int, ...] = ()
        for node, replica in cluster.replicas.items():
            replica.on[StatusRequest] = lambda _, node=node: self._status(node)
            replica.on[RaiseLevelRequest] = self._raise

    def _status(self, node: int) -> StatusReply:
        role = "leader" if node == self.cluster.leader else "follower"
        document: dict[str, Any] = {"role": role, "term": 1, "visible_lsn": 0, "level": self.level}
        if (newest := self.newest[node]) is not None:
            document["newest_level"] = newest
        if self.learners:
            rows = [
                {"number": each, "role": "learner" if each in self.learners else "voter"}
                for each in self.newest
            ]
            document["members"] = {"id": 2, "members": rows}
        return StatusReply(json.dumps(document).encode())

    def _raise(self, request: RaiseLevelRequest) -> DoneReply:
        self.asked.append(request.level)
        self.level = max(self.level, request.level)
        return DoneReply(self.level)


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> Iterator[Levels]:
    with Cluster(nodes=3) as cluster:
        monkeypatch.setenv("LOGSTORE_ENDPOINT", cluster.endpoint)
        yield Levels(cluster)


def upgrade(*arguments: str) -> int:
    return main(["upgrade", *arguments])


def test_the_log_is_raised_level_by_level_to_the_newest_that_all_read(
    levels: Levels, capfd: pytest.CaptureFixture[str]
) -> None:
    assert upgrade("--check") == 0
    assert capfd.readouterr().err == (
        "the log is at format level 1\n"
        "every replica reads level 3: `logstore upgrade` raises the log to it\n"
    )
    assert upgrade() == 0
    assert levels.asked == [2, 3]
    done = "the log is at format level 3\nthis is the newest level that its replicas read\n"
    assert capfd.readouterr().err == done
    assert upgrade() == upgrade("--check") == 0
    assert levels.asked == [2, 3]
    assert capfd.readouterr().err == 2 * done


def test_who_is_in_the_way_is_named(levels: Levels, capfd: pytest.CaptureFixture[str]) -> None:
    levels.newest |= {2: 2, 3: None}
    for arguments in (("--check",), ()):
        assert upgrade(*arguments) == 4
        assert capfd.readouterr().err == (
            "the log is at format level 1\n"
            "node 2 is in the way of level 3: it reads levels up to 2: start a newer version\n"
            "node 3 is in the way of level 3: it reads levels up to 1: start a newer version\n"
        )
    levels.newest[3] = 2
    assert upgrade() == 4
    assert levels.asked == [2]
    assert "format level 2\nnode 2 is in the way of level 3" in capfd.readouterr().err


@pytest.mark.slow
def test_a_node_that_does_not_answer_is_in_the_way_of_a_newer_level_only(
    levels: Levels, capfd: pytest.CaptureFixture[str]
) -> None:
    levels.cluster.replicas[3].stop()
    assert upgrade("--check") == 4
    assert "node 3 is in the way of level 3: it does not answer" in capfd.readouterr().err
    levels.level = 3
    assert upgrade() == 0, "there is nothing to raise"
    assert upgrade("--check") == 3, "it cannot tell"
    unknown = "whether all its replicas read this level, or a newer one, is not known\n"
    assert capfd.readouterr().err == 2 * (
        f"the log is at format level 3\nnode 3 does not answer\n{unknown}"
    )
    levels.cluster.replicas[2].stop()
    assert upgrade("--check") == 3
    assert capfd.readouterr().err == (
        "the log is at format level 3 at least\nnode 2 does not answer\nnode 3 does not answer\n"
        f"{unknown}"
    )
    assert not levels.asked


@pytest.mark.slow
def test_a_learner_that_does_not_answer_is_not_in_the_way(
    levels: Levels, capfd: pytest.CaptureFixture[str]
) -> None:
    levels.learners = (3,)
    levels.newest[3] = 2
    assert upgrade("--check") == 4, "one that answers is"
    assert "node 3 is in the way of level 3" in capfd.readouterr().err
    levels.cluster.replicas[3].stop()
    assert upgrade("--check") == 3
    said = capfd.readouterr().err
    assert "node 3, a learner, does not answer, and is not waited for\nevery voter reads" in said
    assert upgrade() == 0
    assert levels.asked == [2, 3]


def test_a_node_that_does_not_read_the_log_s_level_is_named(
    levels: Levels, capfd: pytest.CaptureFixture[str]
) -> None:
    """It was set back to an older version. Nobody reads a newer level, so nobody is in its way."""
    levels.level, levels.newest[2] = 3, 1
    for arguments in (("--check",), ()):
        assert upgrade(*arguments) == 4
        assert capfd.readouterr().err == (
            "the log is at format level 3\n"
            "node 2 takes no entries of the log: it reads levels up to 1: start a newer version\n"
        )
    assert not levels.asked


def test_the_levels_are_given_as_json(levels: Levels, capfd: pytest.CaptureFixture[str]) -> None:
    levels.newest[2] = 2
    assert upgrade("--json", "-") == 4
    assert json.loads(capfd.readouterr().out) == {
        "level": 2,
        "newest_levels": {"1": 3, "2": 2, "3": 3},
        "common_level": 2,
        "in_the_way": [2],
    }


def test_a_refusal_of_the_leader_is_said_and_what_is_not_final_is_asked_again(
    levels: Levels, capfd: pytest.CaptureFixture[str]
) -> None:
    replica = levels.cluster.replicas[levels.cluster.leader]
    text = b"node 3 reads levels up to 1"
    replies = [
        ErrorReply(ErrorCode.OUTCOME_UNKNOWN, 0, 0, 0, b"term 2 was seen"),
        ErrorReply(ErrorCode.NOT_READY, 0, 0, 0, b"another request raises the level"),
        ErrorReply(ErrorCode.LEVEL_REFUSED, 0, 0, 0, text),
    ]
    asked = replica.answer_in_turn(RaiseLevelRequest, *replies)
    assert upgrade() == 4
    assert asked == [RaiseLevelRequest(2)] * 3
    assert capfd.readouterr().err == f"error: {text.decode()}\n"
    with (
        logstore.connect(levels.cluster.endpoint, timeout=20) as client,
        pytest.raises(LevelRefused, match="node 3"),
    ):
        client.admin.raise_level(2)
