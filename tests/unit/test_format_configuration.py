"""The body of a CONFIG entry: what comes back, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from logstore.errors import FormatError, InvalidRequest
from logstore.format.configuration_body import (
    NO_UUID,
    Configuration,
    Member,
    MemberRole,
    decode_configuration,
    encode_configuration,
    roles,
)
from logstore.limits import POSITION_MAX
from logstore.model import NodeId
from tests.unit.test_format_sessions import resealed


def member(number: int, uuid: int = 0, **changes: Any) -> Member:
    uuid_ = (uuid or number).to_bytes(16, "big")
    return msgspec.structs.replace(
        Member(NodeId(number), uuid_, f"node-{number}", 7_000 + number), **changes
    )


A, B, C, D = (member(number, labels=(f"rack=r{number}",)) for number in range(1, 5))
NEW_C = member(3, 33)
UNHEARD = msgspec.structs.replace(B, uuid=NO_UUID)
THREE = Configuration(7, (A, B, C))
JOINT = Configuration(8, (A, B, C), (A, B, NEW_C), (D,))
BODY = encode_configuration(JOINT)
LARGEST = [
    member(number, host="h" * 253 + f"{number:02}", labels=tuple(
        f"{key}=".ljust(128, "v") for key in "abcdefgh"
    ))
    for number in range(1, 28)
]  # fmt: skip


@pytest.mark.parametrize(
    "configuration",
    [
        THREE,
        JOINT,
        Configuration(1, (A,)),
        Configuration(1, (A, UNHEARD, C)),
        Configuration(2, (A, UNHEARD, C), (A, UNHEARD), ()),
        Configuration(POSITION_MAX, (A, B, C), (A,)),
        Configuration(3, (A,), (D,), (B, NEW_C)),
        Configuration(3, (A, B, C), (), (NEW_C,)),
        Configuration(1, (member(65_535, port=65_535, labels=("a=", "b= x=y ")),)),
    ],
)
def test_every_configuration_comes_back(configuration: Configuration) -> None:
    body = encode_configuration(configuration)
    assert len(body) % 8 == 0
    assert decode_configuration(body) == configuration
    assert encode_configuration(decode_configuration(memoryview(body))) == body


def test_the_largest_configuration_is_far_below_a_group() -> None:
    largest = Configuration(1, *(tuple(LARGEST[at : at + 9]) for at in (0, 9, 18)))
    body = encode_configuration(largest)
    assert len(body) == 24 + 27 * (24 + 256 + 1_032)
    assert decode_configuration(body) == largest


def test_a_member_is_there_once_with_its_role() -> None:
    assert roles(JOINT) == [
        (A, MemberRole.VOTER),
        (B, MemberRole.VOTER),
        (C, MemberRole.OUTGOING),
        (NEW_C, MemberRole.INCOMING),
        (D, MemberRole.LEARNER),
    ]
    assert BODY.count(A.uuid) == 1


def test_every_cut_of_a_body_is_refused() -> None:
    for size in range(len(BODY)):
        with pytest.raises(FormatError):
            decode_configuration(BODY[:size])
    with pytest.raises(FormatError):
        decode_configuration(BODY + bytes(8))


def test_every_flipped_bit_of_a_body_is_refused() -> None:
    for at in range(len(BODY)):
        for bit in range(8):
            flipped = bytearray(BODY)
            flipped[at] ^= 1 << bit
            with pytest.raises(FormatError):
                decode_configuration(flipped)


@pytest.mark.parametrize(
    ("configuration", "says"),
    [
        (Configuration(0, (A,)), "id 0"),
        (Configuration(POSITION_MAX + 1, (A,)), "id"),
        (Configuration(1, ()), "without a voter"),
        (Configuration(1, (), (A,)), "without a voter"),
        (Configuration(1, tuple(member(each) for each in range(1, 11))), "10 voters"),
        (Configuration(1, (A,), (), tuple(member(each) for each in range(2, 12))), "10 voters"),
        (Configuration(1, (A, B), (A, B)), "what they are"),
        (Configuration(1, (A, B), (B, A)), "out of order"),
        (Configuration(1, (A, B), (D, A)), "out of order"),
        (Configuration(1, (A, member(1, 9, host="x"))), "node 1 twice"),
        (Configuration(1, (A, member(9, host="node-1", port=7_001))), "node-1"),
        (Configuration(1, (A, member(9, 1))), "replica"),
        (Configuration(1, (A, B), (A, member(2, labels=("rack=other",)))), "replica"),
        (Configuration(1, (A, B), (), (A,)), "replica"),
        (Configuration(1, (A, B), (), (NEW_C, C)), "node 3 twice"),
        (Configuration(1, (A,), (A, UNHEARD)), "without a replica uuid"),
        (Configuration(1, (msgspec.structs.replace(A, uuid=b"short"),)), "5 bytes"),
    ],
)
def test_a_configuration_that_cannot_be_is_not_encoded(
    configuration: Configuration, says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        encode_configuration(configuration)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"number": 0}, "member 0"),
        ({"number": 65_536}, "member 65536"),
        ({"port": 0}, "port 0"),
        ({"port": 65_536}, "port 65536"),
        ({"host": ""}, "host"),
        ({"host": "a b"}, "host"),
        ({"host": "nöde"}, "host"),
        ({"host": "h" * 256}, "host"),
        ({"labels": ("rack",)}, "key=value"),
        ({"labels": ("=r1",)}, "key=value"),
        ({"labels": ("rack=a\nb=c",)}, "key=value"),
        ({"labels": ("rack=é",)}, "key=value"),
        ({"labels": ("k=" + "v" * 127,)}, "128 bytes"),
        ({"labels": ("b=1", "a=1")}, "sorted"),
        ({"labels": ("a=1", "a=2")}, "twice"),
        ({"labels": tuple(f"k{each}=" for each in range(9))}, "9 labels"),
    ],
)
def test_a_member_that_cannot_be_is_not_encoded(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        encode_configuration(Configuration(1, (msgspec.structs.replace(A, **changes),)))


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (6, b"\1"), (8, bytes(8)), (8, b"\xff" * 8), (16, b"\0"), (16, b"\4"), (16, b"\6"),
        (16, b"\x1c"), (16, b"\xff" * 4), (24, bytes(2)), (26, bytes(2)), (28, b"\0"),
        (28, b"\3"), (28, b"\4"), (28, b"\5"), (29, b"\0"), (29, b"\5"),
        (29, b"\xff"), (30, b"\0"), (30, b"\6"), (31, b"\xff"), (32, bytes(15) + b"\2"),
        (48, b"\n"), (48, b"\x80"), (54, b"\1"), (56, b"="), (56, b"\n"), (63, b"\n"),
    ],
)  # fmt: skip
def test_a_body_with_one_bad_field_is_refused(at: int, data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_configuration(resealed(BODY, 20, at=at, data=data))
