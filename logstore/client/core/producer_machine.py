"""The producer: finds the leader, sends batches in order, settles every batch (SAFETY E9).

Owns the connection and the unresolved batches. The appending side reaches it only through a
`PackSource`, and wakes its driver. At a change of leader, step by step: close the old PUSH →
connect, subscribe, wait for the welcome → SessionState → settle what it says → resend the rest in
order under the next round → then new batches. A batch whose time is over fails its appends, but
once sent it keeps its place: its sequence belongs to its bytes for ever (E7), so it is resent until
the log answers or the producer closes. A node that denies the session, or says that it is fenced,
is believed once a majority confirms that it leads.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from logstore.client.core.batch_limit import BatchLimit
from logstore.client.core.connection import Connection, Session
from logstore.client.core.given_sequences import GivenSequences
from logstore.client.core.packs import Pack, PackSource
from logstore.client.core.producer_statistics import ProducerCounts
from logstore.client.core.routing import Routing
from logstore.client.core.serving import keep_serving
from logstore.client.core.steps import Host, Steps, nanoseconds
from logstore.client.core.unresolved import Unresolved
from logstore.client.endpoint import Endpoint
from logstore.client.refusal import LEVEL_PATIENCE_S, RETRIED, TRANSIENT, error_of
from logstore.errors import (
    Closed,
    CommittedLsnUnknown,
    ErrorCode,
    Fenced,
    FormatError,
    Gap,
    InvariantViolated,
    LogStoreError,
    NotCommitted,
    OutcomeUnknown,
    UnknownProducer,
)
from logstore.format.batch import encode_batch
from logstore.format.client_messages import ACK_ROW, SessionStateReply
from logstore.format.codecs import Compressor

# Refusals of one batch. Every other refusal that ends a producer is of its session.
_OF_ONE_BATCH = frozenset(
    {
        ErrorCode.SEQUENCE_REUSED,
        ErrorCode.BATCH_TOO_LARGE,
        ErrorCode.INVALID_BATCH,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.LEVEL_REFUSED,
    }
)

# Refusals of one batch that leave its sequence unused: the session goes on (SAFETY E11). They name
# the attempt in place of a first LSN.
_UNUSED = frozenset({ErrorCode.NEXT_LSN_IS, ErrorCode.LEVEL_REFUSED})

# Ends of a producer that are true of each of its batches: they leave open what the log holds.
_OF_EVERY_BATCH = (Fenced, Gap, InvariantViolated, UnknownProducer)

# Answers that end a session, and that a leader may give which was deposed and has not noticed: an
# EXPIRE or OPEN in its log may never be committed.
_DENIALS = frozenset({ErrorCode.UNKNOWN_PRODUCER, ErrorCode.FENCED})

# batch bytes, payloads, when the first payload was appended and when the acknowledgement came
# (monotonic ns)
AckObserver = Callable[[int, int, int, int], None]

STEP_TIMEOUT_S = 1.0  # for each step of a connection: welcome, state
# For one look for a leader; batches that expire meanwhile are failed after it. It makes connections
# of its own, and these take three times as long as a packet there and back, a question once more.
LEADER_TIMEOUT_S = 1.0
WAIT_MAX_NS = 1_000_000_000
# Why a batch is late that was sent to a leader, or waits for room behind those that were.
_SLOW = "the leader did not get to it"


class MachineOptions(msgspec.Struct, frozen=True):
    """Settings. `ack_timeout_s`: if the oldest unresolved batch is not acknowledged for so long,
    the leader is asked for SessionState (E9). `on_connected` is called with the node that gets the
    appends from now on. `compressor`: packs each batch before it is first sent."""

    linger_s: float
    ack_timeout_s: float
    delivery_timeout_s: float
    is_dense: bool
    on_ack: AckObserver | None
    on_connected: Callable[[int], None]
    compressor: Compressor | None = None


class ProducerMachine:
    """Run `live` until it ends, then call `settle_rest`. `stop` may be called from any thread.
    `given`: the sequences of a monotone producer; none yet, if it is left out."""

    def __init__(
        self,
        host: Host,
        routing: Routing,
        session: Session,
        queue: PackSource,
        options: MachineOptions,
        given: GivenSequences | None = None,
    ) -> None:
        self.session = session
        self.counts = ProducerCounts()
        self._host = host
        self._clock = host.clock
        self._routing = routing
        self._queue = queue
        self._options = options
        self._limit = BatchLimit(routing, queue, session.batch_max_bytes)
        self.given = given or GivenSequences(host.new_lock())
        self._unresolved = Unresolved(
            next_sequence=session.next_sequence,
            limit=max(1, session.window),
            is_dense=options.is_dense,
        )
        self._linger_ns = nanoseconds(options.linger_s)
        self._ack_timeout_ns = nanoseconds(options.ack_timeout_s)
        self._round = 0
        self._news_ns = 0
        self._is_stopping = False
        self._must_reconnect = False
        # A node says that the session is over, or knows less of it than the log has acknowledged. A
        # leader that was deposed and has not noticed says so, too: the next one must be confirmed.
        self._is_denied = False
        self._level_refused_ns = 0  # since when the log's level is said to be too low; 0: it is not
        self._trouble = "no leader was found"

    def stop(self) -> None:
        """Let `live` end soon; `settle_rest` fails what is unsettled then. Wake the driver after
        it."""
        self._is_stopping = True

    def live(self) -> Steps[None]:
        """Connect, serve, connect again, until stopped.

        Raises:
          LogStoreError: the session is over.
        """
        yield from keep_serving(
            self._host, self._try_connect, self._serve, lambda: self._is_stopping
        )

    def settle_rest(self, ending: LogStoreError | None) -> None:
        """Fail every batch without an outcome, after `live` has ended.

        Args:
          ending: why it ended; None: it was stopped.
        """
        self._queue.refuse(ending or NotCommitted("the producer is closed: open a new one"))
        size_bytes = 0
        for pack in self._unresolved.packs():
            pack.fail(_outcome_of_sent(ending))
            size_bytes += self._forget(pack)
        for pack in self._queue.drain():
            pack.fail(_outcome_of_unsent(ending, pack.sequence))
            size_bytes += self._forget(pack)
        for pack in self._queue.snapshot():  # in neither: an error came while it was settled
            pack.fail(_outcome_of_sent(ending))
            size_bytes += self._forget(pack)
        self._queue.release(size_bytes)

    # --- connecting ---

    def _try_connect(self) -> Steps[Connection | None]:
        """The steps of E9 before the first batch; None: there is no leader to connect to now."""
        self._expire(self._clock.monotonic_ns())
        connection: Connection | None = None
        must_confirm = self._is_denied
        try:
            node, endpoint = yield from self._routing.find_leader(
                deadline_ns=self._host.deadline_ns(LEADER_TIMEOUT_S)
            )
            self._limit.learn()
            connection = self._connect(node, endpoint)
            yield from connection.links.wait_for_welcome(
                deadline_ns=self._host.deadline_ns(STEP_TIMEOUT_S)
            )
            if must_confirm:
                yield from connection.confirm_leader(
                    deadline_ns=self._host.deadline_ns(STEP_TIMEOUT_S)
                )
            self._round += 1
            state = yield from connection.ask_state(
                round_number=self._round, deadline_ns=self._host.deadline_ns(STEP_TIMEOUT_S)
            )
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, OSError):  # no descriptor is left; later one may be
                self._trouble = str(error)
                return None
            if not isinstance(error, LogStoreError):
                raise
            if error.code in _DENIALS and not must_confirm:
                self._is_denied = True
            elif error.code not in TRANSIENT and not isinstance(error, FormatError):
                raise
            self._trouble = str(error)
            return None
        try:
            self._options.on_connected(node)
            self._is_denied = not self._try_reconcile(state, is_confirmed=must_confirm)
        except BaseException:
            connection.close()
            raise
        if self._is_denied:
            connection.close()
            return None
        self._trouble = _SLOW
        return connection

    def _connect(self, _node: int, endpoint: Endpoint) -> Connection:
        """The links of the next round; by the produce port they would depend on the node."""
        return Connection(self._host, endpoint, self.session, cluster_id=self._routing.cluster_id)

    def _try_reconcile(self, state: SessionStateReply, *, is_confirmed: bool) -> bool:
        """Settle what the state says; False: it knows less than was acknowledged.

        Raises:
          Gap: and the node is confirmed to lead.
        """
        try:
            outcome = self._unresolved.reconcile(state.next_sequence, state.rows)
        except Gap as error:
            if is_confirmed:
                raise
            self._trouble = str(error)
            return False
        size_bytes = 0
        for pack, first_lsn, count in outcome.committed:
            size_bytes += self._resolve(pack, first_lsn, count)
        for pack in outcome.forgotten:
            unknown = CommittedLsnUnknown("committed, but its LSNs are no longer known")
            size_bytes += self._settle_without_lsns(pack, unknown)
        if size_bytes:
            self._queue.release(size_bytes)
        return True

    # --- serving ---

    def _serve(self, connection: Connection) -> Steps[bool]:
        """Send and settle until a new connection is needed; whether anything was settled."""
        self._must_reconnect = False
        self._news_ns = self._clock.monotonic_ns()
        has_settled = False
        while not self._is_stopping:
            self._routing.check_endpoints_now()
            has_settled = self._read_acks(connection) or has_settled
            now_ns = self._clock.monotonic_ns()
            self._expire(now_ns)
            if self._must_reconnect or connection.links.is_lost():
                break
            if len(self._unresolved) and now_ns - self._news_ns > self._ack_timeout_ns:
                self._trouble = f"no acknowledgement for {self._options.ack_timeout_s} s"
                break
            self._send(connection, now_ns)
            yield connection.links.wait(self._next_timer_ns(now_ns))
        return has_settled

    def _send(self, connection: Connection, now_ns: int) -> None:
        """Resend what must be resent, then send new packs, while window and link have room."""
        unresolved, queue = self._unresolved, self._queue
        while (pack := unresolved.next_to_resend()) is not None:
            if not connection.try_push(pack.batch, pack.expected_next_lsn):
                unresolved.queue_again(pack)
                return
        # A pack lingers only while another batch is unresolved: it waits for that one's answer.
        queue.seal_due(now_ns - self._linger_ns if len(unresolved) else now_ns)
        while unresolved.has_room and (new := queue.pop_sealed()) is not None:
            # A sequence that was given may not be left out: the leader's refusal ends the producer.
            if new.sequence < 0 and self._limit.refuses(new):
                queue.release(self._forget(new))
                continue
            if not len(unresolved):
                self._news_ns = now_ns
            unresolved.add(new)
            self.counts.sent.add(len(new.payloads))
            new.batch = encode_batch(
                new.payloads,
                producer_id=self.session.producer_id,
                producer_epoch=self.session.producer_epoch,
                sequence=new.sequence,
                timestamp_ns=self._clock.wall_ns(),
                compressor=self._options.compressor,
            )
            if not connection.try_push(new.batch, new.expected_next_lsn):
                unresolved.queue_again(new)
                return

    def _read_acks(self, connection: Connection) -> bool:
        """Settle what the feed acknowledges; whether it settled anything.

        Batches are acknowledged in order, so only an acknowledgement of the oldest one counts for
        the ack timeout. If the feed lost that one, the leader must be asked, whatever comes later.
        """
        size_bytes, oldest = 0, self._unresolved.oldest_sequence
        for message in connection.acks():
            for sequence, first_lsn, count, code, detail in ACK_ROW.iter_unpack(message.rows):
                if code == ErrorCode.OK:
                    pack = self._unresolved.pop(sequence)
                    if pack is not None:
                        size_bytes += self._resolve(pack, first_lsn, count)
                elif message.round != connection.round:
                    continue  # refusals of older rounds were handled
                elif code in _UNUSED and first_lsn:
                    if first_lsn == connection.attempt:  # else it came twice
                        size_bytes += self._refused_unused(sequence, code, detail)
                else:
                    size_bytes += self._refused(sequence, code, detail)
        if self._unresolved.oldest_sequence != oldest:
            self._news_ns = self._clock.monotonic_ns()
        if size_bytes:
            self._queue.release(size_bytes)
        return size_bytes > 0

    def _refused(self, sequence: int, code: int, detail: int) -> int:
        """Handle one refusal; the bytes that it settled."""
        if code in RETRIED or code in _DENIALS or self._may_be_raised_soon(code):
            self._is_denied = self._is_denied or code in _DENIALS
            self._must_reconnect = True
            self._trouble = str(error_of(code, detail=detail))
            return 0
        if code == ErrorCode.COMMITTED_LSN_UNKNOWN:
            pack = self._unresolved.pop(sequence)
            if pack is None:
                return 0
            return self._settle_without_lsns(pack, error_of(code))
        error = error_of(code, detail=detail)
        if code in _OF_ONE_BATCH:
            self._end_at_refusal(sequence, error)
        raise error

    def _refused_unused(self, sequence: int, code: int, detail: int) -> int:
        """Handle one refusal that leaves its sequence unused; the bytes that it settled."""
        error = error_of(code, detail=detail)
        if self._may_be_raised_soon(code):
            self._must_reconnect = True  # the next round sends it again, as a new attempt
            self._trouble = str(error)
            return 0
        return self._take_back(sequence, error)

    def _take_back(self, sequence: int, error: LogStoreError) -> int:
        """The batch was not stored for what it expects, and never will be; its bytes."""
        pack = self._unresolved.pop(sequence)
        if pack is None:
            return 0
        self.given.take_back(sequence)
        pack.fail(error)
        return self._forget(pack)

    def _may_be_raised_soon(self, code: int) -> bool:
        """Whether the log's format level is too low, and has not been for long: a new log's is
        raised by itself."""
        if code != ErrorCode.LEVEL_REFUSED:
            return False
        now_ns = self._clock.monotonic_ns()
        self._level_refused_ns = self._level_refused_ns or now_ns
        return now_ns - self._level_refused_ns < nanoseconds(LEVEL_PATIENCE_S)

    def _end_at_refusal(self, sequence: int, error: LogStoreError) -> None:
        """One batch can never be stored, so no later one may be.

        Raises:
          NotCommitted: always; the error of the other batches.
        """
        pack = self._unresolved.pop(sequence)
        if pack is not None:
            pack.fail(error)
            self._queue.release(self._forget(pack))
        raise NotCommitted(
            f"this producer ended, since its sequence {sequence} was refused ({error}): open it "
            "again, or another one"
        ) from error

    def _next_timer_ns(self, now_ns: int) -> int:
        """The linger, the next expiry or the ack timeout, whichever comes first."""
        timers = [now_ns + WAIT_MAX_NS]
        if len(self._unresolved):
            timers.append(self._news_ns + self._ack_timeout_ns + 1_000_000)
            # A lingering pack is sent after the batch that waits for the link; room ends that wait.
            is_next = self._unresolved.has_room and not self._unresolved.has_to_resend
            if is_next and (open_since_ns := self._queue.open_since_ns()):
                timers.append(open_since_ns + self._linger_ns)
        for deadline_ns in (
            self._queue.first_deadline_ns(),
            self._unresolved.first_deadline_ns(),
        ):
            if deadline_ns:
                timers.append(deadline_ns)
        return min(timers)

    # --- settling ---

    def _resolve(self, pack: Pack, first_lsn: int, count: int) -> int:
        """Settle a committed batch; its bytes."""
        payloads = len(pack.payloads)
        if self._options.is_dense and count != payloads:
            raise InvariantViolated(
                f"sequence {pack.sequence} was sent with {payloads} payloads, "
                f"and acknowledged with {count}"
            )
        if not self._options.is_dense:
            self.given.settle(pack.sequence)
        pack.resolve(first_lsn, count)
        self.counts.committed.add(payloads)
        if self._options.on_ack is not None:
            self._options.on_ack(
                pack.size_bytes, payloads, pack.opened_ns, self._clock.monotonic_ns()
            )
        return self._forget(pack)

    def _settle_without_lsns(self, pack: Pack, error: LogStoreError) -> int:
        """The log has the batch, and does not know where; its bytes."""
        if not self._options.is_dense:
            self.given.settle(pack.sequence)
        pack.fail(error)
        return self._forget(pack)

    def _forget(self, pack: Pack) -> int:
        """Free a settled batch's bytes; how many."""
        pack.payloads = []
        pack.batch = b""
        return pack.size_bytes

    def _expire(self, now_ns: int) -> None:
        """Fail the appends whose time is over. What was sent keeps its place and is resent.

        Raises:
          NotCommitted: a batch of a monotone producer expired before it was sent. If a higher
            sequence were stored now, this one would count as committed for ever (SAFETY E1), so the
            producer ends.
        """
        size_bytes = 0
        expired = self._queue.pop_expired(now_ns)
        for pack in expired:
            pack.fail(
                NotCommitted(
                    f"not sent within {self._options.delivery_timeout_s} s ({self._trouble}): "
                    "append it again"
                )
            )
            size_bytes += self._forget(pack)
        for pack in self._unresolved.expired(now_ns):
            pack.fail(
                OutcomeUnknown(
                    f"sent, but not acknowledged within {self._options.delivery_timeout_s} s "
                    f"({self._trouble}); it may still be committed"
                )
            )
        if size_bytes:
            self._queue.release(size_bytes)
        if expired and not self._options.is_dense:
            first = expired[0].sequence
            # A batch that was sent and is not resolved comes first: it may not be stored.
            again = min((pack.sequence for pack in self._unresolved.packs()), default=first)
            raise NotCommitted(
                f"this monotone producer ended, since its sequence {first} was not sent within "
                f"{self._options.delivery_timeout_s} s ({self._trouble}): open it again and append "
                f"from sequence {again} on"
            )


def _outcome_of_sent(ending: LogStoreError | None) -> LogStoreError:
    """The error of a batch that was sent and is not resolved when the producer ends."""
    if ending is None:
        return OutcomeUnknown("the producer was closed before the acknowledgement came")
    if isinstance(ending, _OF_EVERY_BATCH):
        return ending
    return OutcomeUnknown(f"sent, but not acknowledged: {ending}")


def _outcome_of_unsent(ending: LogStoreError | None, sequence: int) -> LogStoreError:
    """The error of a batch that was never sent. `sequence` -1: it had none yet."""
    if ending is None:
        return NotCommitted("the producer was closed before it was sent")
    if isinstance(ending, NotCommitted | Closed):
        name = f"sequence {sequence}" if sequence >= 0 else "this batch"
        return NotCommitted(f"{name} was never sent: {ending}")
    return ending
