"""A client's request as it arrives on a port: the request, its refusal, or why it gets no answer.

Pure. A message is answered if its sender can be known, so that the author of a client learns what
is wrong. `Silence` says what gets no answer, and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import msgspec

from logstore.errors import DamagedMessage, ErrorCode, InvalidRequest, LogStoreError
from logstore.format.client_messages import (
    CursorsRequest,
    EndSessionRequest,
    FetchRequest,
    ImportRequest,
    InitializeRequest,
    MetadataRequest,
    OpenSessionRequest,
    RaiseLevelRequest,
    SessionLookupRequest,
    SessionsRequest,
    SessionStateRequest,
    SetCursorRequest,
    SpansRequest,
    StatusRequest,
    TimeLookupRequest,
    TraceRequest,
    TransferRequest,
    TrimRequest,
    VerifyRequest,
    WatermarksRequest,
)
from logstore.format.member_messages import MemberChangeRequest
from logstore.format.message import (
    PEER_TYPES_END,
    Envelope,
    checked_envelope,
    decode_message,
    message_types,
)


class RequestPort(Enum):
    """A port that takes requests, and which ones. One that two ports take is named as a request of
    the first."""

    CONTROL = frozenset(
        {
            MetadataRequest,
            OpenSessionRequest,
            SessionStateRequest,
            SessionLookupRequest,
            TransferRequest,
            StatusRequest,
            InitializeRequest,
            SetCursorRequest,
            CursorsRequest,
            SessionsRequest,
            EndSessionRequest,
            RaiseLevelRequest,
            TrimRequest,
            TraceRequest,
            MemberChangeRequest,
        }
    )
    FETCH = frozenset(
        {FetchRequest, WatermarksRequest, TimeLookupRequest, VerifyRequest, SpansRequest}
    )
    # what a producer needs; the control port takes these as well
    PRODUCE = frozenset({MetadataRequest, OpenSessionRequest, SessionStateRequest})


_REQUESTS = RequestPort.CONTROL.value | RequestPort.FETCH.value | {ImportRequest}
_ANSWERS = frozenset(
    number
    for number, cls in message_types().items()
    if number >= PEER_TYPES_END and cls not in _REQUESTS
)


class Silence(Enum):
    """Why a message gets no answer."""

    NO_MESSAGE = "nothing in it says whom an answer would be for"
    # The correlation may be that of another request, which an answer would refuse.
    DAMAGED = "its CRC does not fit"
    # Two replicas that get each other's answers would exchange refusals for ever.
    ANSWER = "it is itself an answer"


class BadRequest(msgspec.Struct, frozen=True, gc=False):
    """A whole and undamaged message that this port cannot serve: it is refused."""

    envelope: Envelope
    code: ErrorCode
    text: str


def read_request(
    frames: Sequence[bytes], port: RequestPort
) -> tuple[Envelope, Any] | BadRequest | Silence:
    """The message in `frames`, which do not include the routing id."""
    try:
        if len(frames) != 1:
            raise InvalidRequest(f"a request is one frame, the message: these are {len(frames)}")
        envelope, message = decode_message(frames[0])
    except LogStoreError as error:
        return _refusal(frames, error)
    if type(message) in port.value:
        return envelope, message
    if envelope.type in _ANSWERS:
        return Silence.ANSWER
    text = (
        f"{type(message).__name__} is no request of the {port.name.lower()} port{_takers(message)}"
    )
    return BadRequest(envelope, ErrorCode.INVALID_REQUEST, text)


def _takers(message: Any) -> str:
    """Names the port that takes the message, for a client that mixed up a node's ports."""
    names = [each.name.lower() for each in RequestPort if type(message) in each.value]
    return f" but of the {names[0]} port: check the endpoint" if names else ""


def _refusal(frames: Sequence[bytes], error: LogStoreError) -> BadRequest | Silence:
    for frame in frames:
        envelope = checked_envelope(frame)
        if envelope is not None:
            if envelope.type in _ANSWERS:
                return Silence.ANSWER
            is_newer = error.code is ErrorCode.UNSUPPORTED_VERSION
            code = ErrorCode.UNSUPPORTED_VERSION if is_newer else ErrorCode.INVALID_REQUEST
            return BadRequest(envelope, code, str(error))
    return Silence.DAMAGED if isinstance(error, DamagedMessage) else Silence.NO_MESSAGE
