"""What the core's producer needs of the code that appends: packs to send, which take their outcome.

Protocols only; each driver has its own way to wait for room and for outcomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from logstore.errors import LogStoreError
from logstore.format.batch import PackedPayloads


class Pack(Protocol):
    """One client batch from its first payload to its outcome.

    Attributes:
      payloads: in order; emptied once the pack is settled.
      size_bytes: of the batch on the wire, at most.
      opened_ns: when the first payload came, monotonic.
      deadline_ns: monotonic; after it the appends fail, whatever becomes of the batch.
      sequence: -1 until one is given to it: when it is first sent, or by the caller.
      expected_next_lsn: where the log must end for the batch to be stored; None: anywhere.
      batch: its bytes, from the first sending on until the log's answer; the same for every retry.
    """

    payloads: list[bytes] | PackedPayloads
    size_bytes: int
    opened_ns: int
    deadline_ns: int
    sequence: int
    expected_next_lsn: int | None
    batch: bytes

    def is_settled(self) -> bool: ...

    def resolve(self, first_lsn: int, count: int) -> None:
        """The batch is committed with `count` LSNs from `first_lsn` on."""
        ...

    def resolve_provisionally(self, *, is_flushed: bool) -> None:
        """The leader has flushed the batch, or it is handed over: nothing more is said of it
        (SAFETY E10)."""
        ...

    def fail(self, error: LogStoreError) -> None:
        """Its appends fail; changes nothing once it is settled."""
        ...


class PackSource(Protocol):
    """Packs on their way from callers to the log, in the order in which they were opened."""

    def seal_due(self, opened_before_ns: int) -> None:
        """Take nothing more into the open pack if it was opened before that time (monotonic)."""
        ...

    def open_since_ns(self) -> int:
        """When the open pack was opened, monotonic; 0: there is none."""
        ...

    def pop_sealed(self) -> Pack | None:
        """The next pack to send."""
        ...

    def limit_batches(self, most_bytes: int) -> None:
        """From now on no batch may be larger, or larger ones may be: a replica's limit was changed.
        Packs that are there stay as they are."""
        ...

    def pop_expired(self, now_ns: int) -> Sequence[Pack]:
        """Packs that are past their deadline and were never handed out for sending."""
        ...

    def first_deadline_ns(self) -> int:
        """Of the packs not handed out yet; 0: there are none."""
        ...

    def drain(self) -> Sequence[Pack]:
        """All packs that were never handed out. Call it after `refuse`: none are added then."""
        ...

    def snapshot(self) -> Sequence[Pack]:
        """Every pack whose outcome is not known yet."""
        ...

    def release(self, size_bytes: int) -> None:
        """Packs of so many bytes in all are settled, and their bytes are freed."""
        ...

    def refuse(self, error: LogStoreError) -> None:
        """Refuse every later append with this error."""
        ...
