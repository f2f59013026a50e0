"""SAFETY S11 in the consensus core: who raises the log's format level, and who refuses it."""

from __future__ import annotations

from typing import Any

import pytest

from logstore.errors import ErrorCode
from logstore.format.level import level_kind, level_of
from logstore.format.peer_messages import (
    AppendAccepted,
    AppendPersisted,
    Heartbeat,
    HeartbeatReply,
)
from logstore.model import Index, Role, Term
from logstore.raft.effects import (
    LevelAnswered,
    Log,
    Persist,
    SaveLevel,
    StreamAccepted,
    Truncate,
)
from logstore.raft.events import DiskFullChanged, LevelRequested, TransferRequested
from tests.paper.one_node import OneNode, of_type, rows_of, sent
from tests.paper.virtual_node import MS


def says(node: OneNode, peer: int, newest: int, *, boot: int = 1) -> None:
    """`peer` answers a heartbeat of this term."""
    last = node.core.last_index
    reply = HeartbeatReply(node.core.term, 1, last, Index(0), Index(0), newest_level=newest)
    node.hear(peer, reply, boot=boot)


def leading(*, newest: int = 2, peers: int = 2, **state: Any) -> OneNode:
    """A leader whose no-op is committed; both peers have said that they read level `peers`."""
    node = OneNode(newest_level=newest, **state)
    node.lead_and_commit()
    for peer in (2, 3):
        says(node, peer, peers)
    return node


def ask(node: OneNode, level: int = 2) -> LevelAnswered | None:
    """The answer; None: not yet."""
    answers = of_type(node.step(LevelRequested(7, level)), LevelAnswered)
    return answers[0] if answers else None


def refused(node: OneNode, level: int = 2, code: ErrorCode = ErrorCode.LEVEL_REFUSED) -> str:
    """Why the request is refused; nothing is appended."""
    last = node.core.last_index
    answer = ask(node, level)
    assert answer is not None
    assert answer.code == code
    assert node.core.last_index == last
    return answer.reason


def logged(effects: Any) -> list[Log]:
    return of_type(effects, Log)


def put_off(node: OneNode, level: int = 2) -> str:
    """Why the requester is to ask again."""
    return refused(node, level, ErrorCode.NOT_READY)


def test_the_level_is_raised_once_its_entry_is_committed_and_no_sooner() -> None:
    node = leading()
    assert ask(node) is None
    index = node.core.last_index
    row = node.core.row(index)
    assert row is not None
    assert row.header.kind == level_kind(2)
    assert node.core.level == 1
    node.flush()
    assert node.core.level == 1
    effects = node.hear_match(2, index)
    assert node.core.level == 2
    assert of_type(effects, LevelAnswered) == [LevelAnswered(7, ErrorCode.OK, 2, "")]
    assert of_type(effects, SaveLevel) == [SaveLevel(2)]
    assert ask(node) == LevelAnswered(7, ErrorCode.OK, 2, "")


@pytest.mark.parametrize("peer", [2, 3])
def test_every_voter_must_read_the_level(peer: int) -> None:
    node = leading()
    says(node, peer, 1)
    assert refused(node) == f"node {peer} reads levels up to 1"
    assert node.core.newest_levels == {1: 2, 2: 2, 3: 2} | {peer: 1}


def test_a_voter_of_a_version_before_levels_reads_the_first_one() -> None:
    node = leading(peers=0)
    assert refused(node) == "node 2 reads levels up to 1; node 3 reads levels up to 1"


def test_what_a_voter_said_in_an_earlier_term_is_not_believed() -> None:
    node = leading()
    node.hear_heartbeat(2, term=node.core.term + 1)
    node.flush_meta()
    assert ask(node) == LevelAnswered(7, ErrorCode.NOT_LEADER, 1, "this replica does not lead")
    node.lead_and_commit()
    assert put_off(node) == "node 2 has not answered lately; node 3 has not answered lately"


def test_what_a_voter_said_before_it_was_restarted_is_not_believed() -> None:
    """Whichever message shows the new incarnation, and however late the old one's comes."""
    node = leading()
    node.hear_answer(3, AppendAccepted(node.core.term, 0, Index(1)), boot=2)
    assert put_off(node) == "node 3 has not answered lately"
    says(node, 3, 2, boot=1)
    assert put_off(node) == "node 3 has not answered lately"
    says(node, 3, 1, boot=2)
    assert refused(node) == "node 3 reads levels up to 1"
    says(node, 3, 2, boot=3)
    assert ask(node) is None


