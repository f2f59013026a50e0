"""The producer of level `leader` or `none`: sends each batch once, in order (SAFETY E10).

Owns the connection, the batches of the present epoch, and how much of them the log is known to
have. It never sends a batch a second time. After a connection that breaks, a refusal, or a leader
that answers nothing, it asks a ready leader what the log has of the epoch, opens the session again
(the next epoch, sequences from 0 on) and goes on with what was never sent. What it had sent and
does not know to be stored counts as possibly lost. A late batch of the old connection may still
arrive before the OPEN, so that is an upper bound; after the OPEN the old epoch is fenced. So
nothing is ever stored twice, or behind what was sent after it.

    find the leader → SessionState of the epoch → OPEN → connect, welcome → send
                      └── only if something of the epoch was sent ──┘

Acknowledgements do not say how much is on its way at level `none`, nor what is committed at either.
So it asks SessionState again while it sends, half a window at a time, without waiting for the
answer, which also shows that the leader still leads.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from logstore.client.core.backoff import Backoff
from logstore.client.core.batch_limit import BatchLimit
from logstore.client.core.connection import Connection, Session
from logstore.client.core.packs import Pack, PackSource
from logstore.client.core.producer_machine import (
    LEADER_TIMEOUT_S,
    WAIT_MAX_NS,
    AckObserver,
)
from logstore.client.core.producer_statistics import ProducerCounts
from logstore.client.core.reopening import STEP_TIMEOUT_S, Reopening
from logstore.client.core.routing import Routing
from logstore.client.core.sent_batches import SentBatches
from logstore.client.core.serving import keep_serving
from logstore.client.core.steps import NEVER_NS, Host, Steps, nanoseconds
from logstore.client.endpoint import Endpoint
from logstore.client.refusal import RETRIED, error_of
from logstore.errors import (
    Closed,
    ErrorCode,
    FormatError,
    LogStoreError,
    NotCommitted,
    OutcomeUnknown,
)
from logstore.format.batch import encode_batch
from logstore.format.client_messages import ACK_ROW, OpenSessionRequest, SessionStateReply
from logstore.format.codecs import Compressor
from logstore.model import AckLevel

_DENIALS = frozenset({ErrorCode.UNKNOWN_PRODUCER, ErrorCode.FENCED})
# Where nothing new was taken since the last answer, the next question comes after this; then after
# twice as long, up to half an ack timeout.
_ASK_AGAIN_S = 0.01
_RETRY_NS = 5_000_000  # where the connection takes no question
# How long a producer that ends asks until all that it sent is in the log.
FAREWELL_S = 2.0
_PAUSE_S = 0.01  # between two questions of those


class ProvisionalOptions(msgspec.Struct, frozen=True):
    """Settings. `opening`: the request that opened the session. `ack_timeout_s`: after so long
    without news the leader is asked; if it does not answer for so long, it is looked for.
    `on_connected` is called with the node that gets the appends from now on. `compressor`: packs
    each batch before it is sent."""

    opening: OpenSessionRequest
    linger_s: float
    ack_timeout_s: float
    delivery_timeout_s: float
    on_ack: AckObserver | None
    on_connected: Callable[[int], None]
    compressor: Compressor | None = None


class ProvisionalMachine:
    """Run `live` until it ends, then call `settle_rest`. `stop` may be called from any thread.
    `session` is that of the present epoch."""

    def __init__(
        self,
        host: Host,
        routing: Routing,
        session: Session,
        queue: PackSource,
        options: ProvisionalOptions,
    ) -> None:
        self.session = session
        self.counts = ProducerCounts()
        self._host = host
        self._clock = host.clock
        self._routing = routing
        self._queue = queue
        self._options = options
        self._limit = BatchLimit(routing, queue, session.batch_max_bytes)
        self._is_answered = options.opening.ack_level == AckLevel.LEADER
        self._linger_ns = nanoseconds(options.linger_s)
        self._ack_timeout_ns = nanoseconds(options.ack_timeout_s)
        self._patience_ns = nanoseconds(options.delivery_timeout_s)
        self._questions = Backoff(host, first_s=_ASK_AGAIN_S, max_s=options.ack_timeout_s / 2)
        self._sent = _batches_of(session)
        self._pending: dict[int, Pack] = {}  # of level leader: sent, and not answered
        self._next: Pack | None = None  # taken from the queue, and not sent
        self._round = 0
        self._reopening = Reopening(
            host,
            routing,
            options.opening,
            in_doubt=session.opens_in_doubt,
            on_state=self._on_state,
        )
        self._must_reconnect = False
        self._asked_ns = 0  # when the leader was asked for a state that is not there; 0: was not
        self._may_ask_ns = 0  # not before, since the last answer was no news
        self._ask_ns = 0  # at the latest, while something is not known to be stored
        self._news_ns = 0
        self._is_stopping = False
        self._trouble = "no leader was found"

    def stop(self) -> None:
        """Let `live` end soon: it asks for a while yet how much has arrived. Wake the driver after
        it."""
        self._is_stopping = True

    def live(self) -> Steps[None]:
        """Connect, send, open again, until stopped.

        Raises:
          LogStoreError: the session is over.
        """
        yield from keep_serving(
            self._host, self._try_connect, self._serve, lambda: self._is_stopping
        )
        if self._reopening.is_denied:
            yield from self._confirm_denial()

    def settle_rest(self, ending: LogStoreError | None) -> None:
        """Fail every batch without an outcome, after `live` has ended.

        Args:
          ending: why it ended; None: it was stopped.
        """
        self._queue.refuse(ending or NotCommitted("the producer is closed: open a new one"))
        why = "the producer was closed" if ending is None else str(ending)
        size_bytes = self._give_up(why) + self._drop_next(_outcome_of_unsent(ending))
        self._count_lost()
        for pack in self._queue.drain():
            pack.fail(_outcome_of_unsent(ending))
            size_bytes += _forget(pack)
        for pack in self._queue.snapshot():  # in neither: an error came while it was settled
            pack.fail(_outcome_of_sent(why))
            size_bytes += _forget(pack)
        self._queue.release(size_bytes)

    # --- connecting ---

    def _try_connect(self) -> Steps[Connection | None]:
        """A connection on which nothing of the epoch was sent yet; None: there is none now."""
        self._expire(self._clock.monotonic_ns())
        connection: Connection | None = None
        try:
            node, endpoint = yield from self._routing.find_leader(
                deadline_ns=self._host.deadline_ns(LEADER_TIMEOUT_S)
            )
            self._limit.learn()
            if self._sent.sent or self._reopening.is_denied:
                yield from self._open_again(endpoint)
            connection = Connection(
                self._host, endpoint, self.session, cluster_id=self._routing.cluster_id
            )
            yield from connection.links.wait_for_welcome(
                deadline_ns=self._host.deadline_ns(STEP_TIMEOUT_S)
            )
            self._round += 1
            yield from connection.ask_state(
                round_number=self._round, deadline_ns=self._host.deadline_ns(STEP_TIMEOUT_S)
            )
            self._options.on_connected(node)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, OSError):  # no descriptor is left; later one may be
                self._trouble = str(error)
                return None
            if not isinstance(error, LogStoreError):
                raise
            if error.code in _DENIALS and not self._reopening.is_denied:
                self._reopening.is_denied = True
            elif error.code not in RETRIED and not isinstance(error, FormatError):
                raise
            self._trouble = str(error)
            return None
        return connection

    def _open_again(self, endpoint: Endpoint) -> Steps[None]:
        """Begin the next epoch. Errors as `Reopening.next_epoch`."""
        self.session = yield from self._reopening.next_epoch(self.session, endpoint)
        self._queue.release(self._give_up("another epoch of the session began"))
        self._count_lost()
        self.counts.reopened += 1
        self._sent = _batches_of(self.session)

    def _confirm_denial(self) -> Steps[None]:
        """It was stopped before a leader confirmed that the session is over: ask one once more.

        Raises:
          Fenced, UnknownProducer: it is over.
        """
        try:
            _, endpoint = yield from self._routing.find_leader(
                deadline_ns=self._host.deadline_ns(FAREWELL_S)
            )
            yield from self._reopening.confirm_denial(self.session, endpoint)
        except LogStoreError as error:
            if error.code in _DENIALS:
                raise

    # --- serving ---

    def _serve(self, connection: Connection) -> Steps[bool]:
        """Send until a new connection is needed; whether the log took anything."""
        self._must_reconnect = False
        self._asked_ns = self._may_ask_ns = self._ask_ns = 0
        self._news_ns = self._clock.monotonic_ns()
        while not self._is_stopping:
            self._routing.check_endpoints_now()
            self._read_acks(connection)
            self._read_state(connection)
            now_ns = self._clock.monotonic_ns()
            self._expire(now_ns)
            if self._must_reconnect or connection.links.is_lost() or self._is_silent(now_ns):
                break
            self._send(connection, now_ns)
            self._ask_if_due(connection, now_ns)
            yield connection.wait(self._next_timer_ns(now_ns))
        if self._is_stopping:
            yield from self._take_leave(connection)
        return self._sent.taken > 0

    def _is_silent(self, now_ns: int) -> bool:
        """The leader answers nothing, or has taken nothing for so long that something of the
        connection must be lost. It may leave appends unread for a while, and that is no reason."""
        if self._asked_ns and now_ns - self._asked_ns > self._ack_timeout_ns:
            self._trouble = f"no answer for {self._options.ack_timeout_s} s"
            return True
        is_waiting = self._sent.taken < self._sent.sent or bool(self._pending)
        if is_waiting and now_ns - self._news_ns > self._patience_ns:
            self._trouble = f"nothing was taken for {self._options.delivery_timeout_s} s"
            return True
        return False

    def _send(self, connection: Connection, now_ns: int) -> None:
        """Send new packs, while window and link have room."""
        queue = self._queue
        # A pack lingers only while another batch waits for its answer.
        queue.seal_due(now_ns - self._linger_ns if self._pending else now_ns)
        while (pack := self._next or queue.pop_sealed()) is not None:
            self._next = pack
            if self._limit.refuses(pack):
                self._next = None
                queue.release(_forget(pack))
                continue
            payloads, sent = len(pack.payloads), self._sent
            if not sent.has_room(pack.size_bytes):
                return
            pack.sequence = sent.sent
            batch = encode_batch(
                pack.payloads,
                producer_id=self.session.producer_id,
                producer_epoch=self.session.producer_epoch,
                sequence=pack.sequence,
                timestamp_ns=self._clock.wall_ns(),
                compressor=self._options.compressor,
            )
            if not connection.try_push(batch):
                return
            self._next = None
            if sent.sent == sent.taken:
                self._news_ns = now_ns
            sent.add(payloads, pack.size_bytes)
            self.counts.sent.add(payloads)
            if self._is_answered:
                self._pending[pack.sequence] = pack
            else:
                queue.release(self._resolve(pack, is_flushed=False))

    def _read_acks(self, connection: Connection) -> None:
        size_bytes = 0
        for message in connection.acks():
            if message.round != connection.round:
                continue
            for sequence, _, _, code, detail in ACK_ROW.iter_unpack(message.rows):
                if code == ErrorCode.PROVISIONAL:
                    size_bytes += self._on_flushed(sequence)
                elif code in RETRIED or code in _DENIALS:
                    self._reopening.is_denied |= code in _DENIALS
                    self._must_reconnect = True
                    self._trouble = str(error_of(code, detail=detail))
                elif code != ErrorCode.OK:
                    self._end_at_refusal(sequence, error_of(code, detail=detail))
        if size_bytes:
            self._queue.release(size_bytes)

    def _end_at_refusal(self, sequence: int, error: LogStoreError) -> None:
        """One batch can never be stored, so none after it is.

        Raises:
          NotCommitted: always; the error of the other batches.
        """
        pack = self._pending.pop(sequence, None)
        if pack is not None:
            pack.fail(error)
            self._queue.release(_forget(pack))
        raise NotCommitted(
            f"this producer ended, since its sequence {sequence} was refused ({error}): open "
            "another one"
        ) from error

    def _read_state(self, connection: Connection) -> None:
        """What the leader has taken, if it answers. One that refuses leads no more."""
        try:
            while (state := connection.try_take_state()) is not None:
                self._asked_ns = self._may_ask_ns = 0
                if self._on_state(state):
                    self._questions.reset()
                else:
                    self._may_ask_ns = self._questions.next_ns()
        except LogStoreError as error:
            self._reopening.is_denied |= error.code in _DENIALS
            self._must_reconnect = True
            self._trouble = str(error)

    def _ask_if_due(self, connection: Connection, now_ns: int) -> None:
        """Ask how much has arrived: once half a window is on its way, and while anything is not
        known to be stored, twice in an ack timeout."""
        if not self._asked_ns and now_ns >= self._question_ns and connection.try_ask_state():
            self._asked_ns = now_ns
            self._ask_ns = now_ns + self._ack_timeout_ns // 2

    @property
    def _question_ns(self) -> int:
        """When the next question is due, unless one is without an answer."""
        sent = self._sent
        if sent.stored == sent.sent:
            return NEVER_NS
        return self._may_ask_ns if sent.is_half_full else self._ask_ns

    def _next_timer_ns(self, now_ns: int) -> int:
        timers = [now_ns + WAIT_MAX_NS, self._queue_timer_ns(now_ns)]
        if self._asked_ns:
            timers.append(self._asked_ns + self._ack_timeout_ns + 1_000_000)
        else:
            timers.append(max(now_ns + _RETRY_NS, self._question_ns))
        waiting = (pack.deadline_ns for pack in self._pending.values() if not pack.is_settled())
        for deadline_ns in (
            next(waiting, 0),
            self._queue.first_deadline_ns(),
            self._next.deadline_ns if self._next is not None else 0,
        ):
            if deadline_ns:
                timers.append(deadline_ns)
        return min(timers)

    def _queue_timer_ns(self, now_ns: int) -> int:
        """When the open pack has lingered, if it is sent next."""
        open_since_ns = self._queue.open_since_ns()
        if not open_since_ns or self._next is not None:
            return NEVER_NS
        return max(now_ns, open_since_ns + self._linger_ns)

    def _take_leave(self, connection: Connection) -> Steps[None]:
        """Before the connection is closed, which drops what it holds: ask until all is in the log,
        for a while. What is not known to be there then counts as possibly lost.

        Raises:
          NotCommitted: a batch can never be stored.
        """
        deadline_ns = self._host.deadline_ns(FAREWELL_S)
        while self._sent.stored < self._sent.sent:
            self._read_acks(connection)
            try:
                state = yield from connection.ask_state(
                    round_number=self._round, deadline_ns=deadline_ns
                )
            except LogStoreError as error:
                self._reopening.is_denied |= error.code in _DENIALS
                return
            self._on_state(state)
            if self._clock.monotonic_ns() >= deadline_ns:
                return
            if self._sent.stored < self._sent.sent:
                yield connection.links.wait_for_acks(self._host.deadline_ns(_PAUSE_S))

    # --- settling ---

    def _on_state(self, state: SessionStateReply) -> bool:
        """Take in a ready leader's answer; whether it is news. What is committed needs no other
        answer."""
        is_news = self._sent.on_state(state)
        if is_news:
            self._news_ns = self._clock.monotonic_ns()
        size_bytes = 0
        for sequence in [each for each in self._pending if each < self._sent.stored]:
            size_bytes += self._resolve(self._pending.pop(sequence), is_flushed=True)
        if size_bytes:
            self._queue.release(size_bytes)
        return is_news

    def _on_flushed(self, sequence: int) -> int:
        """The leader has flushed a batch; its bytes."""
        pack = self._pending.pop(sequence, None)
        if pack is None:
            return 0
        self._news_ns = self._clock.monotonic_ns()
        self._sent.on_taken(sequence + 1)
        return self._resolve(pack, is_flushed=True)

    def _resolve(self, pack: Pack, *, is_flushed: bool) -> int:
        """Settle a batch; its bytes."""
        payloads = len(pack.payloads)
        if not pack.is_settled():
            self.counts.provisional.add(payloads)
        pack.resolve_provisionally(is_flushed=is_flushed)
        if is_flushed and self._options.on_ack is not None:
            self._options.on_ack(
                pack.size_bytes, payloads, pack.opened_ns, self._clock.monotonic_ns()
            )
        return _forget(pack)

    def _give_up(self, why: str) -> int:
        """Fail what was sent and is not answered; its bytes."""
        size_bytes = 0
        for pack in self._pending.values():
            pack.fail(_outcome_of_sent(why))
            size_bytes += _forget(pack)
        self._pending.clear()
        return size_bytes

    def _count_lost(self) -> None:
        """The epoch is over: what is not known to be stored may be lost."""
        batches, payloads = self._sent.missing
        self.counts.possibly_lost.add(payloads, batches=batches)
        self._sent = SentBatches(window=1, window_bytes=0)

    def _drop_next(self, error: LogStoreError) -> int:
        pack, self._next = self._next, None
        if pack is None:
            return 0
        pack.fail(error)
        return _forget(pack)

    def _expire(self, now_ns: int) -> None:
        """Fail the appends whose time is over."""
        size_bytes = 0
        unsent = NotCommitted(
            f"not sent within {self._options.delivery_timeout_s} s ({self._trouble}): append it "
            "again"
        )
        if self._next is not None and self._next.deadline_ns <= now_ns:
            size_bytes += self._drop_next(unsent)
        for pack in self._queue.pop_expired(now_ns):
            pack.fail(unsent)
            size_bytes += _forget(pack)
        for pack in self._pending.values():
            if pack.deadline_ns > now_ns:
                break
            if not pack.is_settled():
                pack.fail(_outcome_of_sent(f"not answered in time: {self._trouble}"))
        if size_bytes:
            self._queue.release(size_bytes)


def _batches_of(session: Session) -> SentBatches:
    return SentBatches(window=session.window, window_bytes=session.window_bytes)


def _forget(pack: Pack) -> int:
    """Free a settled batch's bytes; how many."""
    pack.payloads = []
    return pack.size_bytes


def _outcome_of_sent(why: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"sent, and not flushed as far as is known ({why}): it may or may not be in the log; at "
        "acks leader nothing is sent twice"
    )


def _outcome_of_unsent(ending: LogStoreError | None) -> LogStoreError:
    if ending is None:
        return NotCommitted("the producer was closed before it was sent")
    if isinstance(ending, NotCommitted | Closed):
        return NotCommitted(f"this batch was never sent: {ending}")
    return ending
