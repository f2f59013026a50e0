"""The conversations in which producers compare and append (SAFETY E11).

A batch that was refused for its expectation counts as unused, so no other copy of it may ever be
stored: one that waited in the queue of an older connection, say, or at a leader that was deposed
and leads again. So a leader takes batches with an expectation in one conversation of each producer
only: the newest that it has opened in the present gen. A copy belongs to one conversation, since it
was sent after that was opened and before the next one; and in it to one attempt, which is decided
once.

Owns which conversation each producer has. What one is depends on how batches arrive: pushed ones
name their round, which SessionState opens; any key will do that is not given to a producer epoch
twice. A round that was opened once is not opened again, in any gen: its request came twice. Pure.
Must not know what is compared.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

import msgspec

from logstore.limits import CONVERSATIONS_MAX
from logstore.model import Term

Gen = tuple[Term, int]


class _Conversation(msgspec.Struct):
    """`key` None: none is open. `attempt`: the newest one that was decided in it."""

    producer_epoch: int
    gen: Gen
    key: Hashable = None
    newest_round: int = -1
    attempt: int = 0


class Conversations:
    """One of each producer, and of CONVERSATIONS_MAX producers: what is forgotten for room is
    opened again in the producer's next round."""

    def __init__(self) -> None:
        self._newest: OrderedDict[int, _Conversation] = OrderedDict()  # by producer

    def open_round(
        self, gen: Gen, producer_id: int, producer_epoch: int, round_number: int
    ) -> None:
        """SessionState of this round is answered. Requests of two connections may come in any
        order: a round that is not newer opens nothing."""
        newest = self._of(producer_id, producer_epoch)
        if newest is None or round_number > newest.newest_round:
            self.open(gen, producer_id, producer_epoch, round_number)
            self._newest[producer_id].newest_round = round_number

    def open(self, gen: Gen, producer_id: int, producer_epoch: int, key: Hashable) -> None:
        """The leader tells the producer what it has of the session: what follows names `key`, and
        the conversation before is over."""
        before = self._of(producer_id, producer_epoch)
        if self.is_open(gen, producer_id, producer_epoch, key):
            return  # asked again over its connection: attempts that were decided stay decided
        newest_round = before.newest_round if before is not None else -1
        self._newest[producer_id] = _Conversation(producer_epoch, gen, key, newest_round)
        self._newest.move_to_end(producer_id)
        if len(self._newest) > CONVERSATIONS_MAX:
            self._newest.popitem(last=False)

    def is_open(self, gen: Gen, producer_id: int, producer_epoch: int, key: Hashable) -> bool:
        """Whether a batch that names `key` belongs to the producer's conversation."""
        newest = self._of(producer_id, producer_epoch)
        return newest is not None and newest.gen == gen and newest.key == key

    def is_new(self, producer_id: int, attempt: int) -> bool:
        """Whether this attempt of an open conversation is to be decided now: not a copy of one that
        was."""
        newest = self._newest[producer_id]
        if attempt <= newest.attempt:
            return False
        newest.attempt = attempt
        return True

    def _of(self, producer_id: int, producer_epoch: int) -> _Conversation | None:
        found = self._newest.get(producer_id)
        return found if found is not None and found.producer_epoch == producer_epoch else None
