"""The god's-eye list of what clients and replicas did, and the checkers that read it as it grows.

Owns nothing but the one door through which facts reach the checkers (FAULTS section 2). Whoever
runs a history, simulated or real, tells each fact once, at the moment it is true, with the time
`at_ns` of one clock. After each fact `violations` is complete: the first one should stop the run.
Facts that a harness cannot know are left out; what they would check is then not checked before
`final_log`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from actors.simulation.checkers.invariant import Findings, Violation
from actors.simulation.checkers.ports import Core, Durability, ReadRing
from logstore.format.entry import EntryHeader
from logstore.model import SequenceMode
from logstore.raft.effects import Effect
from logstore.raft.events import Event
from logstore.raft.log_view import RecoveredLog


class Ledger:
    """One run's facts. `voters` are the configured nodes."""

    def __init__(
        self,
        voters: Sequence[int],
        *,
        durability: Durability | None = None,
        read_ring: ReadRing | None = None,
    ) -> None:
        self._findings = Findings()
        self._voters = tuple(voters)
        self._durability = durability
        self._read_ring = read_ring

    @property
    def violations(self) -> list[Violation]:
        return self._findings.violations

    # --- clients ---

    def session_opened(
        self, producer_id: int, producer_epoch: int, mode: SequenceMode, at_ns: int
    ) -> None:
        """A client was told that this producer epoch is its own (E8)."""

    def fenced(self, producer_id: int, producer_epoch: int, at_ns: int) -> None:
        """The owner of this producer epoch was told that there is a newer one (E2)."""

    def invoked(
        self,
        operation: int,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        payloads: Sequence[bytes],
        at_ns: int,
    ) -> None:
        """An append began. Resending the same bytes under the same numbers is the same one."""

    def acknowledged(self, operation: int, first_lsn: int, count: int, at_ns: int) -> None:
        """The client was told: committed, with these LSNs. Telling it again is no error."""

    def refused(self, operation: int, code: int, at_ns: int) -> None:
        """The client gave up with this ErrorCode as the last word; without any: unknown."""

    def subscribed(self, consumer: str, next_lsn: int, at_ns: int) -> None:
        """The consumer begins, or seeks to, `next_lsn`."""

    def delivered(
        self,
        consumer: str,
        node: int,
        first_lsn: int,
        batch: bytes,
        at_ns: int,
        *,
        handed: tuple[int, int] | None = None,
        is_whole: bool = True,
    ) -> None:
        """The consumer handed on a batch that `node` had served.

        Args:
          first_lsn: of the whole batch.
          batch: its bytes, header included, as they came.
          handed: [first, last] LSN that were handed on; None: all of it.
          is_whole: what the consumer was told; False: the limits it gave cut the batch.
        """

    def tail_read(
        self, invoked_ns: int, returned_ns: int, end_lsn: int, *, is_linearizable: bool
    ) -> None:
        """A client was told that `end_lsn` is the last LSN; told at `returned_ns`."""

    # --- replicas ---

    def started(self, node: int, incarnation: int, at_ns: int) -> None:
        """A new incarnation of the replica begins; every earlier one is over (M1, M3)."""

    def recovered(self, node: int, incarnation: int, log: RecoveredLog, at_ns: int) -> None:
        """Recovery ended; `log` is what the core is made of."""

    def stepped(
        self,
        node: int,
        incarnation: int,
        core: Core,
        event: Event,
        effects: Sequence[Effect],
        at_ns: int,
    ) -> None:
        """`core.step(event)` gave `effects`; none of them is carried out yet. Hot."""

    def sent(self, node: int, header: EntryHeader, body: bytes, at_ns: int) -> None:
        """A replicator of `node` handed an entry to the network."""

    def table_rebuilt(
        self, node: int, incarnation: int, gen: int, sessions: Iterable[object], at_ns: int
    ) -> None:
        """Ingress opens admission with this table: `sessions` as of `SessionTable.sessions()`."""

    def died(self, node: int, process: str, incarnation: int, at_ns: int) -> None:
        """This process of the incarnation is gone; "" is all of them."""

    def acted(self, node: int, process: str, incarnation: int, at_ns: int) -> None:
        """This process did something that others can see: sent, answered, wrote, flushed."""

    def queue(self, name: str, length: int, bound: int, at_ns: int) -> None:
        """A bounded thing holds `length` of at most `bound`."""

    # --- the end ---

    def healed(self, at_ns: int, *, append_within_ns: int, equal_within_ns: int) -> None:
        """No more faults: an append must be acknowledged, and all replicas be equal, in time."""

    def converged(self, at_ns: int) -> None:
        """All replicas hold the same and show it."""

    def final_log(
        self, node: int, entries: Iterable[tuple[EntryHeader, bytes]], at_ns: int
    ) -> None:
        """All committed entries of `node`, with their bodies, after convergence."""

    def finish(self, at_ns: int) -> None:
        """The run is over: what only the whole history can show."""
