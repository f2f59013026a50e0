"""Shared memory as the processes of a simulated replica see it: late, and each in its own order.

Owns command rings, bells and counters of one incarnation. Must not know what a message says. The
model is x86's: the stores of one process are seen by others in the order they were made, each up to
`delay_ns` late, while a process reads its own at once; stores of different processes are seen in
any order; a bell is a system call, so whoever it wakes sees everything stored before it, and may
take the processor from the giver. Positions that only guide (HOLD, FREE, RESERVED) and the counters
may lag further, where `is_lagging` says so.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Protocol

from actors.simulation.world.full_ring import FullRing
from actors.simulation.world.process import Process
from transport.command_ring import message_bytes_max, record_bytes
from transport.errors import MessageTooLarge
from transport.payload_ring import PayloadRingReader, PayloadRingWriter, RingFreer

# One of so many works whose bells ring costs its giver the processor, at one of them.
_PREEMPTED_ONE_IN = 4
PREEMPTED_MAX_NS = 2_000_000


def _tell_nobody() -> None:
    """Nobody looks on."""


class Memory:
    """What one process has stored so far, and when the last of it is seen by others."""

    __slots__ = ("_delay_ns", "_process", "_random", "seen_ns")

    def __init__(self, process: Clocked, random: Random, delay_ns: int) -> None:
        self._process = process
        self._random = random
        self._delay_ns = delay_ns
        self.seen_ns = 0

    def store(self) -> int:
        """A store now: the moment at which others see it, never before an earlier one's."""
        at_ns = self._process.local_now_ns
        if self._delay_ns:
            at_ns += int(self._random.random() * self._delay_ns)
        if at_ns > self.seen_ns:
            self.seen_ns = at_ns
        return self.seen_ns

    def barrier(self) -> int:
        """A system call now: the moment at which all stores are seen, not before now.

        Whoever is woken by it may take the processor: what this process does next is then late.
        """
        seen_ns = self.store()
        if self._delay_ns:
            lost = self._random.random() * _PREEMPTED_ONE_IN
            if lost < 1:
                self._process.preempt(int(lost * PREEMPTED_MAX_NS))
        return seen_ns


class Wakeable(Protocol):
    """Whoever hears a bell."""

    def wake_at(self, at_ns: int) -> None: ...


class Clocked(Wakeable, Protocol):
    """A process: when what it does now happens, and how others wake it."""

    @property
    def local_now_ns(self) -> int: ...

    @property
    def world_now_ns(self) -> int:
        """No process' own time is behind it."""

    def preempt(self, cost_ns: int) -> None:
        """What it does next is so much later, if that has not happened in this work yet."""
        ...

    def found(self, since_ns: int) -> None:
        """It finds news that was there since then."""
        ...


class OwedBells(dict[str, None]):
    """Whom a process owes a bell: those it has put something into a ring for since it last rang
    theirs. A dict's own operations, since each message and each bell is one."""

    def offered(self, receiver: str) -> Callable[[], None]:
        """To be called when a message is in a ring that `receiver` reads."""
        return partial(self.__setitem__, receiver, None)

    def rung(self, receiver: str) -> Callable[[], None]:
        """To be called when its bell is rung: everything before that finds it awake."""
        return partial(self.pop, receiver, None)


