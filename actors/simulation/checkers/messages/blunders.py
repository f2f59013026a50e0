"""Wrong requests, as a new client implementation sends them at first, and the right answers.

| blunder | right answer |
|---|---|
| UNKNOWN_TYPE, OTHER_PORT, OF_REPLICAS | INVALID_REQUEST |
| SHORT, LONG, DELIMITER | INVALID_REQUEST |
| NEWER | UNSUPPORTED_VERSION |
| FOREIGN | WRONG_CLUSTER, of a replica that has a cluster |
| DAMAGED, ANSWER | none: the right request after it, of the same number, is answered |
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.messages.witness import Witness
from logstore.errors import ErrorCode
from logstore.format.client_messages import ErrorReply, MetadataReply


class Blunder(StrEnum):
    UNKNOWN_TYPE = "unknown-type"
    OTHER_PORT = "other-port"
    OF_REPLICAS = "of-replicas"
    SHORT = "short"
    LONG = "long"
    DELIMITER = "delimiter"
    NEWER = "newer"
    FOREIGN = "foreign"
    DAMAGED = "damaged"
    ANSWER = "answer"


SILENT = frozenset({Blunder.DAMAGED, Blunder.ANSWER})
_CODES: dict[Blunder, frozenset[ErrorCode]] = {
    Blunder.NEWER: frozenset({ErrorCode.UNSUPPORTED_VERSION}),
    Blunder.FOREIGN: frozenset({ErrorCode.WRONG_CLUSTER, ErrorCode.INVALID_REQUEST}),
}
_INVALID = frozenset({ErrorCode.INVALID_REQUEST})


def judge_blunder(witness: Witness, blunder: Blunder, place: str, message: Any) -> None:
    """Report `message`, from `place`, unless it is a right answer to this blunder."""
    if isinstance(message, MetadataReply) and blunder in SILENT:
        witness.count(f"silence-{blunder}")
    elif (
        isinstance(message, ErrorReply)
        and blunder not in SILENT
        and message.code in _CODES.get(blunder, _INVALID)
    ):
        witness.count(f"told-{blunder}")
        if not message.text:
            witness.violated(Invariant.I11, f"{blunder} is refused without a reason")
    else:
        witness.violated(Invariant.I11, f"{blunder} at {place} is answered {message}")
