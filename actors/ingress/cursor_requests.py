"""Requests for named cursors: lists of them, and their changes (SAFETY E8, V5).

Pure: decides each from the session table. When to answer is up to `linearizable_reads` and
`changes`.
"""

from __future__ import annotations

from actors.ingress.changes import Change
from actors.ingress.linearizable_reads import Reply
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    CursorsReply,
    CursorsRequest,
    DoneReply,
    SetCursorRequest,
)
from logstore.format.cursor_entries import NO_LSN, Cursor, Hold, encode_cursors
from logstore.session.cursors import CursorRequest
from logstore.session.session import Refused
from logstore.session.table import SessionTable

_LOST = "this replica stopped leading before the change was committed: list the cursors"


def list_cursors(table: SessionTable, _request: CursorsRequest) -> Reply:
    """Every cursor."""
    reply = CursorsReply(encode_cursors(table.cursors.rows()))
    return lambda: reply


def decide_cursor(table: SessionTable, request: SetCursorRequest) -> Change | Refused:
    """Whether the cursor may be changed; the reply is where it stood."""
    if request.hold > Hold.AS_IT_IS:
        text = f"hold {request.hold}: 0 is not held, 1 held, 2 as it is"
        return Refused(ErrorCode.INVALID_REQUEST, 0, text)
    cursor = Cursor(request.name, request.lsn, would_hold(table, request))
    refused = table.cursors.refusal_of(CursorRequest(cursor, request.expected_lsn))
    return refused or Change(cursor, DoneReply(table.cursors.lsn_of(cursor.name)), _LOST)


def would_hold(table: SessionTable, request: SetCursorRequest) -> bool:
    """Whether the cursor is held once it is changed. A consumer that moves it says "as it is": only
    here is that known for the moment at which the change enters the stream."""
    if request.hold == Hold.AS_IT_IS:
        return request.lsn != NO_LSN and table.cursors.is_held(request.name)
    return request.hold == Hold.HELD
