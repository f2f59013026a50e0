"""How messages travel in a virtual network: late, lost, duplicated, reordered, held back.

Owns the conditions of a directed pair of nodes and one direction of a connection. Must not know
what kinds of sockets there are or who connects to whom. Invariants:
- a message is one event of the scheduler, and an event delivers the oldest message: so messages
  stay in order (FIFO) although events of one moment come in any order;
- a flow that lost its connection accepts messages and delivers none;
- what belongs to a connection's setup (subscriptions, the welcome) meets delays and cuts only: a
  connection without it would receive nothing for ever, which TCP rules out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000 * MILLISECOND_NS
# Extra delay of a message that is overtaken: up to a few heartbeats.
REORDERING_NS = (MILLISECOND_NS, 200 * MILLISECOND_NS)
# A late duplicate may arrive in another term than the message.
LATE_DUPLICATE_NS = (100 * MILLISECOND_NS, 10 * SECOND_NS)


class Scheduler(Protocol):
    """A clock and its queue of events. Equal times may come in any order."""

    now_ns: int

    def at(self, at_ns: int, action: Callable[..., None], *args: Any) -> None: ...


class Owner(Protocol):
    """The simulated process that has a socket."""

    node: int
    name: str
    unread: int  # messages at its sockets that are not read to their last frame

    @property
    def local_now_ns(self) -> int: ...

    def wake(self) -> None: ...


@dataclass(slots=True)
class NetworkCounters:
    """Counts of messages, and the last one of connections."""

    messages: int = 0  # accepted from a sender; what an XPUB publishes counts once
    lost: int = 0  # by a fault, with a connection, at an XPUB's mark, unread at a death
    duplicated: int = 0
    reordered: int = 0
    refused: int = 0  # EAGAIN and EHOSTUNREACH
    disconnected: int = 0  # connections that ended, for whatever reason


class Conditions:
    """What happens to messages from one node to another."""

    def __init__(self, default_delay_ns: tuple[int, int]) -> None:
        self.is_dropping = False
        self.is_holding = False
        self._default_delay_ns = default_delay_ns
        self.set_quality(None, loss=0, duplication=0, reordering=0)

    @property
    def is_cut(self) -> bool:
        """Whether no connection can be made over this pair."""
        return self.is_dropping or self.is_holding

    def set_default_delay(self, delay_ns: tuple[int, int]) -> None:
        """Lowest and highest delay unless `set_quality` sets another."""
        self._default_delay_ns = delay_ns
        self._set_delay()

    def set_quality(
        self, delay_ns: tuple[int, int] | None, *, loss: int, duplication: int, reordering: int
    ) -> None:
        """None: the default delay. The others: how many of 1,000 messages."""
        if not all(0 <= each <= 1_000 for each in (loss, duplication, reordering)):
            raise ValueError(f"not of 1,000 messages: {loss}, {duplication}, {reordering}")
        self.quality_delay_ns = delay_ns
        self.loss, self.duplication, self.reordering = loss, duplication, reordering
        self.is_faulty = bool(loss or duplication or reordering)
        self._set_delay()

    def draw_delay_ns(self, random: Random) -> int:
        return self.low_ns + int(random.random() * self.span_ns)

    def _set_delay(self) -> None:
        low_ns, high_ns = self.quality_delay_ns or self._default_delay_ns
        if not 0 <= low_ns <= high_ns:
            raise ValueError(f"a delay from {low_ns} to {high_ns} ns")
        self.low_ns, self.span_ns = low_ns, high_ns - low_ns + 1


class Flow:
    """One direction of a connection. `outstanding`: messages on the way or unread."""

    def __init__(
        self,
        conditions: Conditions,
        deliver: Callable[[Flow, list[bytes]], None],
        *,
        scheduler: Scheduler,
        random: Random,
        counters: NetworkCounters,
    ) -> None:
        self.conditions = conditions
        self.is_lost = False
        self.outstanding = 0
        self._deliver = deliver
        self._scheduler = scheduler
        self._random = random
        self._counters = counters
        self._travelling: deque[list[bytes]] = deque()
        self._last_arrival_ns = 0
        self._overdue = 0  # how many of `_travelling` only wait for the end of a cut
        self._held: list[list[bytes]] = []  # messages out of order that wait for it

    def send(self, message: list[bytes], sent_ns: int) -> None:
        """Send `message`; the sender never learns whether it arrives. Hot."""
        if self.is_lost:
            self._counters.lost += 1
            return
        conditions = self.conditions
        arrival_ns = sent_ns + conditions.low_ns + int(self._random.random() * conditions.span_ns)
        if conditions.is_faulty and self._draw_faults(message, arrival_ns):
            return
        if arrival_ns < self._last_arrival_ns:
            arrival_ns = self._last_arrival_ns
        self._last_arrival_ns = arrival_ns
        self.outstanding += 1
        self._travelling.append(message)
        self._scheduler.at(arrival_ns, self._arrive)

    def send_reliably(self, message: list[bytes]) -> None:
        """Send `message` now, without loss, duplication and reordering."""
        sent_ns = self._scheduler.now_ns
        arrival_ns = sent_ns + self.conditions.draw_delay_ns(self._random)
        self._last_arrival_ns = max(arrival_ns, self._last_arrival_ns)
        self.outstanding += 1
        self._travelling.append(message)
        self._scheduler.at(self._last_arrival_ns, self._arrive)

    def drop_all(self) -> None:
        """Nothing of this flow arrives from now on."""
        self.is_lost = True
        self._counters.lost += len(self._travelling) + len(self._held)
        self._travelling.clear()
        self._held.clear()

    def release(self) -> None:
        """The pair was healed: what was held back arrives now, in order."""
        overdue, self._overdue = self._overdue, 0
        for _ in range(overdue):
            self._arrive()
        held, self._held = self._held, []
        for message in held:
            self._arrive_out_of_order(message)

    def _draw_faults(self, message: list[bytes], arrival_ns: int) -> bool:
        """Draw the faults of one message; returns whether it is lost or travels out of order."""
        random, conditions, counters = self._random, self.conditions, self._counters
        if int(random.random() * 1_000) < conditions.loss:
            counters.lost += 1
            return True
        if int(random.random() * 1_000) < conditions.duplication:
            counters.duplicated += 1
            if random.random() < 0.5:
                again_ns = draw_between(random, LATE_DUPLICATE_NS)
            else:
                again_ns = conditions.draw_delay_ns(random)
            self._send_out_of_order(message, arrival_ns + again_ns)
        if int(random.random() * 1_000) < conditions.reordering:
            counters.reordered += 1
            self._send_out_of_order(message, arrival_ns + draw_between(random, REORDERING_NS))
            return True
        return False

    def _send_out_of_order(self, message: list[bytes], arrival_ns: int) -> None:
        self.outstanding += 1
        self._scheduler.at(arrival_ns, self._arrive_out_of_order, message)

    def _arrive(self) -> None:
        if not self._travelling:
            return  # lost with its connection
        if self.conditions.is_holding:
            self._overdue += 1
            return
        self._deliver(self, self._travelling.popleft())

    def _arrive_out_of_order(self, message: list[bytes]) -> None:
        if self.is_lost:
            self._counters.lost += 1
        elif self.conditions.is_holding:
            self._held.append(message)
        else:
            self._deliver(self, message)


def draw_between(random: Random, bounds_ns: tuple[int, int]) -> int:
    """A whole number of ns from the first to the second bound."""
    low_ns, high_ns = bounds_ns
    return low_ns + int(random.random() * (high_ns - low_ns + 1))
