"""Changes of the members: what a request becomes, and what is done already."""

from __future__ import annotations

import msgspec
import pytest

from actors.ingress.member_requests import change_of, is_done
from actors.messages import READS_OF_INGRESS
from logstore.errors import ErrorCode
from logstore.format.client_messages import DoneReply, MetadataRequest, TransferRequest
from logstore.format.configuration_body import (
    NO_UUID,
    Configuration,
    Member,
    encode_configuration,
)
from logstore.format.member_messages import MemberChangeKind, MemberChangeRequest, encode_place
from logstore.raft.effects import ChangeAnswered, LeaderChanged, MembersChanged, ReadIndexAnswered
from logstore.raft.events import (
    ChangeKind,
    ChangeRequested,
    ReadIndexRequested,
    TransferRequested,
)
from logstore.session.session import Refused
from tests.unit.ingress_stage import Stage

ADD, PROMOTE, REMOVE, REPLACE = MemberChangeKind


def member(number, *, port=None, uuid=None, labels=()):
    port = 7000 + 100 * (number - 1) if port is None else port
    return Member(number, bytes([number]) * 16 if uuid is None else uuid, "127.0.0.1", port, labels)


VOTERS = (member(1), member(2), member(3))


def request(kind, number, *, by=0, port=0, host="", labels=(), forced=False, uuid=NO_UUID):
    place = encode_place(host, labels)
    return MemberChangeRequest(kind, number, by, port, forced, uuid, place)


def members(voters=VOTERS, *, learners=(), incoming=(), committed=True, number=3):
    return MembersChanged(9, committed, Configuration(number, voters, incoming, learners))


@pytest.fixture
def stage():
    stage = Stage()
    stage.lead()
    stage.commit()
    stage.heard()
    return stage


ADD_4 = request(ADD, 4, host="127.0.0.1", port=7300, labels=("zone=a",))
RESERVED_4 = member(4, uuid=NO_UUID, labels=("zone=a",))


@pytest.mark.parametrize(
    ("asked", "event"),
    [
        (ADD_4, ChangeRequested(0, ChangeKind.ADD, members=(RESERVED_4,))),
        (
            request(PROMOTE, 4, forced=True),
            ChangeRequested(0, ChangeKind.PROMOTE, 4, is_forced=True),
        ),
        (request(REMOVE, 4), ChangeRequested(0, ChangeKind.REMOVE, 4)),
        (request(REPLACE, 2, by=4), ChangeRequested(0, ChangeKind.REPLACE, 2, by=4)),
        (request(REPLACE, 2), ChangeRequested(0, ChangeKind.REPLACE, 2)),
        (
            request(REPLACE, 2, host="b", port=7400),
            ChangeRequested(0, ChangeKind.REPLACE, 2, members=(Member(0, NO_UUID, "b", 7400),)),
        ),
    ],
)
def test_a_request_becomes_the_event_of_its_kind(asked, event):
    assert change_of(asked) == event


