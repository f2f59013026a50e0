"""The raft actor before its cluster is formed: who is refused says why, who waits is answered."""

from __future__ import annotations

import msgspec
import pytest

from actors import topology
from actors.messages import (
    CreateLog,
    InitAnswered,
    InitReceived,
    InitRequested,
    InitSaved,
    StatusReported,
    StatusRequested,
)
from logstore.errors import ErrorCode
from logstore.format.peer_messages import InitStatus
from logstore.model import ReplicaState
from logstore.raft.bootstrap import SaveInit, SendInit
from logstore.storage.disk import RealDisk
from logstore.storage.segment import read_header
from tests.unit.actor_stage import CLUSTER, OUR_UUID, PEER_UUID
from tests.unit.folder_stage import FolderStage
from tests.unit.raft_stage import RaftStage, recovered

REPLICATOR = topology.replicator(2)


@pytest.fixture
def raft(tmp_path):
    return RaftStage(tmp_path)


def of(kind, messages):
    return [message for message in messages if isinstance(message, kind)]


def status(raft):
    raft.say(topology.INGRESS, StatusRequested(9), channel=topology.CONTROL)
    [reported] = of(StatusReported, raft.heard(topology.INGRESS))
    return msgspec.json.decode(reported.document)


def hear_of_two_clusters(raft):
    raft.time_out()
    for peer, cluster in ((2, CLUSTER), (3, b"o" * 16)):
        told = InitReceived(peer, bytes([peer]) * 16, InitStatus(ReplicaState.VOTER, 9, cluster))
        raft.say(topology.INGRESS, told, channel=topology.CONTROL)
    raft.time_out()


def test_who_is_refused_by_the_bootstrap_says_so_in_status_and_to_init(raft):
    raft.recover(ReplicaState.EMPTY)
    hear_of_two_clusters(raft)
    assert "are of different clusters" in status(raft)["refusal"]
    raft.say(topology.INGRESS, InitRequested(7, 1), channel=topology.CONTROL)
    [answer] = of(InitAnswered, raft.heard(topology.INGRESS))
    assert answer.code == ErrorCode.INVALID_REQUEST
    folder = raft.stage.station(topology.RAFT).folder
    assert answer.reason.startswith(f"the folder of node 1, {folder}, holds no log: nodes [2, 3]")


def test_an_init_that_waits_is_answered_once_its_node_is_refused(raft):
    """It would have waited for its timeout, and not known why."""
    raft.recover(ReplicaState.EMPTY)
    raft.say(topology.INGRESS, InitRequested(7, 1), channel=topology.CONTROL)
    assert of(InitAnswered, raft.heard(topology.INGRESS)) == []
    hear_of_two_clusters(raft)
    [answer] = of(InitAnswered, raft.heard(topology.INGRESS))
    assert (answer.request_id, answer.code) == (7, ErrorCode.INVALID_REQUEST)
    assert "are of different clusters" in answer.reason


def test_an_init_at_a_node_that_joins_is_refused_before_and_after_it_has(raft):
    raft.recover(ReplicaState.EMPTY)
    raft.say(topology.INGRESS, InitRequested(7, 1), channel=topology.CONTROL)
    raft.time_out()
    told = InitReceived(2, PEER_UUID, InitStatus(ReplicaState.VOTER, 9, CLUSTER))
    raft.say(topology.INGRESS, told, channel=topology.CONTROL)
    raft.time_out()
    [save] = of(SaveInit, raft.heard(topology.WRITER))
    assert (save.state, save.cluster_id) == (ReplicaState.LEARNER, CLUSTER)
    raft.say(topology.WRITER, InitSaved(save.seq))
    assert of(CreateLog, raft.heard(topology.WRITER)) == [CreateLog(CLUSTER)]
    raft.say(topology.INGRESS, InitRequested(8, 1), channel=topology.CONTROL)
    answers = of(InitAnswered, raft.heard(topology.INGRESS))
    assert [(each.request_id, each.code) for each in answers] == [
        (7, ErrorCode.INVALID_REQUEST), (8, ErrorCode.INVALID_REQUEST),
    ]  # fmt: skip
    assert "belongs to a cluster that was formed without it" in answers[0].reason


