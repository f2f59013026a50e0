"""A producer: when it appends, what it does wrong, when it starts over.

Owns the workload and the sessions of one producer, one after the other. A session that was taken
over goes on for a while as a zombie, which appends until it is fenced (FAULTS K4). The core sends
the batches and learns their outcome. Everything is drawn from the host's `Random`.
"""

from __future__ import annotations

import msgspec

from actors.simulation.checkers.messages.witness import Witness
from actors.simulation.clients.codec import draw_compressor
from actors.simulation.clients.known_end import KnownEnd
from actors.simulation.clients.mischief import Mischief, commit_mischief, send_again
from actors.simulation.clients.open_request import open_request, session_name
from actors.simulation.clients.session import ProducerSession
from actors.simulation.network.core_appends import Append
from actors.simulation.network.core_client import CoreClient
from actors.simulation.world.client_host import MS_NS, NEVER_NS, ClientHost
from logstore.client.core.steps import Steps
from logstore.format.batch import batch_size
from logstore.format.client_messages import OpenSessionRequest
from logstore.limits import SESSION_WINDOW_MIN
from logstore.model import SequenceMode

_ZOMBIE_NS = 8_000 * MS_NS
_ZOMBIES_MAX = 3
_BEGIN_AGAIN_NS = (20 * MS_NS, 1_500 * MS_NS)
# How long a user waits for an append: mostly for ever, now and then shorter than an outage.
_DELIVER_NS = (3_600_000 * MS_NS, 3_600_000 * MS_NS, 10_000 * MS_NS, 2_000 * MS_NS)
# A leader that is cut off, and only it, has batches under way for long.
_MORE = (Mischief.IMPATIENCE,) * 3
_KINDS = (*(each for each in Mischief if each is not Mischief.LATE), *_MORE)
_KINDS_OF_COMPARERS = (*_KINDS, *(Mischief.LATE,) * 8)
# An append that is refused now, and would be right later, leaves a hole below it: so its sequence
# stays new for a while, and a late copy of it is no duplicate.
_HOLE_MAX = 256
_LARGE_PAYLOADS = 8  # at most, of a batch in a flood: it is mostly full by then


class ProducerOptions(msgspec.Struct, frozen=True):
    """`append_every_ns` is a mean; appends come in bursts of up to `burst`. Of 1,000 bursts:
    `mischief`; `flood`, as many large batches as may be under way; `upheaval`, the producer crashes
    or takes its own session over. Of 1,000 appends `compares` expect an LSN.
    `deliver_ns`: how long an append may take. `is_answered`: its appends are answered on their
    connection.
    """

    append_every_ns: int
    burst: int
    payload_max_bytes: int
    batch_max_payloads: int
    mischief: int
    flood: int
    upheaval: int
    opening: OpenSessionRequest
    deliver_ns: int = _DELIVER_NS[0]
    is_answered: bool = False
    compares: int = 0


class Probe(msgspec.Struct):
    """An append that the liveness phase waits for."""

    session: ProducerSession | None = None
    append: Append | None = None

    @property
    def is_acknowledged(self) -> bool:
        return self.append is not None and self.append.is_acknowledged

    def is_made_by(self, session: ProducerSession) -> bool:
        """Whether this session may still acknowledge it."""
        append = self.append
        return append is not None and self.session is session and not append.is_over


def draw_options(
    host: ClientHost,
    *,
    append_every_ns: int,
    payload_max_bytes: int,
    batch_max_payloads: int,
    is_answered: bool,
) -> ProducerOptions:
    """What kind of producer this is. The sizes, and `is_answered`, are given by the script."""
    random = host.random
    is_dense = random.random() < 0.75
    is_named = not is_dense or random.random() < 0.5
    opening = open_request(
        SequenceMode.DENSE if is_dense else SequenceMode.MONOTONE,
        session_name(host.name) if is_named else b"",
        window=random.randrange(SESSION_WINDOW_MIN, 4 * SESSION_WINDOW_MIN + 1),
    )
    return ProducerOptions(
        append_every_ns=append_every_ns,
        burst=random.choice((4, 8, 12, 16)),
        payload_max_bytes=payload_max_bytes,
        batch_max_payloads=batch_max_payloads,
        mischief=0 if random.random() < 0.3 else random.randrange(10, 200),
        flood=0 if random.random() < 0.4 else random.randrange(5, 100),
        upheaval=0 if random.random() < 0.4 else random.randrange(1, 12),
        opening=opening,
        deliver_ns=random.choice(_DELIVER_NS),
        is_answered=is_answered,
    )


