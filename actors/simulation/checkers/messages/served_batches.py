"""Batches as a replica serves them: the second frame of a fetch reply or of a tail group.

Every batch is checked as the client library does: its CRC, its LSNs, and that LSNs follow each
other. A fault is a violation, since nothing damages bytes on their way here. Must not know cursors.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.messages.exchange import Complain
from logstore.errors import LogStoreError
from logstore.format.batch import BATCH_HEADER_SIZE, iterate_batches, verify_batch
from logstore.format.client_messages import FetchReply, FetchRequest, iterate_pieces
from logstore.limits import MESSAGE_MAX_BYTES


class Served(msgspec.Struct, frozen=True, gc=False):
    """A whole batch and its first LSN."""

    first_lsn: int
    count: int
    batch: bytes

    @property
    def next_lsn(self) -> int:
        return self.first_lsn + self.count


def served_batches(
    violated: Complain, node: int, frame: bytes, *, pieces: int
) -> list[Served] | None:
    """The batches of `frame` in order, of as many pieces as were announced. Hot.

    Returns:
      None, after it has reported a violation, if anything about them is wrong.
    """
    batches: list[Served] = []
    found, due_lsn = 0, 0
    try:
        for piece in iterate_pieces(frame):
            found += 1
            lsn = int(piece.first_lsn)
            if due_lsn not in (0, lsn):
                text = f"node {node} served LSN {lsn} where {due_lsn} was due"
                violated(Invariant.I2, text)
                return None
            body = frame[piece.start : piece.end]
            for count, batch in _whole_batches(body):
                batches.append(Served(lsn, count, batch))
                lsn += count
            due_lsn = piece.first_lsn + piece.count
            if lsn != due_lsn:
                text = f"node {node}: a piece of {piece.count} payloads ends at LSN {lsn - 1}"
                violated(Invariant.I4, text)
                return None
    except LogStoreError as error:
        violated(Invariant.I11, f"node {node} served damaged batches: {error}")
        return None
    if found != pieces:
        violated(Invariant.I11, f"node {node} announced {pieces} pieces, sent {found}")
        return None
    return batches


@lru_cache(maxsize=1_024)
def _whole_batches(body: bytes) -> tuple[tuple[int, bytes], ...]:
    """The payload count and the bytes of each batch, checked. Cached for all clients that get the
    same bytes."""
    batches = []
    for offset, header in iterate_batches(body):
        verify_batch(body, offset, header, batch_max_bytes=MESSAGE_MAX_BYTES)
        end = offset + BATCH_HEADER_SIZE + header.body_size
        batches.append((header.count, body[offset:end]))
    return tuple(batches)


def check_fetched(
    violated: Complain,
    node: int,
    request: FetchRequest,
    reply: FetchReply,
    batches: list[Served],
) -> None:
    """Checks a reply that is no error against its request."""
    shown_lsn, next_lsn = reply.visible_lsn, reply.next_lsn
    first_lsn, last_lsn = request.first_lsn, request.last_lsn
    if last_lsn < first_lsn or not reply.log_start_lsn <= first_lsn <= shown_lsn + 1:
        violated(Invariant.I8, f"node {node} serves {request}: {reply}")
    if next_lsn > shown_lsn + 1:
        text = f"node {node} shows LSN {shown_lsn}, and serves up to {next_lsn - 1}"
        violated(Invariant.I8, text)
    if not batches:
        if first_lsn <= shown_lsn:
            text = f"node {node} shows LSN {shown_lsn}, and served nothing from {first_lsn} on"
            violated(Invariant.I4, text)
        return
    if batches[-1].next_lsn != next_lsn:
        text = f"node {node}: next LSN {next_lsn} after LSN {batches[-1].next_lsn - 1}"
        violated(Invariant.I4, text)
    if not batches[0].first_lsn <= first_lsn < batches[0].next_lsn:
        text = f"node {node} was asked for LSN {first_lsn}, served {batches[0].first_lsn} first"
        violated(Invariant.I5, text)
    if batches[-1].first_lsn > last_lsn:
        text = f"{request} was served LSN {batches[-1].first_lsn} by node {node}, too"
        violated(Invariant.I4, text)