def test_p1_who_asks_for_another_first_lsn_than_the_log_has_is_told_so(raft):
    """A voter's word on how the bootstrap ended, whoever coordinated it."""
    raft.recover()
    raft.say(topology.INGRESS, InitRequested(7, 1), InitRequested(8, 50), channel=topology.CONTROL)
    same, other = of(InitAnswered, raft.heard(topology.INGRESS))
    assert same == InitAnswered(7, ErrorCode.OK, "")
    assert other.code == ErrorCode.INVALID_REQUEST
    assert "begins at LSN 1, not at 50" in other.reason


def test_an_init_that_is_repeated_after_a_trim_and_a_start_changes_nothing(raft):
    """META has another LSN by then. The answer was: form another cluster, of empty folders."""
    report = msgspec.structs.replace(
        recovered(), start_index=40, start_next_lsn=50, commit_floor=40, persisted=40
    )
    raft.say(topology.WRITER, report)
    asked = [InitRequested(7, 1), InitRequested(8, 50), InitRequested(9, 51)]
    raft.say(topology.INGRESS, *asked, channel=topology.CONTROL)
    first, present, above = of(InitAnswered, raft.heard(topology.INGRESS))
    assert (first.code, present.code) == (ErrorCode.OK, ErrorCode.OK)
    assert above.code == ErrorCode.INVALID_REQUEST
    assert "begins at LSN 50, not at 51" in above.reason


def test_two_nodes_with_one_uuid_are_named(raft):
    """SAFETY L3: a copied data folder."""
    raft.recover(ReplicaState.EMPTY)
    told = InitStatus(ReplicaState.EMPTY, 0, bytes(16))
    raft.say(topology.INGRESS, InitReceived(2, OUR_UUID, told), channel=topology.CONTROL)
    assert "nodes 1 and 2 have the same replica uuid" in status(raft)["refusal"]


def test_a_bootstrap_saves_before_it_answers_and_asks_on_its_own_lanes(raft):
    raft.recover(ReplicaState.EMPTY)
    raft.time_out()
    assert len(of(SendInit, raft.heard(REPLICATOR))) >= 1
    told = InitStatus(ReplicaState.EMPTY, 0, bytes(16))
    for peer, uuid in ((2, PEER_UUID), (3, b"q" * 16)):
        raft.say(topology.INGRESS, InitReceived(peer, uuid, told), channel=topology.CONTROL)
    [save] = of(SaveInit, raft.heard(topology.WRITER))
    assert of(SendInit, raft.heard(REPLICATOR)) == []
    raft.say(topology.WRITER, InitSaved(save.seq))
    assert len(of(SendInit, raft.heard(REPLICATOR))) == 1


def test_rows_are_not_looked_for_in_what_a_bootstrap_left_that_was_broken_off(tmp_path):
    """SAFETY L2, V7: the log begins with the number of the segment that the first attempt made."""
    folder = tmp_path / "data"
    folder.mkdir()
    make_log(folder)
    for path in folder.glob("*1.*"):
        left = read_header(RealDisk(), str(path))
        left = msgspec.structs.replace(left, segment_uuid=b"of the first try")
        path.write_bytes(left.pack())
    raft = RaftStage(tmp_path)
    for path in folder.iterdir():
        path.unlink()
    last = make_log(folder, entries=3)
    found = {"last_row": last, "term_runs": ((1, 1),), "persisted": 3}
    raft.say(topology.WRITER, msgspec.structs.replace(recovered(), **found))
    assert raft.raft._core.row(1).chain == raft.raft._core.row(2).header.prev_chain


def make_log(folder, *, entries=0):
    """A new log with so many no-ops; the last of them."""
    stage = FolderStage(folder)
    for _ in range(entries):
        stage.append()
    stage.close()
    return stage._writer.last