class SimulatedCommandRing:
    """The bytes of a bounded queue; the ends below read and write them."""

    __slots__ = ("free_bytes", "messages", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.free_bytes = size_bytes
        # seen by the receiver from, what it takes in the ring, message
        self.messages: deque[tuple[int, int, bytes]] = deque()

    def forget_after(self, at_ns: int) -> None:
        """The sender died at `at_ns`: what it would have stored later was never stored."""
        while self.messages and self.messages[-1][0] > at_ns:
            self.free_bytes += self.messages.pop()[1]


class CommandRingSender:
    """As `CommandRingWriter`."""

    def __init__(
        self,
        ring: SimulatedCommandRing,
        memory: Memory,
        full: FullRing | None = None,
        *,
        on_offered: Callable[[], None] = _tell_nobody,
    ) -> None:
        self.full = full
        self._on_offered = on_offered
        self._ring = ring
        self._memory = memory
        self.message_bytes_max = message_bytes_max(ring.size_bytes)

    def free_bytes(self) -> int:
        return self._ring.free_bytes

    def looked_at(self) -> None:
        """The sender's work is over. Hot."""
        if self.full is not None and self.full.has_waiting:
            self.full.looked_at(self._ring.free_bytes)

    def forget_waiting(self) -> None:
        """The receiver is dead."""
        if self.full is not None:
            self.full.forget()

    def offer(self, message: bytes) -> bool:
        ring = self._ring
        size = len(message)
        if size > self.message_bytes_max:
            raise MessageTooLarge(f"{size} bytes, at most {self.message_bytes_max}")
        need = record_bytes(size)
        full = self.full
        if need > ring.free_bytes:
            if full is not None:
                full.refused(message)
            return False
        if full is not None and full.has_waiting:
            full.taken(message)
        ring.free_bytes -= need
        ring.messages.append((self._memory.store(), need, message))
        self._on_offered()
        return True


class CommandRingReceiver:
    """As `CommandRingReader`."""

    def __init__(self, ring: SimulatedCommandRing, process: Clocked) -> None:
        self._ring = ring
        self._process = process

    def drain(self, limit: int) -> list[bytes]:
        waiting = self._ring.messages
        if not waiting:
            return []
        self._process.found(waiting[0][0])
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
    """One giver's end of a receiver's bell."""

    def __init__(
        self, receiver: Wakeable, memory: Memory, *, on_rung: Callable[[], None] = _tell_nobody
    ) -> None:
        self._receiver = receiver
        self._memory = memory
        self._on_rung = on_rung

    def ring(self) -> None:
        self._on_rung()
        self._receiver.wake_at(self._memory.barrier())

    def clear(self) -> None:
        """The world clears a bell by running its process."""

    def fileno(self) -> int:
        """There is none: nothing here polls."""
        return -1


class SharedSlots:
    """Slots of a control page or the counters: values, and stores that not everybody sees yet."""

    __slots__ = ("late", "values")

    def __init__(self, values: Any) -> None:
        self.values = values  # as everybody will see them: a list, or the page itself
        # slot -> stores under way, oldest first: (seen from, by whom, the value before it)
        self.late: dict[int, deque[tuple[int, Clocked, int]]] = {}

    def seen(self, slot: int, now_ns: int) -> int:
        """The slot as those see it that did not store it."""
        for seen_ns, _, before in self.late.get(slot, ()):
            if seen_ns > now_ns:
                return before
        value: int = self.values[slot]
        return value


class LaggingSlots:
    """One process' view of shared slots; stands in for a memoryview of u64."""

    __slots__ = ("_lagging", "_memory", "_process", "_shared")

    def __init__(
        self, shared: SharedSlots, process: Clocked, memory: Memory, lagging: frozenset[int] | None
    ) -> None:
        """`lagging`: the slots whose stores others see late; None: all of them."""
        self._shared = shared
        self._process = process
        self._memory = memory
        self._lagging = lagging

    def __getitem__(self, slot: int) -> int:
        late = self._shared.late.get(slot)
        value: int = self._shared.values[slot]
        if not late:
            return value
        # Whoever's own time is ahead sees more than the others do: they forget nothing of theirs.
        world_ns, now_ns = self._process.world_now_ns, self._process.local_now_ns
        while late and late[0][0] <= world_ns:
            late.popleft()
        for seen_ns, writer, before in late:
            if seen_ns > now_ns:
                return value if writer is self._process else before
        return value

    def __setitem__(self, slot: int, value: int) -> None:
        shared = self._shared
        if self._lagging is None or slot in self._lagging:
            seen_ns = self._memory.store()
            world_ns = self._process.world_now_ns
            if seen_ns > world_ns:
                late = shared.late.setdefault(slot, deque())
                while late and late[0][0] <= world_ns:  # perhaps nobody ever reads it
                    late.popleft()
                late.append((seen_ns, self._process, shared.values[slot]))
        shared.values[slot] = value

    def release(self) -> None:
        """Nothing is lent here."""


class OwnTimeSlots:
    """The slots of a process whose calls take long: others see what it stores in `timed` ones when
    its clock has come so far. It alone stores them. Without this, its whole `do_work` is seen at
    once."""

    def __init__(self, values: Any, process: Process, timed: frozenset[int]) -> None:
        self._values = values
        self._process = process
        self._timed = timed
        self._own: dict[int, int] = {}
        self._late: deque[tuple[int, int, int]] = deque()  # seen from, slot, value

    def __getitem__(self, slot: int) -> int:
        value: int = self._values[slot]
        return self._own.get(slot, value)

    def __setitem__(self, slot: int, value: int) -> None:
        if slot not in self._timed:
            self._values[slot] = value
            return
        self._own[slot] = value
        at_ns = self._process.local_now_ns
        self._late.append((at_ns, slot, value))
        self._process.world.at(at_ns, self._show)

    def _show(self) -> None:
        now_ns = self._process.world.now_ns
        while self._late and self._late[0][0] <= now_ns and self._process.is_alive:
            _, slot, value = self._late.popleft()
            self._values[slot] = value


class SimulatedRingWriter(PayloadRingWriter):
    """Ingress' end of the payload ring on a page that may lag."""

    def __init__(self, region: mmap.mmap, *, incarnation: int, slots: Any = None) -> None:
        super().__init__(region, incarnation=incarnation)
        self._slots = self._slots if slots is None else slots


class SimulatedRingReader(PayloadRingReader):
    """The writer's and the replicators' end."""

    def __init__(self, region: mmap.mmap, *, incarnation: int, slots: Any = None) -> None:
        super().__init__(region, incarnation=incarnation)
        self._slots = self._slots if slots is None else slots


class SimulatedRingFreer(RingFreer):
    """raft's end."""

    def __init__(self, region: mmap.mmap, *, incarnation: int, slots: Any = None) -> None:
        super().__init__(region, incarnation=incarnation)
        self._slots = self._slots if slots is None else slots
