"""Imports: batches of another log, appended byte for byte at the LSNs that they had there (P1).

Owns when one is admitted. An import belongs to no session of this log: it is an entry of its own
kind, which the session table ignores. Each request names the LSN that its batch had, and is
admitted only where the log ends, proposals under way included; so a request that comes twice, or
late, changes nothing, and the batch is stored once. Imports are admitted only while the log has no
session, so that they never mix with appends.
"""

from __future__ import annotations

import struct

from actors.ingress.acks import AckFeed
from actors.ingress.admission import NOT_OPEN, Admission
from actors.ingress.codec_level import refusal_of_codec
from actors.ingress.replica_info import ZERO_ID, ReplicaInfo
from actors.topology import Counter, counter_of
from logstore.errors import ErrorCode, FormatError, InvalidBatch, LogStoreError
from logstore.format.batch import BatchHeader, BatchSizes, read_batch_header, verify_batch
from logstore.format.client_messages import ImportRequest
from logstore.format.message import MAGIC, Envelope, decode_message
from logstore.session.session import Refused, WindowRow

_MAGIC = struct.pack("<I", MAGIC)
_NO_EPOCH = _NO_ROUND = 0


class Imports:
    """The import requests among what is pushed."""

    def __init__(
        self, admission: Admission, acks: AckFeed, replica: ReplicaInfo, *, batch_max_bytes: int
    ) -> None:
        self._admission = admission
        self._acks = acks
        self._replica = replica
        self._batch_max_bytes = batch_max_bytes

    def take(self, frame: bytes | memoryview) -> Counter | None:
        """Admit or refuse the import in `frame`. If there is none: the counter that counts it."""
        if frame[:4] != _MAGIC:
            return Counter.FRAMES_DROPPED
        try:
            envelope, request = decode_message(frame)
        except FormatError as error:
            return counter_of(error)
        if not isinstance(request, ImportRequest):
            return Counter.FRAMES_DROPPED
        refused = self._offer(envelope, request)
        if refused is not None:
            numbers = (request.importer, _NO_EPOCH, request.first_lsn, 0)
            self._acks.refuse(numbers, _NO_ROUND, refused.code, refused.detail)
        return None

    def _offer(self, envelope: Envelope, request: ImportRequest) -> Refused | None:
        ours = self._replica.identity.cluster_id
        if ours not in (ZERO_ID, envelope.cluster_id):  # zero: raft has not sent our Identity yet
            return Refused(ErrorCode.WRONG_CLUSTER, 0, "")
        if self._admission.table is None:
            return NOT_OPEN
        try:
            header, sizes = self._read(request.batch)
        except LogStoreError as error:
            return Refused(error.code, 0, "")
        refused = refusal_of_codec(self._admission, header)
        if refused is not None:
            return refused
        row = WindowRow(request.first_lsn, header.count, header.crc)
        origin = (request.importer, _NO_EPOCH, _NO_ROUND, row)
        return self._admission.take_import(memoryview(request.batch), origin, sizes)

    def _read(self, batch: bytes) -> tuple[BatchHeader, BatchSizes]:
        """Header and sizes of a whole batch, checked as a producer's is."""
        header = read_batch_header(batch)
        if header.size != len(batch):
            raise InvalidBatch(f"{len(batch)} bytes, the batch says {header.size}")
        return header, verify_batch(batch, 0, header, batch_max_bytes=self._batch_max_bytes)