def test_labels_come_in_the_order_that_an_entry_has_them_in():
    asked = request(ADD, 4, host="a", port=7300, labels=("rack-unit=7", "rack=2", "rack2=b"))
    (added,) = change_of(asked).members
    assert encode_configuration(Configuration(1, (member(1),), (), (added,)))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (request(9, 4), "no change of members has the number 9"),
        (request(ADD, 0, host="a", port=7300), "no member 0"),
        (request(PROMOTE, 65_536), "no member 65536"),
        (request(ADD, 4), "Give its HOST:PORT"),
        (request(ADD, 4, host="a", port=65_530), "port 65530"),
        (request(ADD, 4, host="a" * 254, port=7300), "at most 253 characters"),
        (request(ADD, 4, host="a;b", port=7300), "neither an IPv4 address nor a host name"),
        (request(REPLACE, 2, host="[::1]", port=7300), "neither an IPv4 address nor a host name"),
        (request(REMOVE, 4, host="a", port=7300), "REMOVE needs none"),
        (request(REPLACE, 2, by=4, host="a", port=7300), "REPLACE needs none"),
        (request(PROMOTE, 4, by=2), "only a replacement has `by`"),
        (request(REPLACE, 2, by=65_536), "no member 65536"),
        (MemberChangeRequest(ADD, 4, 0, 7300, False, NO_UUID, b"\xff"), "printable ASCII"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_do(asked, words):
    refused = change_of(asked)
    assert isinstance(refused, Refused)
    assert refused.code is ErrorCode.INVALID_REQUEST
    assert words in refused.text


def test_a_change_is_raft_s_to_decide_and_its_answer_is_the_client_s(stage):
    client = stage.client()
    client.ask(ADD_4)
    (asked,) = stage.heard()
    assert asked == msgspec.structs.replace(change_of(ADD_4), request_id=asked.request_id)
    assert client.answer() is None
    stage.tell(ChangeAnswered(asked.request_id, ErrorCode.OK, ""))
    assert client.answer() == DoneReply(0)
    client.ask(request(PROMOTE, 4))
    (asked,) = stage.heard()
    stage.tell(ChangeAnswered(asked.request_id, ErrorCode.NOT_READY, "it is 7 bytes behind"))
    reply = client.answer()
    assert (reply.code, reply.text) == (ErrorCode.NOT_READY, b"it is 7 bytes behind")


def test_a_follower_changes_no_members_and_a_bad_request_is_refused_at_once(stage):
    client = stage.client()
    client.ask(request(ADD, 4))
    assert client.answer().code == ErrorCode.INVALID_REQUEST
    stage.tell(LeaderChanged(2, 3))
    client.ask(ADD_4)
    reply = client.answer()
    assert (reply.code, reply.leader) == (ErrorCode.NOT_LEADER, 3)
    assert not stage.heard()


def test_what_is_done_already_is_answered_once_a_quorum_confirms_the_leader(stage):
    stage.tell(members(learners=(RESERVED_4,)))
    client = stage.client()
    client.ask(ADD_4)
    (asked,) = stage.heard()
    assert isinstance(asked, ReadIndexRequested)
    assert client.answer() is None
    stage.tell(ReadIndexAnswered(asked.request_id, True, 0))
    assert client.answer() == DoneReply(0)


def test_a_leader_that_was_deposed_does_not_say_that_a_change_is_done(stage):
    stage.tell(members(learners=(RESERVED_4,)))
    client = stage.client()
    client.ask(ADD_4)
    (asked,) = stage.heard()
    stage.tell(LeaderChanged(2, 3), ReadIndexAnswered(asked.request_id, False, 0))
    assert client.answer().code == ErrorCode.NOT_LEADER


def test_what_was_undone_while_raft_confirmed_is_asked_for_again(stage):
    stage.tell(members(learners=(RESERVED_4,)))
    client = stage.client()
    client.ask(ADD_4)
    (asked,) = stage.heard()
    stage.tell(members(number=4), ReadIndexAnswered(asked.request_id, True, 0))
    assert client.answer() is None
    (change,) = stage.heard()
    assert change == msgspec.structs.replace(
        change_of(ADD_4), request_id=asked.request_id - READS_OF_INGRESS
    )


JOINED_4 = member(4, labels=("zone=a",))
NEW_2 = member(2, uuid=b"n" * 16)
REPLACE_2 = request(REPLACE, 2, uuid=VOTERS[1].uuid)
BY_ADDRESS = request(REPLACE, 2, host="127.0.0.1", port=7300, uuid=VOTERS[1].uuid)
WITHOUT_2 = (VOTERS[0], VOTERS[2])


@pytest.mark.parametrize(
    ("asked", "known", "done"),
    [
        (ADD_4, members(), False),
        (ADD_4, members(learners=(RESERVED_4,)), True),
        (ADD_4, members((*VOTERS, JOINED_4)), True),
        (ADD_4, members(learners=(member(4, port=7400, labels=("zone=a",)),)), False),
        (ADD_4, members(learners=(member(4),)), False),  # another label was asked for
        (ADD_4, members(learners=(RESERVED_4,), committed=False), False),
        (ADD_4, None, False),
        (ADD_4, members(number=0), False),
        (request(PROMOTE, 4), members(learners=(JOINED_4,)), False),
        (request(PROMOTE, 4), members(incoming=(*VOTERS, JOINED_4)), False),
        (request(PROMOTE, 4), members((*VOTERS, JOINED_4)), True),
        (request(PROMOTE, 5), members(), False),
        (request(REMOVE, 4), members(), True),
        (request(REMOVE, 2), members(), False),
        (request(REMOVE, 2, uuid=VOTERS[1].uuid), members(), False),
        (request(REMOVE, 2, uuid=VOTERS[1].uuid), members((*WITHOUT_2, NEW_2)), True),
        (request(REMOVE, 2), members(incoming=WITHOUT_2), False),
        (REPLACE_2, members(), False),
        (REPLACE_2, members(WITHOUT_2), False),  # removed, and no place is reserved
        (REPLACE_2, members(WITHOUT_2, learners=(member(2, uuid=NO_UUID),)), True),
        (REPLACE_2, members((*WITHOUT_2, NEW_2)), True),
        (request(REPLACE, 2), members((*WITHOUT_2, NEW_2)), False),  # which replica was meant?
        (request(REPLACE, 2, by=4), members(learners=(JOINED_4,)), False),
        (request(REPLACE, 2, by=4), members((*WITHOUT_2, JOINED_4)), True),
        (BY_ADDRESS, members(), False),
        (BY_ADDRESS, members(learners=(JOINED_4,)), False),  # it came for something else
        (BY_ADDRESS, members(learners=(member(4, uuid=NO_UUID, labels=("replaces=2",)),)), True),
        (BY_ADDRESS, members((*WITHOUT_2, JOINED_4)), True),
        (BY_ADDRESS, members(WITHOUT_2, learners=(JOINED_4,)), False),
    ],
)
def test_a_request_is_done_where_a_committed_configuration_says_so(asked, known, done):
    assert is_done(asked, known) is done


def test_metadata_names_the_members_that_are_there(stage):
    stage.tell(
        members(
            (VOTERS[0], member(2, port=7500), member(3, uuid=NO_UUID)),
            learners=(member(4), member(5, uuid=NO_UUID)),
            number=7,
        )
    )
    client = stage.client()
    client.ask(MetadataRequest())
    document = msgspec.json.decode(client.answer().document)
    assert document["configuration"] == 7
    rows = [
        (row["node"], row["port"], row["produce_port"], row["role"]) for row in document["nodes"]
    ]
    assert rows == [
        (1, 7000, 7008, "voter"),
        (2, 7500, 7508, "voter"),  # not where the file has it
        (3, 7200, 7208, "voter"),  # not heard yet; it is a voter
        (4, 7300, 7308, "learner"),
    ]


def test_without_a_configuration_in_the_log_the_file_s_nodes_are_named(stage):
    stage.tell(members(number=0))
    client = stage.client()
    client.ask(MetadataRequest())
    document = msgspec.json.decode(client.answer().document)
    assert document["configuration"] == 0
    assert [row["node"] for row in document["nodes"]] == [1, 2, 3]


def test_leadership_is_handed_to_members_only(stage):
    stage.tell(members((*WITHOUT_2, member(4))))
    client = stage.client()
    client.ask(TransferRequest(2))
    assert client.answer().code == ErrorCode.INVALID_REQUEST
    client.ask(TransferRequest(4))
    (asked,) = stage.heard()
    assert asked == TransferRequested(asked.request_id, 4)
