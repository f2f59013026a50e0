"""Tells as facts what the core gives to a user, with the whole batches as they came.

Owns the batches that are decoded and not given to the user yet. Must not know how they were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from actors.simulation.checkers.client_facts import Delivered, Subscribed
from actors.simulation.checkers.messages.witness import Client
from logstore.client.core.steps import Frame
from logstore.client.records import RecordBatch, batches_of, raw_batches_of
from logstore.format.client_messages import Piece


class DeliveryRecorder:
    """The `Decode` function of one client's core, which keeps the whole batches."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._whole: dict[int, bytes] = {}  # by the first LSN

    def __call__(
        self, frame: Frame, piece: Piece, *, first_lsn: int, last_lsn: int
    ) -> Iterator[RecordBatch]:
        """What a user gets; the bytes of each batch are kept. Hot."""
        for raw in raw_batches_of(frame, piece, first_lsn=first_lsn, last_lsn=last_lsn):
            self._whole[raw.first_lsn] = bytes(raw.data)
        return batches_of(frame, piece, first_lsn=first_lsn, last_lsn=last_lsn)

    def begin_at(self, lsn: int, *, is_earliest: bool = False) -> None:
        """The next batch that the user gets begins at `lsn`, or at a later log start."""
        self._client.tell(Subscribed(self._client.name, lsn, is_earliest))

    def record(self, node: int, batches: Sequence[RecordBatch]) -> None:
        """The user got these batches, which `node` had served."""
        client = self._client
        for each in batches:
            first_lsn = each.batch_first_lsn
            handed = each.first_lsn, each.last_lsn
            data = self._whole[first_lsn]
            client.tell(Delivered(client.name, node, first_lsn, data, handed, each.is_whole))
        self._whole.clear()
