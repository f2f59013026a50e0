"""Format levels in the raft and the writer process: status, metrics, META, and requests (S11)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from actors import topology
from actors.topology import Counter
from logstore.errors import ErrorCode
from logstore.format.level import level_kind
from logstore.format.peer_messages import HeartbeatReply
from logstore.raft.effects import LevelAnswered, Persist, SaveLevel
from logstore.raft.events import LevelRequested
from tests.paper.one_node import rows_of
from tests.unit.raft_stage import RaftStage, recovered

NEWEST = 2


@pytest.fixture
def raft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RaftStage:
    monkeypatch.setattr("actors.station.NEWEST_LEVEL", NEWEST)
    return RaftStage(tmp_path)


def ask(raft: RaftStage, level: int) -> list[LevelAnswered]:
    raft.heard(topology.INGRESS)
    raft.say(topology.INGRESS, LevelRequested(5, level), channel=topology.CONTROL)
    return answers(raft)


def answers(raft: RaftStage) -> list[LevelAnswered]:
    return [each for each in raft.heard(topology.INGRESS) if isinstance(each, LevelAnswered)]


def test_a_leader_raises_the_level_and_its_status_says_who_reads_which(raft: RaftStage) -> None:
    raft.recover()
    term = raft.lead_and_commit()
    raft.hear(2, HeartbeatReply(term, 1, 1, 0, 0, newest_level=NEWEST))
    assert raft.status()["newest_levels"] == {"1": NEWEST, "2": NEWEST, "3": None}
    (refused,) = ask(raft, NEWEST)
    assert (refused.code, refused.level) == (ErrorCode.NOT_READY, 1)
    raft.hear(3, HeartbeatReply(term, 1, 1, 0, 0, newest_level=NEWEST))
    assert ask(raft, NEWEST) == []
    told = raft.flush()
    assert [each.header.kind for each in told if isinstance(each, Persist)] == [level_kind(NEWEST)]
    raft.match(2, 2)
    assert answers(raft) == [LevelAnswered(5, ErrorCode.OK, NEWEST, "")]
    assert raft.flush() == [SaveLevel(NEWEST)]
    raft.pass_time(10_000_000)
    assert raft.slots[Counter.FORMAT_LEVEL] == NEWEST
    status = raft.status()
    assert (status["level"], status["newest_level"], status["refused_level"]) == (NEWEST, NEWEST, 0)


def test_a_follower_shows_that_its_leader_s_log_is_too_new(raft: RaftStage) -> None:
    raft.recover()
    raft.hear_heartbeat(2, 1)
    header = rows_of([1], raises={1: NEWEST + 1})[0].header
    raft.append(msgspec.structs.replace(header, prev_chain=raft_chain()), term=1)
    status = raft.status()
    assert (status["refused_level"], status["newest_level"]) == (NEWEST + 1, NEWEST)
    assert (status["last_index"], status["faulty"], status["damage"]) == (0, [], "")
    assert status["newest_levels"] == {}


def raft_chain() -> int:
    return recovered().start_chain


def test_a_replica_that_is_not_ready_answers_so(raft: RaftStage) -> None:
    (answer,) = ask(raft, NEWEST)
    assert (answer.code, answer.reason) == (ErrorCode.NOT_READY, "this replica is not ready")
