"""A producer of the virtual world: when it appends, what it does wrong, when it begins anew.

Owns the workload and the sessions of one producer, one after the other; a session that was taken
over lives on for a while as a zombie, which appends until it is fenced (FAULTS K4). Must not know
how a batch gets its answer. Everything is drawn from the host's `Random`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from actors.simulation.clients.append import draw_payloads
from actors.simulation.clients.host import MS_NS, ClientHost
from actors.simulation.clients.mischief import Mischief, commit_mischief, send_again
from actors.simulation.clients.session import ProducerSession
from actors.simulation.clients.wire import Wire
from actors.simulation.clients.wish import Wish, session_name
from logstore.format.batch import batch_size
from logstore.limits import SESSION_WINDOW_MIN
from logstore.model import SequenceMode

_ZOMBIE_NS = 8_000 * MS_NS
_ZOMBIES_MAX = 3
_BEGIN_AGAIN_NS = (20 * MS_NS, 1_500 * MS_NS)
# A leader that is cut off, and only it, has batches under way for long.
_KINDS = (*Mischief, Mischief.IMPATIENCE, Mischief.IMPATIENCE, Mischief.IMPATIENCE)
_LARGE_PAYLOADS = 8  # at most, of a batch in a flood: it is mostly full by then


class ProducerOptions(msgspec.Struct, frozen=True):
    """`append_every_ns` is a mean; appends come in bursts of up to `burst`. Of 1,000 bursts:
    `mischief`; `flood`, as many large batches as may be under way; `upheaval`, the producer crashes
    or takes its own session over.
    """

    append_every_ns: int
    burst: int
    payload_max_bytes: int
    batch_max_payloads: int
    mischief: int
    flood: int
    upheaval: int
    wish: Wish


class Probe(msgspec.Struct):
    """An append that the liveness phase waits for."""

    session: ProducerSession | None = None
    sequence: int = -1

    @property
    def is_acknowledged(self) -> bool:
        return self.session is not None and self.sequence in self.session.unresolved.settled


def draw_options(
    host: ClientHost, *, append_every_ns: int, payload_max_bytes: int, batch_max_payloads: int
) -> ProducerOptions:
    """What kind of producer this one is; the sizes are the world's."""
    random = host.random
    is_dense = random.random() < 0.75
    is_named = not is_dense or random.random() < 0.5
    wish = Wish(
        SequenceMode.DENSE if is_dense else SequenceMode.MONOTONE,
        random.randrange(SESSION_WINDOW_MIN, 4 * SESSION_WINDOW_MIN + 1),
        session_name(host.name) if is_named else b"",
    )
    return ProducerOptions(
        append_every_ns=append_every_ns,
        burst=random.choice((4, 8, 12, 16)),
        payload_max_bytes=payload_max_bytes,
        batch_max_payloads=batch_max_payloads,
        mischief=0 if random.random() < 0.3 else random.randrange(10, 200),
        flood=0 if random.random() < 0.4 else random.randrange(5, 100),
        upheaval=0 if random.random() < 0.4 else random.randrange(1, 12),
        wish=wish,
    )