@pytest.mark.parametrize("newest", [1, 2])
def test_a_voter_that_is_silent_is_waited_for(newest: int) -> None:
    """It may be starting as a newer version."""
    node = leading()
    says(node, 3, newest)
    for _ in range(6):
        node.tick(100)
        says(node, 2, 2)
    assert put_off(node) == "node 3 has not answered lately"
    says(node, 2, 1)
    assert refused(node) == "node 2 reads levels up to 1"


def test_one_level_at_a_time() -> None:
    node = leading(newest=4, peers=4)
    assert refused(node, 3) == "the log is at format level 1: raise it to 2 first"
    assert ask(node, 2) is None
    assert put_off(node, 2) == "another request raises the level"  # maybe its first attempt
    assert put_off(node, 3) == "another request raises the level"
    node.flush()
    node.hear_match(2, node.core.last_index)
    assert ask(node, 3) is None
    node.flush()
    node.hear_match(2, node.core.last_index)
    assert node.core.level == 3


def test_a_leader_raises_no_level_that_it_does_not_read() -> None:
    assert refused(leading(newest=1)) == "node 1 reads levels up to 1"


@pytest.mark.parametrize("event", [DiskFullChanged(True), TransferRequested(9, 2)], ids=str)
def test_a_leader_that_takes_no_entries_raises_no_level(event: Any) -> None:
    node = leading()
    node.propose(0)  # the target of a transfer lacks it, so the transfer waits
    node.step(event)
    assert "the leader takes no entries now" in put_off(node)


def test_a_leader_that_stops_leading_does_not_know_whether_the_level_is_raised() -> None:
    node = leading()
    assert ask(node) is None
    effects = node.hear_heartbeat(2, term=node.core.term + 1)
    (answer,) = of_type(effects, LevelAnswered)
    assert (answer.code, answer.level) == (ErrorCode.OUTCOME_UNKNOWN, 1)


@pytest.mark.parametrize("level", [2, 3])
def test_an_entry_of_an_earlier_leader_is_waited_for_and_not_repeated(level: int) -> None:
    """A new leader knows the log's level once its no-op is committed."""
    rows = rows_of([1, 1], raises={Index(2): 2})
    node = OneNode(rows=rows, term=1, newest_level=3)
    node.lead()
    for peer in (2, 3):
        says(node, peer, 3)
    assert put_off(node, level) == "this leader is not ready yet"
    node.flush()
    node.hear_match(2, node.core.last_index)
    answer = ask(node, level)
    assert (answer and answer.level) == (2 if level == 2 else None)


def new_log(**state: Any) -> OneNode:
    """A leader of a log that begins at level 2 by itself. Its no-op is committed, nobody else has
    said yet what it reads."""
    node = OneNode(new_log_level=2, newest_level=2, **state)
    node.lead_and_commit()
    return node


def raised_to(node: OneNode) -> int:
    """The level of the log's last entry; 0: that is no such entry."""
    row = node.core.row(node.core.last_index)
    assert row is not None
    return level_of(row.header.kind)


def test_a_new_log_is_raised_by_itself_once_every_voter_has_said_that_it_reads_the_level() -> None:
    node = new_log()
    says(node, 2, 2)
    node.tick(50)
    assert raised_to(node) == 0
    says(node, 3, 2)
    node.tick(50)
    assert raised_to(node) == 2
    node.flush()
    effects = node.hear_match(2, node.core.last_index)
    assert of_type(effects, SaveLevel) == [SaveLevel(2)]
    assert not of_type(effects, LevelAnswered)
    last = node.core.last_index
    node.tick(50)
    assert node.core.last_index == last


def test_a_new_log_of_one_voter_is_raised_at_once() -> None:
    node = new_log(voters=[1])
    node.tick(50)
    node.flush()
    assert node.core.level == 2


def test_a_new_log_is_raised_level_by_level() -> None:
    node = OneNode(voters=[1], new_log_level=3, newest_level=3)
    node.lead_and_commit()
    levels = []
    for _ in range(3):
        node.tick(50)
        node.flush()
        levels.append(node.core.level)
    assert levels == [2, 3, 3]


def test_a_voter_of_an_older_version_leaves_a_new_log_to_operators_and_holds_up_nothing() -> None:
    """It may be on its way back, or the others on theirs."""
    node = new_log()
    says(node, 2, 1)
    assert any("stays at format level 1: node 2" in each.text for each in logged(node.tick(50)))
    node.propose(0)
    node.flush()
    node.hear_match(3, node.core.last_index)
    assert node.core.commit == node.core.last_index
    for peer in (2, 3):
        says(node, peer, 2)
    node.tick(50)
    assert raised_to(node) == 0
    assert ask(node) is None


