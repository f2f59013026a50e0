"""Messages in flight, as bits of an integer.

Owns the numbering of messages and which of them still matter to whom. A message, once sent, stays
in flight: it may be delivered in any order, any number of times, or never. That includes every
behaviour of a wire that delivers at most once or loses. A message leaves the set when nothing it
could still do is left:

    to a follower (requests for votes, heartbeats, appends): its term is below the durable term
    to a candidate (votes): the receiver is no candidate of its term, and never will be again
    to a leader (what appends and heartbeats are answered): the receiver does not lead its term
"""

from __future__ import annotations

from typing import Any, NamedTuple

from actors.simulation.explorer.bound import REPLICAS
from logstore.format.peer_messages import Append, Heartbeat, VoteReply, VoteRequest


class InFlight(NamedTuple):
    """A message between two replicas of the ring, 0 to 2."""

    sender: int
    target: int
    boot: int
    message: Any


class Ear(NamedTuple):
    """What decides which messages still matter to a replica; 0: it leads, or asks, in no term."""

    durable_term: int
    candidate_term: int
    leading_term: int


TO_FOLLOWER, TO_CANDIDATE, TO_LEADER = range(3)


class Wire:
    """The messages of one exploration, numbered in the order in which they were first sent."""

    def __init__(self, terms: int) -> None:
        self.messages: list[InFlight] = []
        self._numbers: dict[InFlight, int] = {}
        self._terms = terms
        self._masks: dict[tuple[int, int, int], int] = {}
        self._mattering: dict[tuple[int, Ear], int] = {}
        self.to_replica = [0] * REPLICAS  # the bits of all messages to each

    def bit(self, message: InFlight) -> int:
        """The bit that stands for `message`."""
        number = self._numbers.get(message)
        if number is None:
            number = self._numbers[message] = len(self.messages)
            self.messages.append(message)
            place = (message.target, _audience(message.message), message.message.term)
            self._masks[place] = self._masks.get(place, 0) | 1 << number
            self._mattering.clear()
            self.to_replica[message.target] |= 1 << number
        return 1 << number

    def mattering(self, target: int, ear: Ear) -> int:
        """The bits of all messages that matter to `target` while this is its ear."""
        key = (target, ear)
        known = self._mattering.get(key)
        if known is not None:
            return known
        masks = self._masks
        bits = masks.get((target, TO_CANDIDATE, ear.candidate_term), 0)
        bits |= masks.get((target, TO_LEADER, ear.leading_term), 0)
        for term in range(ear.durable_term, self._terms + 1):
            bits |= masks.get((target, TO_FOLLOWER, term), 0)
        self._mattering[key] = bits
        return bits


def sender_of(target: int, peer: int) -> int:
    """Who `peer`, 1 or 2 steps along the ring, is to `target`; and the other way round."""
    return (target + peer) % REPLICAS


def _audience(message: Any) -> int:
    match message:
        case VoteRequest() | Heartbeat() | Append():
            return TO_FOLLOWER
        case VoteReply():
            return TO_CANDIDATE
        case _:
            return TO_LEADER
