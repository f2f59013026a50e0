"""A client's request as it arrives on a port: what is asked, what is wrong with it, or silence.

Pure. Whatever a client sends is answered if it can be told whose answer it is, so that somebody who
writes a client learns what is wrong. `Silence` says what gets no answer, and why not.
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
    SessionLookupRequest,
    SessionsRequest,
    SessionStateRequest,
    SetCursorRequest,
    SpansRequest,
    StatusRequest,
    TimeLookupRequest,
    TransferRequest,
    VerifyRequest,
    WatermarksRequest,
)
from logstore.format.message import (
    PEER_TYPES_END,
    Envelope,
    checked_envelope,
    decode_message,
    message_types,
)


class RequestPort(Enum):
    """Where requests arrive, and which ones that port takes."""

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
        }
    )
    FETCH = frozenset(
        {FetchRequest, WatermarksRequest, TimeLookupRequest, VerifyRequest, SpansRequest}
    )


_REQUESTS = RequestPort.CONTROL.value | RequestPort.FETCH.value | {ImportRequest}
_ANSWERS = frozenset(
    number
    for number, cls in message_types().items()
    if number >= PEER_TYPES_END and cls not in _REQUESTS
)


class Silence(Enum):
    """Why a message gets no answer."""

    NO_MESSAGE = "nothing in it says whom an answer would be for"
    # The correlation may be that of another request: its answer would say that one was refused.
    DAMAGED = "its CRC does not fit"
    # Two replicas whose answers somebody hands on to each other would talk for ever.
    ANSWER = "it is itself an answer"


class BadRequest(msgspec.Struct, frozen=True, gc=False):
    """To be refused: whole, undamaged, and nothing that this port can serve."""

    envelope: Envelope
    code: ErrorCode
    text: str


def read_request(
    frames: Sequence[bytes], port: RequestPort
) -> tuple[Envelope, Any] | BadRequest | Silence:
    """The message in `frames`, routing id left out."""
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
    """Which port takes it, for who mixed up a node's ports."""
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
