"""Batches as a replica serves them: the second frame of a fetch reply or tail group, checked.

Every batch is checked as the client library does: its CRC, its place, and that the LSNs follow.
What does not hold is a violation, since nothing damages bytes on their way here. Knows no cursor.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.wire import Wire
from logstore.errors import LogStoreError
from logstore.format.batch import BATCH_HEADER_SIZE, iterate_batches, verify_batch
from logstore.format.client_messages import FetchReply, iterate_pieces
from logstore.limits import MESSAGE_MAX_BYTES


class Served(msgspec.Struct, frozen=True, gc=False):
    """A whole batch and its first LSN."""

    first_lsn: int
    count: int
    batch: bytes

    @property
    def next_lsn(self) -> int:
        return self.first_lsn + self.count


def served_batches(wire: Wire, node: int, frame: bytes, *, pieces: int) -> list[Served] | None:
    """The batches of `frame` in order, of as many pieces as were announced. Hot.

    Returns:
      None, and a violation is told, if anything about them is wrong.
    """
    batches: list[Served] = []
    found, due_lsn = 0, 0
    try:
        for piece in iterate_pieces(frame):
            found += 1
            lsn = int(piece.first_lsn)
            if due_lsn not in (0, lsn):
                text = f"node {node} served LSN {lsn} where {due_lsn} was due"
                wire.violated(Invariant.I2, text)
                return None
            body = frame[piece.start : piece.end]
            for count, batch in _whole_batches(body):
                batches.append(Served(lsn, count, batch))
                lsn += count
            due_lsn = piece.first_lsn + piece.count
            if lsn != due_lsn:
                text = f"node {node}: a piece of {piece.count} payloads ends at LSN {lsn - 1}"
                wire.violated(Invariant.I4, text)
                return None
    except LogStoreError as error:
        wire.violated(Invariant.I11, f"node {node} served damaged batches: {error}")
        return None
    if found != pieces:
        wire.violated(Invariant.I11, f"node {node} announced {pieces} pieces, sent {found}")
        return None
    return batches


@lru_cache(maxsize=1_024)
def _whole_batches(body: bytes) -> tuple[tuple[int, bytes], ...]:
    """Payloads and bytes of each, checked; once, for all who get the same bytes."""
    batches = []
    for offset, header in iterate_batches(body):
        verify_batch(body, offset, header, batch_max_bytes=MESSAGE_MAX_BYTES)
        end = offset + BATCH_HEADER_SIZE + header.body_size
        batches.append((header.count, body[offset:end]))
    return tuple(batches)


def check_fetched(
    wire: Wire, node: int, reply: FetchReply, batches: list[Served], *, first_lsn: int
) -> None:
    """What a reply to a fetch from `first_lsn` on, to what was visible or further, must be."""
    shown_lsn, next_lsn = reply.visible_lsn, reply.next_lsn
    if next_lsn > shown_lsn + 1:
        text = f"node {node} shows LSN {shown_lsn}, and serves up to {next_lsn - 1}"
        wire.violated(Invariant.I8, text)
    if not batches:
        if first_lsn <= shown_lsn:
            text = f"node {node} shows LSN {shown_lsn}, and served nothing from {first_lsn} on"
            wire.violated(Invariant.I4, text)
        return
    if batches[-1].next_lsn != next_lsn:
        text = f"node {node}: next LSN {next_lsn} behind LSN {batches[-1].next_lsn - 1}"
        wire.violated(Invariant.I4, text)
    if not batches[0].first_lsn <= first_lsn < batches[0].next_lsn:
        text = f"node {node} was asked for LSN {first_lsn}, served {batches[0].first_lsn} first"
        wire.violated(Invariant.I5, text)
