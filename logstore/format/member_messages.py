"""The request of an operator to change the members of the cluster (SAFETY C7, C11).

Number 87 of the control port. Answered with a DoneReply once the change is committed, or with an
ErrorReply. Its kinds have the numbers of the consensus core's `ChangeKind`, of which it has those
that operators ask for. Replicas of a version before 2026-11-27 do not know it.

The tail is a place, one line each, of printable ASCII: the host, then a label "key=value" a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import msgspec

from logstore.errors import FormatError
from logstore.format.fields import UUID_SIZE
from logstore.format.message import register


class MemberChangeKind(IntEnum):
    """What an operator asks for."""

    ADD = 2  # reserve a place for a replica that is to join as a learner
    PROMOTE = 3  # a learner becomes a voter
    REMOVE = 4
    REPLACE = 5


class MemberChangeRequest(msgspec.Struct, frozen=True, gc=False):
    """Change member `number`. DoneReply once the change is committed, or ErrorReply.

    `by`: REPLACE: the learner that takes its place, 0: none that is there yet. `port`, `place`: ADD
    and REPLACE: where the new replica will be; of REPLACE without `by` and host: in the same place,
    with an empty folder. `is_forced`: also where the new voters do not answer, or one that stays is
    damaged. `replica_uuid`: REMOVE and REPLACE: the replica that is to leave; zeros: whichever has
    the number. With it, a request that is asked again does not hit the one that came after it.
    """

    kind: int
    number: int
    by: int
    port: int
    is_forced: bool
    replica_uuid: bytes = bytes(UUID_SIZE)
    place: bytes = b""


def encode_place(host: str, labels: Sequence[str] = ()) -> bytes:
    """The tail; without a host it is empty."""
    return "\n".join((host, *labels)).encode("ascii", "replace") if host else b""


def decode_place(place: bytes) -> tuple[str, tuple[str, ...]]:
    """Host and labels of a tail.

    Raises:
      FormatError: it is not ASCII.
    """
    try:
        host, *labels = place.decode("ascii").split("\n")
    except UnicodeDecodeError as error:
        raise FormatError("host and labels of a member are printable ASCII") from error
    return host, tuple(labels)


register(87, MemberChangeRequest, "IIII?16s", has_tail=True)
