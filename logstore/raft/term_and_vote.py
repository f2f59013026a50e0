"""Term and vote, and what must wait until they are durable (SAFETY C1).

Owns: the current term and vote, which of them is on disk, and the messages withheld until then.
Must not know: roles, logs. Invariant: no message leaves that tells of a term or a vote the disk
could still forget.
"""

from __future__ import annotations

from collections import deque

from logstore.errors import InvariantViolated
from logstore.limits import DEFERRED_EVENTS_MAX
from logstore.model import NO_NODE, NodeId, Term
from logstore.raft.effects import Effect, SaveMeta


class TermAndVote:
    """The two values Raft must never forget."""

    __slots__ = ("_is_dirty", "_saves", "_withheld", "durable_term", "last_seq", "term", "vote")

    def __init__(self, term: Term, vote: NodeId) -> None:
        self.term = term
        self.vote = vote
        self.durable_term = term
        self.last_seq = 0
        self._is_dirty = False
        self._saves: deque[tuple[int, Term]] = deque()
        self._withheld: deque[tuple[int, Effect]] = deque()

    @property
    def is_durable(self) -> bool:
        """Term and vote, as they are now, are on disk."""
        return not self._saves and not self._is_dirty

    @property
    def needed_seq(self) -> int:
        """The save that makes the present state durable; only meaningful while it is not."""
        return self.last_seq + self._is_dirty

    def enter_term(self, term: Term) -> None:
        """A newer term, with no vote in it yet."""
        self.term = term
        self.vote = NO_NODE
        self._is_dirty = True

    def cast_vote(self, node: NodeId) -> None:
        """The one vote of this term."""
        if self.vote != node:
            self.vote = node
            self._is_dirty = True

    def withhold(self, effect: Effect) -> None:
        """Keep `effect` until the present state is durable. Beyond the bound it is lost, as on a
        wire."""
        if len(self._withheld) < DEFERRED_EVENTS_MAX:
            self._withheld.append((self.needed_seq, effect))

    def save(self) -> SaveMeta | None:
        """The save that this step's changes need: one, whatever changed, at the end of the step."""
        if not self._is_dirty:
            return None
        self._is_dirty = False
        self.last_seq += 1
        self._saves.append((self.last_seq, self.term))
        return SaveMeta(self.last_seq, self.term, self.vote)

    def on_persisted(self, seq: int) -> list[Effect]:
        """Everything up to `seq` is flushed: what may be sent now."""
        if seq > self.last_seq:
            raise InvariantViolated(f"MetaPersisted({seq}), but only {self.last_seq} were ordered")
        while self._saves and self._saves[0][0] <= seq:
            self.durable_term = self._saves.popleft()[1]
        released = []
        while self._withheld and self._withheld[0][0] <= seq:
            released.append(self._withheld.popleft()[1])
        return released
