"""Messages in flight, as bits of an integer.

Owns the numbering of messages and which of them are still relevant to a receiver. A message, once
sent, stays in flight: it may be delivered in any order, any number of times, or never, which
includes loss, delay and duplication. It leaves the set when it can have no effect any more:

    to a follower (vote requests, heartbeats, appends): its term is below the durable term
    to a candidate (votes): the receiver is no candidate of its term, and will not be again
    to a leader (answers to appends and heartbeats): the receiver does not lead its term

Messages do not contain replica numbers, so each takes six bits, one for each (sender, target):

    bit 6g + 0   0 → 1     bit 6g + 3   1 → 0
    bit 6g + 1   1 → 2     bit 6g + 4   2 → 1
    bit 6g + 2   2 → 0     bit 6g + 5   0 → 2

and renumbering the replicas takes a few shifts for all messages at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from logstore.format.peer_messages import Append, Heartbeat, VoteReply, VoteRequest
from tests.explorer.bound import REPLICAS
from tests.explorer.symmetry import RENUMBERINGS, Renumbering

PAIRS = ((0, 1), (1, 2), (2, 0), (1, 0), (2, 1), (0, 2))
_PLACES = {pair: place for place, pair in enumerate(PAIRS)}


class InFlight(NamedTuple):
    """A message between two replicas of the ring, 0 to 2."""

    sender: int
    target: int
    boot: int
    message: Any


class ReceiverTerms(NamedTuple):
    """The terms that decide which messages are relevant to a replica; 0: it is no candidate, or no
    leader."""

    durable_term: int
    candidate_term: int
    leading_term: int


TO_FOLLOWER, TO_CANDIDATE, TO_LEADER = range(3)


class MessagesInFlight:
    """The messages of one exploration, numbered in the order in which they were first sent."""

    def __init__(self, terms: int) -> None:
        self.messages: list[InFlight] = []
        self.to_replica = [0] * REPLICAS  # the bits of all messages to each
        self._groups: dict[tuple[int, Any], int] = {}
        self._terms = terms
        self._masks: dict[tuple[int, int, int], int] = {}
        self._relevant: dict[tuple[int, ReceiverTerms], int] = {}
        # For each renumbering: (bits to shift left, or right if negative; the bits it is for).
        self._shifts: list[dict[int, int]] = [{} for _ in RENUMBERINGS]

    def bit(self, sender: int, target: int, boot: int, message: Any) -> int:
        """The bit of this message."""
        group = self._groups.get((boot, message))
        if group is None:
            group = self._add(boot, message)
        return 1 << group + _PLACES[sender, target]

    def renumbered(self, in_flight: int, renumbering: int) -> int:
        """The same messages between renumbered replicas. Hot."""
        result = 0
        for shift, bits in self._shifts[renumbering].items():
            if shift >= 0:
                result |= (in_flight & bits) << shift
            else:
                result |= (in_flight & bits) >> -shift
        return result

    def relevant(self, target: int, receiver_terms: ReceiverTerms) -> int:
        """The bits of all messages that are relevant to `target` in these terms."""
        key = (target, receiver_terms)
        known = self._relevant.get(key)
        if known is not None:
            return known
        masks = self._masks
        bits = masks.get((target, TO_CANDIDATE, receiver_terms.candidate_term), 0)
        bits |= masks.get((target, TO_LEADER, receiver_terms.leading_term), 0)
        for term in range(receiver_terms.durable_term, self._terms + 1):
            bits |= masks.get((target, TO_FOLLOWER, term), 0)
        self._relevant[key] = bits
        return bits

    def _add(self, boot: int, message: Any) -> int:
        group = self._groups[boot, message] = len(self.messages)
        audience = _audience(message)
        for place, (sender, target) in enumerate(PAIRS):
            bit = 1 << group + place
            self.messages.append(InFlight(sender, target, boot, message))
            self.to_replica[target] |= bit
            key = (target, audience, message.term)
            self._masks[key] = self._masks.get(key, 0) | bit
            for shifts, renumbering in zip(self._shifts, RENUMBERINGS, strict=True):
                shift = _moved(place, renumbering) - place
                shifts[shift] = shifts.get(shift, 0) | bit
        self._relevant.clear()
        return group


def _moved(place: int, renumbering: Renumbering) -> int:
    sender, target = PAIRS[place]
    return _PLACES[renumbering.places[sender], renumbering.places[target]]


def _audience(message: Any) -> int:
    match message:
        case VoteRequest() | Heartbeat() | Append():
            return TO_FOLLOWER
        case VoteReply():
            return TO_CANDIDATE
        case _:
            return TO_LEADER
