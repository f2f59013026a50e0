"""What a user gives for a cursor: checked before anything is sent.

Shared by the clients of threads and of asyncio. Bounds are the cluster's to check.
"""

from __future__ import annotations

from typing import SupportsIndex

from logstore.errors import InvalidRequest
from logstore.format.cursor_entries import NO_LSN


def check_cursor(name: object, expected_lsn: object, lsn: object = NO_LSN) -> None:
    """Raises: InvalidRequest: the name is no text, or an LSN no whole number."""
    if not isinstance(name, str):
        raise InvalidRequest(f'a cursor of the name {name!r}: give text, such as "billing"')
    if not isinstance(lsn, SupportsIndex):
        raise InvalidRequest(f"LSN {lsn!r}: give a whole number")
    if expected_lsn is not None and not isinstance(expected_lsn, SupportsIndex):
        raise InvalidRequest(f"expected_lsn {expected_lsn!r}: give a whole number, or None")
