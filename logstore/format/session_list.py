"""The rows of a list of sessions, as an operator gets them.

Owns their bytes. A page holds at most SESSIONS_PAGE_MAX of them, rising by producer id.

each row
  0 producer_id u64
  8 producer_epoch u32 │ mode u8 │ state u8 │ name size u8 │ ack level u8 (0: quorum)
 16 window u32 │ reserved u32 = 0
 24 window_bytes u64
 32 next_sequence u64
 40 last_used_ns u64 (timestamp of the newest entry with a batch or an OPEN of it; 0: not known)
 48 name, zeros to a multiple of 8

state 1: open. 2: kept, of a monotone session that was idle for too long: only its name and its
numbers are left, window and window_bytes are 0.

The ack level of quorum is written as 0, so that versions before 2026-11-26, which knew no other,
read the row.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

import msgspec

from logstore.errors import FormatError, InvalidRequest
from logstore.format.entry_body import padded_name, read_name
from logstore.format.fields import Buffer, check_room
from logstore.limits import POSITION_MAX, SESSION_NAME_MAX_BYTES, SESSIONS_PAGE_MAX
from logstore.model import AckLevel, SequenceMode

_ROW = struct.Struct("<QIBBBBIIQQQ")
_NAME = "session name"


class SessionState(IntEnum):
    """Whether a session is open or kept."""

    OPEN = 1
    KEPT = 2


_MODES = frozenset(SequenceMode)
_STATES = frozenset(SessionState)
_ACK_LEVELS = frozenset(AckLevel)


class ListedSession(msgspec.Struct, frozen=True, gc=False):
    """One row."""

    producer_id: int
    producer_epoch: int
    mode: int
    state: int
    window: int
    window_bytes: int
    next_sequence: int
    last_used_ns: int
    name: bytes
    ack_level: int = AckLevel.QUORUM


def encode_sessions(sessions: Sequence[ListedSession]) -> bytes:
    """The rows of one page.

    Raises:
      InvalidRequest: sessions that no decoder would accept.
    """
    fault = _page_fault(sessions)
    if fault:
        raise InvalidRequest(fault)
    rows = []
    for each in sessions:
        rows.append(
            _ROW.pack(
                each.producer_id, each.producer_epoch, each.mode, each.state, len(each.name),
                0 if each.ack_level == AckLevel.QUORUM else each.ack_level,
                each.window, 0, each.window_bytes, each.next_sequence, each.last_used_ns,
            )
        )  # fmt: skip
        rows.append(padded_name(each.name))
    return b"".join(rows)


def decode_sessions(rows: Buffer) -> tuple[ListedSession, ...]:
    """The sessions of `rows`, which the rows must fill.

    Raises:
      FormatError: they do not fill it, or are no rows.
    """
    sessions: list[ListedSession] = []
    offset = 0
    while offset < len(rows):
        if len(sessions) == SESSIONS_PAGE_MAX:
            raise FormatError(f"a page of more than {SESSIONS_PAGE_MAX} sessions")
        check_room(rows, offset, _ROW.size, "session")
        producer_id, epoch, mode, state, name_size, level, window, zeros, *rest = _ROW.unpack_from(
            rows, offset
        )
        if zeros:
            raise FormatError(f"reserved bytes of a session are {zeros}")
        if level == AckLevel.QUORUM:
            raise FormatError("a session's level of quorum is written as 0")
        name, offset = read_name(rows, offset + _ROW.size, name_size, _NAME)
        window_bytes, next_sequence, last_used_ns = rest
        sessions.append(
            ListedSession(
                producer_id, epoch, mode, state, window, window_bytes, next_sequence, last_used_ns,
                name, level or AckLevel.QUORUM,
            )
        )  # fmt: skip
    fault = _page_fault(sessions)
    if fault:
        raise FormatError(fault)
    return tuple(sessions)


def _page_fault(sessions: Sequence[ListedSession]) -> str | None:
    if len(sessions) > SESSIONS_PAGE_MAX:
        return f"a page of {len(sessions)} sessions, at most {SESSIONS_PAGE_MAX}"
    before = 0
    for each in sessions:
        if each.producer_id <= before:
            return f"session {each.producer_id} follows {before}"
        before = each.producer_id
        fault = _fault(each)
        if fault:
            return fault
    return None


def _fault(session: ListedSession) -> str | None:
    if session.mode not in _MODES or session.state not in _STATES:
        return f"session mode {session.mode}, state {session.state}"
    if session.ack_level not in _ACK_LEVELS:
        return f"session ack level {session.ack_level}"
    if len(session.name) > SESSION_NAME_MAX_BYTES:
        return f"a name of {len(session.name)} bytes, at most {SESSION_NAME_MAX_BYTES}"
    try:
        session.name.decode()
    except UnicodeDecodeError as error:
        return f"a name that is no UTF-8: {error}"
    highest = max(session.window_bytes, session.next_sequence, session.last_used_ns)
    return f"a session's {highest}, at most {POSITION_MAX}" if highest > POSITION_MAX else None
