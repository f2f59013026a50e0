"""Shared memory as the processes of a simulated replica see it: stores become visible late.

Owns command rings, bells and counters of one incarnation. Must not know what a message says. The
memory model is x86's (total store order):

  * the stores of one process become visible to others in their order, each up to `delay_ns` late;
    the process itself reads them at once;
  * stores of different processes become visible in any order;
  * ringing a bell is a system call, hence a barrier: the process it wakes sees every store before
    it, and may take the processor from the one that rang.

Cursors that only guide (HOLD, FREE, RESERVED) and counters may lag further if `is_lagging`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Protocol

from actors.simulation.world.process import Process
from actors.simulation.world.refused_messages import RefusedMessages
from transport.command_ring import message_bytes_max, record_bytes
from transport.errors import MessageTooLarge

# A barrier takes the processor from its process with this chance, once in a do_work.
_PREEMPTED_ONE_IN = 4
PREEMPTED_MAX_NS = 2_000_000


class StoreBuffer:
    """When the stores of one process become visible to others; `visible_ns`: all so far."""

    __slots__ = ("_delay_ns", "_process", "_random", "visible_ns")

    def __init__(self, process: RingProcess, random: Random, delay_ns: int) -> None:
        self._process = process
        self._random = random
        self._delay_ns = delay_ns
        self.visible_ns = 0

    def store(self) -> int:
        """A store now. Returns the moment from which others see it: not before an earlier one."""
        at_ns = self._process.local_now_ns
        if self._delay_ns:
            at_ns += int(self._random.random() * self._delay_ns)
        if at_ns > self.visible_ns:
            self.visible_ns = at_ns
        return self.visible_ns

    def barrier(self) -> int:
        """A system call now. Returns the moment at which all stores so far are visible."""
        visible_ns = self.store()
        if self._delay_ns:
            lost = self._random.random() * _PREEMPTED_ONE_IN
            if lost < 1:
                self._process.preempt(int(lost * PREEMPTED_MAX_NS))
        return visible_ns


class Wakeable(Protocol):
    """Who a bell wakes."""

    def wake_at(self, at_ns: int) -> None: ...


class RingProcess(Wakeable, Protocol):
    """What the ends of rings need of the process that uses them (`process.Process`)."""

    @property
    def local_now_ns(self) -> int: ...

    @property
    def world_now_ns(self) -> int:
        """Never later than any process' `local_now_ns`."""

    def preempt(self, cost_ns: int) -> None: ...

    def check_woken_in_time(self, published_ns: int) -> None: ...


class OwedBells(dict[str, None]):
    """The receivers a process has sent to since it last rang their bells. Both callbacks are plain
    dict operations, because they run for each message and each bell."""

    def mark_owed(self, receiver: str) -> Callable[[], None]:
        """The callback for a message that is in a ring which `receiver` reads."""
        return partial(self.__setitem__, receiver, None)

    def mark_rung(self, receiver: str) -> Callable[[], None]:
        """The callback for its bell."""
        return partial(self.pop, receiver, None)


def _ignore() -> None:
    """Where no bells are checked."""


