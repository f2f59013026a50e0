"""What clients asked for and were told, as data. Must not know who reads what."""

from __future__ import annotations

from collections.abc import Sequence

from actors.simulation.checkers.facts import Fact, NodeFact
from logstore.format.client_messages import SessionStateReply, SpansReply, SpansRequest
from logstore.format.cursor_entries import Cursor
from logstore.format.session_list import ListedSession
from logstore.model import SequenceMode

# --- appends ---


class SessionOpened(Fact, frozen=True):
    """A client was told that this producer epoch is its own (E8)."""

    producer_id: int
    producer_epoch: int
    mode: SequenceMode


class AppendInvoked(Fact, frozen=True):
    """An append began, `operation` is a new number. Resending the same bytes under the same numbers
    is the same one."""

    operation: int
    producer_id: int
    producer_epoch: int
    sequence: int
    payloads: Sequence[bytes]


class AppendAcknowledged(Fact, frozen=True):
    """The client was told: committed, with these LSNs. Telling it again is no error."""

    operation: int
    first_lsn: int
    count: int


class AppendRefused(Fact, frozen=True):
    """The client gave up; this code was the last answer (`acknowledgements.FINAL_CODES`)."""

    operation: int
    code: int


class BatchRefused(Fact, frozen=True):
    """A client got this ErrorCode for a batch, which it may send again."""

    code: int


class SessionDenied(Fact, frozen=True):
    """A producer ended, since it was told that its session is over."""

    producer_id: int
    producer_epoch: int


class ImportMoved(Fact, frozen=True):
    """An importer pushed to more than one leader."""


# --- reads and questions ---


class Subscribed(Fact, frozen=True):
    """The consumer begins, or seeks to, `next_lsn`."""

    consumer: str
    next_lsn: int


class Delivered(Fact, frozen=True):
    """The consumer handed on a batch that `node` had served.

    `first_lsn` is of the whole batch, whose bytes `batch` is, header included, as they came;
    `handed`: [first, last] LSN that were handed on, None: all of it; `is_whole` is what the
    consumer was told, False: the limits it gave cut the batch.
    """

    consumer: str
    node: int
    first_lsn: int
    batch: bytes
    handed: tuple[int, int] | None = None
    is_whole: bool = True


class EndTold(Fact, frozen=True):
    """A client, which asked at `invoked_ns`, was told by `node` that `end_lsn` is the last LSN."""

    invoked_ns: int
    end_lsn: int
    node: int | None
    is_linearizable: bool


class Question(Fact, frozen=True):
    """A client asks; `number` is unique in the world."""

    number: int


class CursorAsked(Question, frozen=True):
    """For a change of a cursor (LSN 0 deletes), None: for all cursors."""

    change: Cursor | None
    expected_lsn: int


class SessionAsked(Question, frozen=True):
    """For what the session of this name has committed."""

    name: bytes


class SessionsAsked(Question, frozen=True):
    """For a page of the sessions (after, limit), or None: for the end of `producer_id`."""

    page: tuple[int, int] | None
    producer_id: int


class CursorChanged(Fact, frozen=True):
    """It was told: committed; where the cursor stood before."""

    number: int
    previous_lsn: int


class SessionEnded(Fact, frozen=True):
    """It was told: the session is ended, which is committed."""

    number: int


class Told(Fact, frozen=True):
    """It was told by `node` how something stands, which takes a quorum round."""

    number: int
    node: int


class CursorMoved(Told, frozen=True):
    """Not changed, since the cursor stands at `lsn`."""

    lsn: int


class CursorsListed(Told, frozen=True):
    """These are all."""

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
    """Somebody asks a node for a time or for spans; one question at a time."""


class TimeTold(NodeFact, frozen=True):
    """`node` answers: `lsn` is the first that is not older, or the one behind all it shows."""

    timestamp_ns: int
    lsn: int


class SpansTold(NodeFact, frozen=True):
    """`node` answers a question for spans that begin at or below what it shows, or right behind."""

    request: SpansRequest
    reply: SpansReply


class LogVerified(NodeFact, frozen=True):
    """A client had `node` verify the entries of `span`, [first, last]: `named` are damaged, and no
    others; `chain` is the one at the last, 0 where damage hides it."""

    span: tuple[int, int]
    chain: int
    named: Sequence[int]


class DamageNamed(NodeFact, frozen=True):
    """`node` refused a client the LSNs [first, last] as damaged; (0, 0): it met some damage."""

    lsns: tuple[int, int]
