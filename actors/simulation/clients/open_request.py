"""Requests to open a session (E8), and the names of sessions."""

from __future__ import annotations

from logstore.format.client_messages import OpenSessionRequest
from logstore.limits import SESSION_WINDOW_MIN
from logstore.model import AckLevel, SequenceMode


def session_name(client: str) -> bytes:
    """The name under which this client opens sessions, if it uses one."""
    return f"name of {client}".encode()


def open_request(
    mode: SequenceMode, name: bytes = b"", *, window: int = SESSION_WINDOW_MIN
) -> OpenSessionRequest:
    """For a new producer, or the one of this name. `window` in batches."""
    return OpenSessionRequest(0, mode, AckLevel.QUORUM, window, name)