def draw_comparer_options(host: ClientHost, options: ProducerOptions) -> ProducerOptions:
    """The same producer, but monotone, with fewer appends, most of which expect an LSN."""
    random = host.random
    return msgspec.structs.replace(
        options,
        append_every_ns=options.append_every_ns * random.choice((1, 2, 4)),
        burst=random.choice((1, 1, 2, 4)),
        opening=open_request(SequenceMode.MONOTONE, session_name(host.name)),
        compares=random.choice((500, 900, 1_000)),
    )


class Producer:
    """`client` is its process. `end`: where it believes the log to end, if it expects LSNs."""

    def __init__(
        self, host: ClientHost, options: ProducerOptions, end: KnownEnd | None = None
    ) -> None:
        self.host = host
        self.client = CoreClient(host, self._live)
        self.options = options
        self.witness = Witness(host)
        self._end = end
        self._session: ProducerSession | None = None
        self._zombies: list[tuple[ProducerSession, int]] = []  # and until when
        self._probes: list[Probe] = []
        self._next_append_ns = 0
        self._begin_ns = 0
        self._opening = options.opening
        self._compressor = draw_compressor(host.random)
        self._may_compress = True  # until an error says that the log's format level is too low
        self._is_appending = True
        self._is_flooding = False
        self._replayed_round = 0

    @property
    def has_unresolved(self) -> bool:
        """Whether an append of the living session waits for its outcome."""
        session = self._session
        return session is not None and session.has_unresolved

    def stop_appending(self) -> None:
        """No new batches but probes, and no mischief. What is unresolved is still resolved."""
        self._is_appending = False
        for zombie, _ in self._zombies:
            zombie.close()
        self._zombies.clear()

    def flood(self) -> None:
        """Append as many large batches as may be under way, in the next do_work that can. Wake its
        process."""
        self._is_flooding = True
        self._next_append_ns = 0

    def send_again(self) -> None:
        """Send the batches under way again (FAULTS K2)."""
        if self._session is not None:
            send_again(self._session)

    def append_probe(self) -> Probe:
        """Append one more batch in the next do_work that can. Wake its process."""
        probe = Probe()
        self._probes.append(probe)
        return probe

    # --- its life ---

    def _live(self, client: CoreClient) -> Steps[None]:
        while True:
            self._work(client.clock.now_ns)
            yield client.sleep(self._next_timer_ns())

    def _work(self, now_ns: int) -> None:
        """Do everything that is due. The sessions run as steps of their own."""
        self._zombies = [each for each in self._zombies if not self._is_gone(*each, now_ns)]
        session = self._session
        if session is None:
            if now_ns >= self._begin_ns:
                self._session = ProducerSession(
                    self.client,
                    self.witness,
                    self._opening,
                    deliver_ns=self.options.deliver_ns,
                    is_answered=self.options.is_answered,
                    on_over=self._learn if self._end is not None else None,
                    compressor=self._compressor,
                )
                self._next_append_ns = now_ns
        elif session.is_over:
            self._begin_again(session, now_ns)
        elif session.is_open:
            if self._probes:
                self._send_probes(session)
            if self._is_appending and now_ns >= self._next_append_ns:
                self._append(session, now_ns)

    def _next_timer_ns(self) -> int:
        session = self._session
        timer_ns = NEVER_NS
        if session is None:
            timer_ns = self._begin_ns
        elif self._is_appending and session.is_open:
            timer_ns = self._next_append_ns
        return min([timer_ns, *(until_ns for _, until_ns in self._zombies)])

    def _is_gone(self, zombie: ProducerSession, until_ns: int, now_ns: int) -> bool:
        if now_ns >= until_ns:
            zombie.close()
        return zombie.is_over

    # --- appending ---

    def _append(self, session: ProducerSession, now_ns: int) -> None:
        """Append a burst, as far as the window has room; now and then do something else, too."""
        options, random = self.options, self.host.random
        burst = random.randint(1, options.burst)
        pause_ns = random.expovariate(1.0) * options.append_every_ns * burst
        self._next_append_ns = now_ns + int(pause_ns)
        if self._is_flooding or (options.flood and random.random() * 1_000 < options.flood):
            self._is_flooding = False
            while self._append_one(session, is_large=True) is not None:
                pass
        for _ in range(burst):
            self._append_one(session)
        for zombie, _ in self._zombies:
            if zombie.is_open and random.random() < 0.5:
                self._append_one(zombie)
        if options.compares and options.mischief:
            self._replay(session, now_ns)
        if options.mischief and random.random() * 1_000 < options.mischief:
            payloads = self._draw(session, session.next_sequence)
            kinds = _KINDS_OF_COMPARERS if options.compares else _KINDS
            commit_mischief(session, random.choice(kinds), payloads, random, now_ns)
        if options.upheaval and random.random() * 1_000 < options.upheaval:
            self._upset(session, now_ns)

    def _replay(self, session: ProducerSession, now_ns: int) -> None:
        """In each new round: what the queues of older ones still held arrives."""
        if session.is_serving and session.checker.round != self._replayed_round:
            self._replayed_round = session.checker.round
            commit_mischief(session, Mischief.LATE, [], self.host.random, now_ns)

    def _learn(self, append: Append) -> None:
        """Where the log ended, by an answer; often the next append comes at once."""
        if self._end is not None and self._end.learn(append) and self.host.random.random() < 0.5:
            self._next_append_ns = self.client.clock.now_ns
            self.client.wake()

    def _append_one(
        self, session: ProducerSession, *, is_large: bool = False, is_probe: bool = False
    ) -> Append | None:
        """Append a new batch; None: the window is full."""
        sequence, expected_lsn = session.next_sequence, None
        if not session.is_dense:
            sequence += self.host.random.randrange(3)
        if self._end is not None and not is_probe:
            expected_lsn = self._end.draw(self.host.random, self.options.compares)
            if expected_lsn is not None and expected_lsn > self._end.next_lsn:
                sequence += self.host.random.randrange(_HOLE_MAX)
        payloads = self._draw(session, sequence, is_large=is_large)
        if self._end is not None and not is_large:  # its sequence may have been another append's
            payloads = [b"%d" % self.witness.next_operation(), *payloads[1:]]
        if not session.appends.has_room(batch_size(len(payloads), sum(map(len, payloads)))):
            return None
        return session.append(payloads, sequence, expected_lsn)

    def _draw(
        self, session: ProducerSession, sequence: int, *, is_large: bool = False
    ) -> list[bytes]:
        options = self.options
        count_max, payload_max_bytes = options.batch_max_payloads, options.payload_max_bytes
        if is_large:
            count_max, payload_max_bytes = _LARGE_PAYLOADS, session.numbers.batch_max_bytes // 2
        return session.draw_payloads(
            sequence, count_max=count_max, payload_max_bytes=payload_max_bytes
        )

    def _send_probes(self, session: ProducerSession) -> None:
        """Probes of a session that ended, that were refused or given up, are appended again."""
        self._probes = [probe for probe in self._probes if not probe.is_acknowledged]
        for probe in self._probes:
            if not probe.is_made_by(session):
                append = self._append_one(session, is_probe=True)
                if append is None:
                    return
                probe.session, probe.append = session, append

    # --- ends and beginnings ---

    def _upset(self, session: ProducerSession, now_ns: int) -> None:
        """Crash and forget everything, or open the same producer a second time."""
        random = self.host.random
        if random.random() < 0.5 or len(self._zombies) == _ZOMBIES_MAX:
            self.witness.count("crashes")
            session.close()
        else:
            self.witness.count("take-overs")
            self._zombies.append((session, now_ns + _ZOMBIE_NS))
        self._begin_again(session, now_ns)

    def _begin_again(self, session: ProducerSession, now_ns: int) -> None:
        """Open the next session soon: of the same name or id where it is known, or of a new
        producer."""
        random = self.host.random
        opening = self.options.opening
        if not opening.name and session.is_known and random.random() < 0.7:
            opening = msgspec.structs.replace(opening, producer_id=session.numbers.producer_id)
        self._opening = opening
        self._may_compress = self._may_compress and not session.must_not_compress
        self._compressor = draw_compressor(random) if self._may_compress else None
        self._session = None
        self._begin_ns = now_ns + random.randrange(*_BEGIN_AGAIN_NS)
