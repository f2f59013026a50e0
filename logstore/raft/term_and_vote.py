"""Term and vote, and the messages that wait until they are durable (SAFETY C1).

Owns: the current term and vote, which of them is on disk, and the messages withheld until
then. Must not know: roles, logs. Invariant: no message is sent with a term or a vote that the
disk could still forget.
"""

from __future__ import annotations

from collections import deque

from logstore.errors import InvariantViolated
from logstore.limits import DEFERRED_EVENTS_MAX
from logstore.model import NO_NODE, NodeId, Term
from logstore.raft.effects import Effect, SaveMeta


class TermAndVote:
    """The two values that Raft must never forget."""

    __slots__ = (
        "_is_dirty",
        "_saves",
        "_withheld",
        "durable_term",
        "last_seq",
        "term",
        "vote",
        "vote_uuid",
    )

    def __init__(self, term: Term, vote: NodeId) -> None:
        self.term = term
        self.vote = vote
        self.vote_uuid = b""  # not known of a vote of an earlier incarnation
        self.durable_term = term
        self.last_seq = 0
        self._is_dirty = False
        self._saves: deque[tuple[int, Term]] = deque()
        self._withheld: deque[tuple[int, Effect]] = deque()

    @property
    def is_durable(self) -> bool:
        """The current term and vote are on disk."""
        return not self._saves and not self._is_dirty

    @property
    def needed_seq(self) -> int:
        """The sequence number of the save that makes the current state durable. Meaningful only
        while it is not."""
        return self.last_seq + self._is_dirty

    def enter_term(self, term: Term) -> None:
        """Enter a newer term, without a vote."""
        self.term = term
        self.vote = NO_NODE
        self._is_dirty = True

    def cast_vote(self, node: NodeId, uuid: bytes = b"") -> None:
        """Cast the one vote of this term. `uuid`: of the replica, if it is known."""
        if self.vote != node:
            self.vote, self.vote_uuid = node, uuid
            self._is_dirty = True

    def withhold(self, effect: Effect) -> None:
        """Keep `effect` until the current state is durable. Beyond the bound it is dropped, as a
        network may drop it."""
        if len(self._withheld) < DEFERRED_EVENTS_MAX:
            self._withheld.append((self.needed_seq, effect))

    def save(self) -> SaveMeta | None:
        """The save that this step needs, if any: one at the end of the step, whatever changed."""
        if not self._is_dirty:
            return None
        self._is_dirty = False
        self.last_seq += 1
        self._saves.append((self.last_seq, self.term))
        return SaveMeta(self.last_seq, self.term, self.vote)

    def on_persisted(self, seq: int) -> list[Effect]:
        """Everything up to `seq` is flushed; returns what may be sent now."""
        if seq > self.last_seq:
            raise InvariantViolated(f"MetaPersisted({seq}), but only {self.last_seq} were ordered")
        while self._saves and self._saves[0][0] <= seq:
            self.durable_term = self._saves.popleft()[1]
        released = []
        while self._withheld and self._withheld[0][0] <= seq:
            released.append(self._withheld.popleft()[1])
        return released