def test_a_new_log_takes_payloads_while_a_voter_is_waited_for() -> None:
    node = new_log()
    says(node, 2, 2)
    node.tick(50)
    node.propose(0)
    node.flush()
    node.hear_match(2, node.core.last_index)
    assert node.core.commit == node.core.last_index
    says(node, 3, 2)
    node.tick(50)
    assert raised_to(node) == 2


@pytest.mark.parametrize("noops", [[1], [1, 2]])
def test_a_log_with_an_entry_that_has_a_body_is_not_new(noops: list[int]) -> None:
    node = new_log(rows=rows_of([1, 1], noops=noops), term=1)
    for peer in (2, 3):
        says(node, peer, 2)
    node.tick(50)
    assert raised_to(node) == (2 if len(noops) == 2 else 0)


def test_an_operator_who_asks_meanwhile_asks_again() -> None:
    node = new_log()
    for peer in (2, 3):
        says(node, peer, 2)
    node.tick(50)
    assert put_off(node) == "another request raises the level"
    effects = node.hear_heartbeat(2, term=node.core.term + 1)
    assert not of_type(effects, LevelAnswered)


def test_a_truncated_entry_raises_nothing() -> None:
    rows = rows_of([1, 1, 1], raises={Index(3): 2})
    node = OneNode(rows=rows, term=2, newest_level=2, commit_floor=2)
    node.follow(2, 2)
    longer = rows_of([1, 1, 2, 2], noops=[3])
    effects = node.hear_append(2, longer[2], commit=3)
    assert of_type(effects, Truncate)
    node.flush()
    assert node.core.commit == 3
    assert node.core.level == 1


def test_a_follower_learns_the_level_with_its_commit_index() -> None:
    node = OneNode(term=1, newest_level=2)
    node.follow(2, 1)
    rows = rows_of([1, 1, 1], noops=[1], raises={Index(2): 2})
    node.hear_append(2, rows[0], commit=0)
    assert not of_type(node.hear_append(2, rows[1], commit=1), SaveLevel)
    assert node.core.level == 1
    assert of_type(node.hear_append(2, rows[2], commit=2), SaveLevel) == [SaveLevel(2)]
    assert node.core.level == 2
    assert node.core.newest_levels == {}


@pytest.mark.parametrize(
    ("meta", "floor", "level", "saved"),
    [
        (1, 1, 1, []), (1, 2, 2, [SaveLevel(2)]), (2, 1, 2, []), (2, 2, 2, []),
        (2, 3, 3, [SaveLevel(3)]),
    ],
)  # fmt: skip
def test_after_a_restart_the_level_is_that_of_meta_or_of_what_is_known_to_be_committed(
    meta: int, floor: int, level: int, saved: list[SaveLevel]
) -> None:
    node = OneNode(
        rows=rows_of([1, 1, 1], raises={Index(2): 2, Index(3): 3}),
        term=1,
        newest_level=3,
        level=meta,
        commit_floor=floor,
    )
    assert node.core.level == level
    assert of_type(node.started, SaveLevel) == saved


def test_an_entry_of_a_level_that_is_passed_already_changes_nothing() -> None:
    """Damage may hide that the log was raised, and a leader raises it again."""
    node = OneNode(rows=rows_of([1]), term=1, newest_level=3, level=3)
    node.follow(2, 1)
    rows = rows_of([1, 1], raises={Index(2): 2})
    assert not of_type(node.hear_append(2, rows[1], commit=2), SaveLevel)
    assert node.core.commit == 2
    assert node.core.level == 3


def test_a_level_that_is_too_new_is_neither_taken_nor_rejected() -> None:
    rows = rows_of([1, 1, 1, 1], raises={Index(3): 2})
    node = OneNode(rows=rows[:2], term=1, newest_level=1)
    node.follow(2, 1)
    effects = node.hear_append(2, rows[2], commit=2)
    assert not of_type(effects, Persist)
    assert not sent(effects, AppendAccepted)
    assert [each.is_dead for each in of_type(effects, StreamAccepted)] == [True]
    assert node.core.refused_level == 2
    assert not sent(node.hear_append(2, rows[3], commit=3), AppendAccepted)
    assert (node.core.last_index, node.core.faulty, node.unsettled) == (2, (), {})
    node.hear_heartbeat(2, term=1, commit=4, round=2)
    assert node.core.commit <= 2
    assert node.core.role == Role.FOLLOWER
    node.hear_heartbeat(3, term=2)
    assert node.core.refused_level == 0


def test_a_replica_that_refuses_the_level_still_claims_what_it_has() -> None:
    rows = rows_of([1, 1, 1], raises={Index(3): 2})
    node = OneNode(term=1, newest_level=1)
    node.follow(2, 1)
    for row in rows:
        node.hear_append(2, row)
    assert sent(node.flush(), AppendPersisted) == [(2, AppendPersisted(Term(1), Index(2)))]


