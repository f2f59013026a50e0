"""The requests of clients and the answers they got, as data. Must not know what reads them."""

from __future__ import annotations

from collections.abc import Sequence

from actors.simulation.checkers.facts import Fact, NodeFact
from logstore.format.client_messages import SessionStateReply, SpansReply, SpansRequest
from logstore.format.cursor_entries import Cursor
from logstore.format.session_list import ListedSession
from logstore.model import SequenceMode

# --- appends ---


class SessionOpened(Fact, frozen=True):
    """A client's session was opened with this producer epoch (E8)."""

    producer_id: int
    producer_epoch: int
    mode: SequenceMode


class AppendInvoked(Fact, frozen=True):
    """An append began, `operation` is a new number. Resending the same bytes under the same numbers
    is the same one. `expected_lsn`: the LSN that it is to have, or it is not to be stored; None:
    any. `batch`: its bytes, if it is compressed."""

    operation: int
    producer_id: int
    producer_epoch: int
    sequence: int
    payloads: Sequence[bytes]
    expected_lsn: int | None = None
    batch: bytes = b""


class AppendAcknowledged(Fact, frozen=True):
    """The append was answered as committed, with these LSNs. A second answer is no error."""

    operation: int
    first_lsn: int
    count: int


class AppendRefused(Fact, frozen=True):
    """The client gave up after an answer with this code (`acknowledgements.FINAL_CODES`)."""

    operation: int
    code: int


class ComparisonRefused(Fact, frozen=True):
    """The append was refused because the log ended elsewhere: before `next_lsn` (E11)."""

    operation: int
    next_lsn: int


class BatchRefused(Fact, frozen=True):
    """A client got this ErrorCode for a batch, which it may send again."""

    code: int


class ProvisionalSent(Fact, frozen=True):
    """A producer of level `leader` or `none` sends its batch `number`, which rises, under these
    numbers."""

    producer: str
    number: int
    producer_id: int
    producer_epoch: int
    sequence: int


class ProvisionalTold(NodeFact, frozen=True):
    """The replica answers that it has flushed this batch."""

    producer_id: int
    producer_epoch: int
    sequence: int


class LossesCounted(Fact, frozen=True):
    """A producer of such a level has ended. At most so many of its batches are lost."""

    producer: str
    possibly_lost: int


class CompressionRefused(Fact, frozen=True):
    """A client was told that the log is at format `level`, which is too low for its compressed
    batch; its session is over."""

    producer_id: int
    producer_epoch: int
    level: int


class AnsweredThere(Fact, frozen=True):
    """A producer was answered over the connection that its batches went over. `is_awaited`: that
    one of them is committed, which SessionState had said, there, to be in the log only."""

    is_awaited: bool


class SessionDenied(Fact, frozen=True):
    """A producer ended, since a replica answered that its session is over."""

    producer_id: int
    producer_epoch: int


class ImportMoved(Fact, frozen=True):
    """An importer pushed to more than one leader."""


# --- reads and questions ---


class Subscribed(Fact, frozen=True):
    """The consumer begins, or seeks to, `next_lsn`; `is_earliest`: or a later log start."""

    consumer: str
    next_lsn: int
    is_earliest: bool = False


class Delivered(Fact, frozen=True):
    """The consumer gave its user a batch that `node` had served.

    `first_lsn` is of the whole batch, whose bytes `batch` is, header included, as they came;
    `handed`: [first, last] LSN that the user got, None: all of it; `is_whole` is the flag that the
    user got, False: the limits of the request cut the batch.
    """

    consumer: str
    node: int
    first_lsn: int
    batch: bytes
    handed: tuple[int, int] | None = None
    is_whole: bool = True


class EndTold(Fact, frozen=True):
    """`node` answered a client, which asked at `invoked_ns`, that `end_lsn` is the last LSN."""

    invoked_ns: int
    end_lsn: int
    node: int | None
    is_linearizable: bool


class Question(Fact, frozen=True):
    """A client asks; `number` is unique in the world."""

    number: int


class CursorAsked(Question, frozen=True):
    """It asks for a change of a cursor (LSN 0 deletes), or, with None, for a list of all."""

    change: Cursor | None
    expected_lsn: int


class SessionAsked(Question, frozen=True):
    """It asks what the session of this name has committed."""

    name: bytes


class SessionsAsked(Question, frozen=True):
    """It asks for a `page` (after, limit) of the sessions, or, with None, to end `producer_id`."""

    page: tuple[int, int] | None
    producer_id: int


class CursorChanged(Fact, frozen=True):
    """The change is answered as committed; the cursor was at `previous_lsn` before."""

    number: int
    previous_lsn: int


class SessionEnded(Fact, frozen=True):
    """The request is answered: the session is ended, which is committed."""

    number: int


class LevelAsked(Fact, frozen=True):
    """It asks for this format level."""

    level: int


class LevelTold(Fact, frozen=True):
    """It asked for `asked`, and was told: the log is at `level`."""

    asked: int
    level: int


class Told(Fact, frozen=True):
    """`node` answers with the present state of something, for which it needs a quorum round."""

    number: int
    node: int


class CursorMoved(Told, frozen=True):
    """The cursor was not changed, since it is at `lsn`."""

    lsn: int


class CursorsListed(Told, frozen=True):
    """These are all cursors."""

    cursors: Sequence[Cursor]


class SessionTold(Told, frozen=True):
    """What the session has committed."""

    reply: SessionStateReply


class SessionsListed(Told, frozen=True):
    """These are the sessions of the page."""

    rows: Sequence[ListedSession]
    next_after: int


class SessionUnknown(Told, frozen=True):
    """There is no such session."""


class SurveyAsked(Fact, frozen=True):
    """A client asks a node for a time or for spans; one question at a time."""


class TimeTold(NodeFact, frozen=True):
    """`node` answers: `lsn` is the first that is not older than `timestamp_ns`, or, if there is
    none, the one after the last that it shows."""

    timestamp_ns: int
    lsn: int


class SpansTold(NodeFact, frozen=True):
    """`node` answers a question for spans; they begin at most one LSN after the last it shows."""

    request: SpansRequest
    reply: SpansReply


class LogStartTold(NodeFact, frozen=True):
    """`node` says that its log begins at this LSN."""

    lsn: int


class TrimTold(NodeFact, frozen=True):
    """`node` answers a trim: the log is to begin at this LSN."""

    lsn: int


class TrimRefused(NodeFact, frozen=True):
    """`node` refused a trim, because the log's format level is too low for it."""


class RangeGone(NodeFact, frozen=True):
    """`node` refused a range that begins at `first_lsn`, where its log no longer is."""

    first_lsn: int


class LogVerified(NodeFact, frozen=True):
    """`node` verified the entries of `span`, [first, last], for a client: `named` are damaged, and
    no others; `chain` is the last entry's, 0 if damage hides it."""

    span: tuple[int, int]
    chain: int
    named: Sequence[int]


class DamageNamed(NodeFact, frozen=True):
    """`node`, which was asked at `asked_ns`, refused a client the LSNs [first, last] as damaged;
    (0, 0): it found some damage."""

    lsns: tuple[int, int]
    asked_ns: int