class Producer:
    """Looks like an actor: `on_start`, `do_work`, `wait_on`, `next_timer_ns`, `on_close`."""

    def __init__(self, host: ClientHost, options: ProducerOptions) -> None:
        self.host = host
        self.options = options
        self.wire = Wire(host)
        self._session: ProducerSession | None = None
        self._zombies: list[tuple[ProducerSession, int]] = []  # and until when
        self._probes: list[Probe] = []
        self._next_append_ns = 0
        self._begin_ns = 0
        self._wish = options.wish
        self._is_appending = True
        self._is_flooding = False

    @property
    def counts(self) -> dict[str, int]:
        """What happened to it, by name."""
        return self.wire.counts

    @property
    def has_unresolved(self) -> bool:
        """Whether an append of the living session waits for its outcome."""
        session = self._session
        return session is not None and bool(session.unresolved.waiting)

    def stop_appending(self) -> None:
        """No new batches but probes, no mischief; what is unresolved is still seen to its end."""
        self._is_appending = False
        for zombie, _ in self._zombies:
            zombie.close()
        self._zombies.clear()

    def flood(self) -> None:
        """As many large batches as may be under way, from the next do_work that can: wake its
        process."""
        self._is_flooding = True
        self._next_append_ns = 0

    def send_again(self) -> None:
        """What is under way, once more (FAULTS K2)."""
        if self._session is not None:
            send_again(self._session)

    def append_probe(self) -> Probe:
        """One more append, made and sent by the next do_work that can: wake its process."""
        probe = Probe()
        self._probes.append(probe)
        return probe

    # --- an actor's words ---

    def on_start(self) -> None:
        """It begins with its first do_work."""

    def do_work(self, now_ns: int) -> int:
        """Everything that is there and due; 0, since nothing is left then."""
        if self._zombies:
            self._drive_zombies(now_ns)
        session = self._session
        if session is None:
            if now_ns >= self._begin_ns:
                self._session = ProducerSession(self.wire, self._wish, now_ns)
                self._next_append_ns = now_ns
            return 0
        session.do_work(now_ns)
        if session.is_over:
            self._begin_again(session, now_ns)
            return 0
        if session.is_open:
            if self._probes:
                self._send_probes(session, now_ns)
            if self._is_appending and now_ns >= self._next_append_ns:
                self._append(session, now_ns)
        return 0

    def wait_on(self) -> list[Any]:
        sockets = self._session.sockets() if self._session is not None else []
        for zombie, _ in self._zombies:
            sockets.extend(zombie.sockets())
        return sockets

    def next_timer_ns(self) -> int:
        session = self._session
        if session is None:
            timer_ns = self._begin_ns
        elif self._is_appending and session.is_open:
            timer_ns = min(session.next_timer_ns(), self._next_append_ns)
        else:
            timer_ns = session.next_timer_ns()
        for zombie, until_ns in self._zombies:
            timer_ns = min(timer_ns, until_ns, zombie.next_timer_ns())
        return timer_ns

    def on_close(self) -> None:
        for zombie, _ in self._zombies:
            zombie.close()
        if self._session is not None:
            self._session.close()

    # --- appending ---

    def _append(self, session: ProducerSession, now_ns: int) -> None:
        """One new batch, if the window has room, and now and then something else besides."""
        options, random = self.options, self.host.random
        burst = random.randint(1, options.burst)
        pause_ns = random.expovariate(1.0) * options.append_every_ns * burst
        self._next_append_ns = now_ns + int(pause_ns)
        if self._is_flooding or (options.flood and random.random() * 1_000 < options.flood):
            self._is_flooding = False
            while self._append_one(session, now_ns, is_large=True) >= 0:
                pass
        for _ in range(burst):
            self._append_one(session, now_ns)
        for zombie, _ in self._zombies:
            if zombie.is_open and random.random() < 0.5:
                self._append_one(zombie, now_ns)
        if options.mischief and random.random() * 1_000 < options.mischief:
            payloads = self._draw(session, session.next_sequence)
            commit_mischief(session, random.choice(_KINDS), payloads, random, now_ns)
        if options.upheaval and random.random() * 1_000 < options.upheaval:
            self._upset(session, now_ns)

    def _append_one(self, session: ProducerSession, now_ns: int, *, is_large: bool = False) -> int:
        """The sequence of a new batch; -1: the window is full."""
        sequence = session.next_sequence
        if not session.is_dense:
            sequence += self.host.random.randrange(3)
        payloads = self._draw(session, sequence, is_large=is_large)
        if not self._has_room(session, payloads):
            return -1
        session.append(payloads, sequence, now_ns)
        if session.is_serving:
            session.flush(now_ns)
        return sequence

    def _draw(
        self, session: ProducerSession, sequence: int, *, is_large: bool = False
    ) -> list[bytes]:
        options = self.options
        count_max, payload_max_bytes = options.batch_max_payloads, options.payload_max_bytes
        if is_large:
            count_max, payload_max_bytes = _LARGE_PAYLOADS, session.batch_max_bytes // 2
        return draw_payloads(
            self.host.random,
            client=self.host.number,
            producer_id=session.producer_id,
            producer_epoch=session.producer_epoch,
            sequence=sequence,
            count_max=count_max,
            payload_max_bytes=payload_max_bytes,
            batch_max_bytes=session.batch_max_bytes,
        )

    def _has_room(self, session: ProducerSession, payloads: list[bytes]) -> bool:
        return session.has_room(batch_size(len(payloads), sum(map(len, payloads))))

    def _send_probes(self, session: ProducerSession, now_ns: int) -> None:
        """Probes of a session that ended are made anew."""
        self._probes = [probe for probe in self._probes if not probe.is_acknowledged]
        for probe in self._probes:
            if probe.session is not session:
                sequence = self._append_one(session, now_ns)
                if sequence < 0:
                    return
                probe.session, probe.sequence = session, sequence

    # --- ends and beginnings ---

    def _upset(self, session: ProducerSession, now_ns: int) -> None:
        """Crash and forget, or open the same producer a second time."""
        random = self.host.random
        if random.random() < 0.5 or len(self._zombies) == _ZOMBIES_MAX:
            self.wire.count("crashes")
            session.close()
        else:
            self.wire.count("take-overs")
            self._zombies.append((session, now_ns + _ZOMBIE_NS))
        self._begin_again(session, now_ns)

    def _begin_again(self, session: ProducerSession, now_ns: int) -> None:
        """The next session: of the same name or id where that is known, or a new producer."""
        random = self.host.random
        wish = self.options.wish
        if not wish.name and session.is_known and random.random() < 0.7:
            wish = msgspec.structs.replace(wish, producer_id=session.producer_id)
        self._wish = wish
        self._session = None
        self._begin_ns = now_ns + random.randrange(*_BEGIN_AGAIN_NS)

    def _drive_zombies(self, now_ns: int) -> None:
        for zombie, until_ns in self._zombies:
            zombie.do_work(now_ns)
            if now_ns >= until_ns:
                zombie.close()
        self._zombies = [each for each in self._zombies if not each[0].is_over]
