"""How messages travel in a virtual network: late, lost, twice, out of order, held back.

Owns the conditions of a directed pair of nodes and one direction of one connection. Must not know
what kinds of sockets there are or who connects to whom. Invariants:
- one event of the scheduler a message, and the event takes the oldest message, so that messages
  stay in order (FIFO) though events of one moment come in any order;
- a flow that lost its connection takes messages and delivers none of them ever again;
- what belongs to the making of a connection (subscriptions, the welcome) knows delays and cuts
  only: a connection without it would be deaf for ever, which no TCP connection is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000 * MILLISECOND_NS
# Extra delay of a message that others overtake: up to a few heartbeats.
REORDERING_NS = (MILLISECOND_NS, 200 * MILLISECOND_NS)
# A duplicate that comes late comes in another term than the message.
LATE_DUPLICATE_NS = (100 * MILLISECOND_NS, 10 * SECOND_NS)


class Scheduler(Protocol):
    """A clock and its queue of events. Equal times may come in any order."""

    now_ns: int

    def at(self, at_ns: int, action: Callable[..., None], *args: Any) -> None: ...


class Owner(Protocol):
    """One simulated process: who owns a socket."""

    node: int
    name: str
    unread: int  # messages that have arrived at its sockets, to the last frame of the last one

    @property
    def local_now_ns(self) -> int: ...

    def wake(self) -> None: ...


@dataclass(slots=True)
class NetworkCounters:
    """What happened, in messages but for the last one."""

    messages: int = 0  # accepted from a sender; what an XPUB publishes counts once
    lost: int = 0  # by chance, with a connection, at an XPUB's mark, unread at a death
    duplicated: int = 0
    reordered: int = 0
    refused: int = 0  # EAGAIN and EHOSTUNREACH
    disconnected: int = 0  # connections that ended, for whatever reason


class Conditions:
    """What messages from one node to another meet on their way."""

    __slots__ = (
        "_default_delay_ns",
        "duplication",
        "is_dropping",
        "is_faulty",
        "is_holding",
        "loss",
        "low_ns",
        "quality_delay_ns",
        "reordering",
        "span_ns",
    )

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
        """Lowest and highest delay while no quality says otherwise."""
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
    """One direction of one connection. `outstanding` counts what is on the way or unread."""

    __slots__ = (
        "_counters",
        "_deliver",
        "_held",
        "_last_arrival_ns",
        "_overdue",
        "_random",
        "_scheduler",
        "_travelling",
        "conditions",
        "is_lost",
        "outstanding",
    )

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
        self._overdue = 0  # of those travelling: would be there if nothing held them back
        self._held: list[list[bytes]] = []  # the same, of those out of order

    def carry(self, message: list[bytes], sent_ns: int) -> None:
        """Let `message` travel; whatever becomes of it, the sender does not learn it. Hot."""
        if self.is_lost:
            self._counters.lost += 1
            return
        conditions = self.conditions
        arrival_ns = sent_ns + conditions.low_ns + int(self._random.random() * conditions.span_ns)
        if conditions.is_faulty and self._is_faulted(message, arrival_ns):
            return
        if arrival_ns < self._last_arrival_ns:
            arrival_ns = self._last_arrival_ns
        self._last_arrival_ns = arrival_ns
        self.outstanding += 1
        self._travelling.append(message)
        self._scheduler.at(arrival_ns, self._arrive)

    def carry_safely(self, message: list[bytes]) -> None:
        """As `carry`, from now on, but not subject to loss, duplication and reordering."""
        sent_ns = self._scheduler.now_ns
        arrival_ns = sent_ns + self.conditions.draw_delay_ns(self._random)
        self._last_arrival_ns = max(arrival_ns, self._last_arrival_ns)
        self.outstanding += 1
        self._travelling.append(message)
        self._scheduler.at(self._last_arrival_ns, self._arrive)

    def lose(self) -> None:
        """Nothing of this flow arrives any more."""
        self.is_lost = True
        self._counters.lost += len(self._travelling) + len(self._held)
        self._travelling.clear()
        self._held.clear()

    def release(self) -> None:
        """The pair was healed: what was held back is there now, in order."""
        overdue, self._overdue = self._overdue, 0
        for _ in range(overdue):
            self._arrive()
        held, self._held = self._held, []
        for message in held:
            self._arrive_alone(message)

    def _is_faulted(self, message: list[bytes], arrival_ns: int) -> bool:
        """Draw the faults of one message; whether it needs no place in the order."""
        random, conditions, counters = self._random, self.conditions, self._counters
        if int(random.random() * 1_000) < conditions.loss:
            counters.lost += 1
            return True
        if int(random.random() * 1_000) < conditions.duplication:
            counters.duplicated += 1
            is_late = random.random() < 0.5
            again_ns = (
                between(random, LATE_DUPLICATE_NS) if is_late else conditions.draw_delay_ns(random)
            )
            self._send_alone(message, arrival_ns + again_ns)
        if int(random.random() * 1_000) < conditions.reordering:
            counters.reordered += 1
            self._send_alone(message, arrival_ns + between(random, REORDERING_NS))
            return True
        return False

    def _send_alone(self, message: list[bytes], arrival_ns: int) -> None:
        self.outstanding += 1
        self._scheduler.at(arrival_ns, self._arrive_alone, message)

    def _arrive(self) -> None:
        if not self._travelling:
            return  # lost with its connection
        if self.conditions.is_holding:
            self._overdue += 1
            return
        self._deliver(self, self._travelling.popleft())

    def _arrive_alone(self, message: list[bytes]) -> None:
        if self.is_lost:
            self._counters.lost += 1
        elif self.conditions.is_holding:
            self._held.append(message)
        else:
            self._deliver(self, message)


def between(random: Random, bounds_ns: tuple[int, int]) -> int:
    """A whole number of ns from the first to the second bound."""
    low_ns, high_ns = bounds_ns
    return low_ns + int(random.random() * (high_ns - low_ns + 1))