# --- a level whose entry is damaged here ---


def hidden(**state: Any) -> OneNode:
    """Nothing is left of entry 3, which raised the log to level 2; entries up to 2 are known to be
    committed."""
    rows = rows_of([1, 1, 1, 1, 1], raises={Index(3): 2})
    damage = {"faulty": ((Index(3), Index(3)),), "levels": ()}
    node = OneNode(**({"rows": rows, "term": 1, "commit_floor": 2} | damage | state))
    node.files.unreadable.add(3)
    return node


def test_a_follower_learns_of_a_level_that_damage_hides_here() -> None:
    """Set back to a version that does not read it, the replica would be given the log."""
    node = hidden(newest_level=2)
    last = node.core.row(Index(5))
    node.follow(2, 2)
    node.hear_heartbeat(2, term=2, commit=5, prev=last)
    assert (node.core.commit, node.core.level) == (5, 1)
    effects = node.hear_heartbeat(2, term=2, commit=5, prev=last, level=2)
    assert node.core.level == 2
    assert of_type(effects, SaveLevel) == [SaveLevel(2)]
    assert not of_type(node.hear_heartbeat(2, term=2, commit=5, level=2), SaveLevel)
    assert node.core._state.log.level_at(Index(5)) == 2


def test_a_follower_that_has_not_committed_so_far_does_not_take_the_leader_s_level() -> None:
    """Forms of it come after the entry in every log."""
    node = hidden(newest_level=2)
    row = node.core.row(Index(4))
    node.follow(2, 2)
    effects = node.hear_heartbeat(2, term=2, commit=5, prev=row, level=2)
    assert (node.core.commit, node.core.level) == (4, 1)
    assert not of_type(effects, SaveLevel)


def test_a_later_level_counts_beside_one_that_damage_hid() -> None:
    rows = rows_of([1, 1, 1, 1, 1], raises={Index(3): 2, Index(5): 3})
    node = hidden(newest_level=3, rows=rows, levels=((Index(5), 3),))
    node.follow(2, 2)
    node.hear_heartbeat(2, term=2, commit=4, prev=node.core.row(Index(4)), level=2)
    assert node.core.level == 2
    node.hear_heartbeat(2, term=2, commit=5, prev=node.core.row(Index(5)), level=3)
    assert node.core.level == 3


def test_a_leader_learns_of_a_level_that_damage_hides_here() -> None:
    node = hidden(newest_level=2, commit_floor=5)
    node.lead_and_commit()
    reply = HeartbeatReply(node.core.term, 1, Index(6), Index(0), Index(0), level=2)
    effects = node.hear(2, reply)
    assert node.core.level == 2
    assert of_type(effects, SaveLevel) == [SaveLevel(2)]


def test_a_level_that_damage_hid_is_refused_by_a_version_that_does_not_read_it() -> None:
    node = hidden(newest_level=1)
    last = node.core.row(Index(5))
    node.follow(2, 2)
    effects = node.hear_heartbeat(2, term=2, commit=5, prev=last, level=2)
    assert (node.core.level, node.core.refused_level) == (1, 2)
    assert not of_type(effects, SaveLevel)
    row = rows_of([1, 1, 1, 1, 1, 2], raises={Index(3): 2})[5]
    for stream in (1 << 32, 2 << 32):
        assert not of_type(node.hear_append(2, row, stream=stream), Persist)


def test_a_leader_tells_its_level_once_it_is_that_of_its_commit_index() -> None:
    """Peers that have not said that they read more than the first level do not know the field."""
    node = OneNode(rows=rows_of([1, 1]), term=1, level=2, newest_level=3)
    effects = node.lead()
    says(node, 2, 2)
    effects += node.tick(node.config.heartbeat_ns // MS)
    assert {beat.level for _, beat in sent(effects, Heartbeat)} == {0}
    node.flush()
    effects = node.hear_match(2, node.core.last_index)
    effects += node.tick(node.config.heartbeat_ns // MS)
    assert {(peer, beat.level) for peer, beat in sent(effects, Heartbeat)} == {(2, 2), (3, 0)}


def test_at_the_first_level_nothing_is_said_that_older_versions_do_not_read() -> None:
    node = OneNode(rows=rows_of([1, 1]), term=1)
    node.lead()
    node.flush()
    effects = node.hear_match(2, node.core.last_index)
    assert {beat.level for _, beat in sent(effects, Heartbeat)} == {0}
    node = OneNode(rows=rows_of([1, 1]), term=1)
    node.follow(2, 2)
    [(_, reply)] = sent(node.hear_heartbeat(2, term=2), HeartbeatReply)
    assert reply.level == 0
