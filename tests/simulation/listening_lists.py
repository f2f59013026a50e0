"""What a simulated operator tells the ledger of sessions, written down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from logstore.format.session_list import ListedSession


class ListeningLists:
    """Writes everything down, into the list of the whole ledger."""

    def __init__(self, told: list[tuple[Any, ...]]) -> None:
        self._told = told

    def asked(
        self, number: int, page: tuple[int, int] | None, producer_id: int, at_ns: int
    ) -> None:
        self._told.append(("sessions", number, page, producer_id))

    def ended(self, number: int, at_ns: int) -> None:
        self._told.append(("ended", number))

    def unknown(self, number: int, at_ns: int, *, node: int) -> None:
        self._told.append(("no session", number, node))

    def listed(
        self, number: int, rows: Sequence[ListedSession], next_after: int, at_ns: int, *, node: int
    ) -> None:
        self._told.append(("page", number, tuple(rows), next_after, node))