class SimulatedCommandRing:
    """A bounded queue of messages, shared by the two ends below."""

    __slots__ = ("free_bytes", "messages", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.free_bytes = size_bytes
        self.messages: deque[tuple[int, int, bytes]] = deque()  # visible from, size in ring, bytes

    def drop_after(self, at_ns: int) -> None:
        """The sender died at `at_ns`: drop what it would have stored later."""
        while self.messages and self.messages[-1][0] > at_ns:
            self.free_bytes += self.messages.pop()[1]


class CommandRingSender:
    """Plays `CommandRingWriter`."""

    def __init__(
        self,
        ring: SimulatedCommandRing,
        stores: StoreBuffer,
        refused: RefusedMessages | None = None,
        *,
        on_offered: Callable[[], None] = _ignore,
    ) -> None:
        self.refused = refused
        self._on_offered = on_offered
        self._ring = ring
        self._stores = stores
        self.message_bytes_max = message_bytes_max(ring.size_bytes)

    def free_bytes(self) -> int:
        return self._ring.free_bytes

    def on_work_done(self) -> None:
        """A do_work of the sender is over. Hot."""
        if self.refused is not None and self.refused.has_waiting:
            self.refused.on_work_done(self._ring.free_bytes)

    def drop_refused(self) -> None:
        """The receiver died."""
        if self.refused is not None:
            self.refused.clear()

    def offer(self, message: bytes) -> bool:
        ring = self._ring
        size = len(message)
        if size > self.message_bytes_max:
            raise MessageTooLarge(f"{size} bytes, at most {self.message_bytes_max}")
        need = record_bytes(size)
        refused = self.refused
        if need > ring.free_bytes:
            if refused is not None:
                refused.on_refused(message)
            return False
        if refused is not None and refused.has_waiting:
            refused.on_accepted(message)
        ring.free_bytes -= need
        ring.messages.append((self._stores.store(), need, message))
        self._on_offered()
        return True


def end_turn_of(senders: Mapping[str, CommandRingSender]) -> None:
    """Hot: after each do_work of the actor that sends, which in a group is not each turn of its
    process."""
    for sender in senders.values():
        if sender.refused is not None and sender.refused.has_waiting:
            sender.on_work_done()


class CommandRingReceiver:
    """Plays `CommandRingReader`."""

    def __init__(self, ring: SimulatedCommandRing, process: RingProcess) -> None:
        self._ring = ring
        self._process = process

    def drain(self, limit: int) -> list[bytes]:
        waiting = self._ring.messages
        if not waiting:
            return []
        self._process.check_woken_in_time(waiting[0][0])
        now_ns = self._process.local_now_ns
        taken: list[bytes] = []
        freed_bytes = 0
        while waiting and len(taken) < limit and waiting[0][0] <= now_ns:
            _, size_bytes, message = waiting.popleft()
            freed_bytes += size_bytes
            taken.append(message)
        self._ring.free_bytes += freed_bytes
        return taken


class SimulatedBell:
    """A receiver's bell as one process rings it."""

    def __init__(
        self, receiver: Wakeable, stores: StoreBuffer, *, on_rung: Callable[[], None] = _ignore
    ) -> None:
        self._receiver = receiver
        self._stores = stores
        self._on_rung = on_rung

    def ring(self) -> None:
        self._on_rung()
        self._receiver.wake_at(self._stores.barrier())

    def clear(self) -> None:
        """Running its process clears it."""

    def fileno(self) -> int:
        """There is none, and nothing polls."""
        return -1


class SharedSlots:
    """Slots of a control page or the counters: values, and stores not visible to all yet."""

    __slots__ = ("late", "values")

    def __init__(self, values: Any) -> None:
        self.values = values  # with all stores: a list, or the page itself
        # slot -> its late stores, oldest first: (visible to others from, to its own process from,
        # by whom, the value before it)
        self.late: dict[int, deque[tuple[int, int, RingProcess, int]]] = {}

    def seen(self, slot: int, now_ns: int) -> int:
        """The slot as processes see it that did not store it."""
        for visible_ns, _, _, before in self.late.get(slot, ()):
            if visible_ns > now_ns:
                return before
        value: int = self.values[slot]
        return value


class LaggingSlots:
    """One process' view of shared slots; plays a memoryview of u64. `timed` slots: as in
    `OwnTimeSlots`."""

    __slots__ = ("_lagging", "_process", "_shared", "_stores", "_timed")

    def __init__(
        self,
        shared: SharedSlots,
        process: RingProcess,
        stores: StoreBuffer,
        lagging: frozenset[int] | None,
        timed: frozenset[int] = frozenset(),
    ) -> None:
        """`lagging`: the slots whose stores become visible late; None: all of them."""
        self._shared = shared
        self._process = process
        self._stores = stores
        self._lagging = lagging
        self._timed = timed

    def __getitem__(self, slot: int) -> int:
        late = self._shared.late.get(slot)
        value: int = self._shared.values[slot]
        if not late:
            return value
        # Drop by the world's time, not by this process' own, which may be ahead: others still need
        # what this process sees already.
        world_ns, now_ns = self._process.world_now_ns, self._process.local_now_ns
        while late and late[0][0] <= world_ns:
            late.popleft()
        for visible_ns, own_ns, writer, before in late:
            if (own_ns if writer is self._process else visible_ns) > now_ns:
                return before
        return value

    def __setitem__(self, slot: int, value: int) -> None:
        shared = self._shared
        own_ns = 0
        if slot in self._timed:
            own_ns = self._process.local_now_ns
            stored = shared.late.get(slot)
            if stored and stored[-1][1] > own_ns:
                value = _risen(value, shared.values[slot])
        if self._lagging is None or slot in self._lagging:
            visible_ns = self._stores.store()
            world_ns = self._process.world_now_ns
            if visible_ns > world_ns:
                late = shared.late.setdefault(slot, deque())
                while late and late[0][0] <= world_ns:  # here too: a slot may never be read
                    late.popleft()
                late.append((visible_ns, own_ns, self._process, shared.values[slot]))
        shared.values[slot] = value

    def release(self) -> None:
        """No memory is lent here."""


def _risen(value: int, newest: int) -> int:
    """What a store leaves in a timed slot whose newest store lies ahead of it. Such slots only
    rise, so a value that does not was raised from an older one."""
    return value if value > newest else newest + 1


class OwnTimeSlots:
    """The slots of a process whose disk calls take long. What it stores in `timed` slots becomes
    visible when the world reaches the process' own time of the store, and to its other threads
    when they reach it; otherwise a whole `do_work` would be visible at its begin. No other process
    stores these slots. They only rise."""

    def __init__(self, values: Any, process: Process, timed: frozenset[int]) -> None:
        self._values = values
        self._process = process
        self._timed = timed
        self._late: deque[tuple[int, int, int]] = deque()  # visible from, slot, value

    def __getitem__(self, slot: int) -> int:
        value: int = self._values[slot]
        if self._late and slot in self._timed:
            now_ns = self._process.local_now_ns
            for at_ns, stored, late in self._late:
                if at_ns > now_ns:
                    break
                if stored == slot:
                    value = late
        return value

    def __setitem__(self, slot: int, value: int) -> None:
        if slot not in self._timed:
            self._values[slot] = value
            return
        at_ns = self._process.local_now_ns
        for late_ns, stored, late in self._late:
            if stored == slot and late_ns > at_ns:
                value = _risen(value, late)
        self._late.append((at_ns, slot, value))
        self._process.world.at(at_ns, self._publish)

    def _publish(self) -> None:
        now_ns = self._process.world.now_ns
        while self._late and self._late[0][0] <= now_ns and self._process.is_alive:
            _, slot, value = self._late.popleft()
            self._values[slot] = value
