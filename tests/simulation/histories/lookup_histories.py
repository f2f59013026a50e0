"""Histories of sessions that are looked up by their name: the answer has all that was committed,
and nothing else."""

from __future__ import annotations

from actors.simulation.checkers import client_facts
from logstore.errors import ErrorCode
from logstore.format import session_entries
from logstore.format.client_messages import ACK_ROW, SessionStateReply
from logstore.format.session_entries import OpenEntry
from logstore.model import AckLevel, EntryKind, SequenceMode
from tests.simulation.histories.case import Collection
from tests.simulation.histories.cursor_histories import confirm
from tests.simulation.histories.session_histories import open_session
from tests.simulation.histories.stage import PRODUCER, Stage, batch_of

LOOKUPS = Collection()
breaks = LOOKUPS.breaks

NAME = b"query-1"
NOBODY = SessionStateReply(0, 0, 0, b"")


def begin(stage: Stage, *, mode: SequenceMode = SequenceMode.DENSE) -> None:
    """A session with a committed batch, 0, of one payload at LSN 1."""
    stage.elect_first()
    open_session(stage, mode=mode, name=NAME)
    stage.write(1, 0)


def rows(*told: tuple[int, int], code: ErrorCode = ErrorCode.OK) -> bytes:
    """Rows of (sequence, LSN), a payload each."""
    return b"".join(ACK_ROW.pack(sequence, lsn, 1, code, 0) for sequence, lsn in told)


def look_up(stage: Stage, reply: SessionStateReply, *, number: int = 1) -> None:
    """A lookup from beginning to end."""
    stage.tell(client_facts.SessionAsked(number, NAME))
    confirm(stage, number)
    stage.tell(client_facts.SessionTold(number, 1, reply))


@breaks("I6", says="without a quorum round")
def a_lookup_is_answered_without_a_round(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.tell(client_facts.SessionAsked(1, NAME))
    if not is_broken:
        confirm(stage, 1)
    stage.tell(client_facts.SessionTold(1, 1, NOBODY))


@breaks("I6", says="is answered with (0, 0), after (7, 1)")
def a_lookup_finds_no_session_although_one_is_there(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    look_up(stage, NOBODY if is_broken else SessionStateReply(PRODUCER, 1, 1, rows((0, 1))))


@breaks("I6", says="is answered with (7, 1), after (7, 2)")
def a_lookup_is_answered_with_an_epoch_that_was_over(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    open_session(stage, epoch=2, name=NAME)
    old = SessionStateReply(PRODUCER, 1, 1, rows((0, 1)))
    look_up(stage, old if is_broken else SessionStateReply(PRODUCER, 2, 0, b""))


@breaks("I10", says="is answered with (7, 1), not committed")
def a_lookup_finds_a_session_before_its_open_is_committed(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    entry = OpenEntry(PRODUCER, 1, SequenceMode.DENSE, AckLevel.QUORUM, 16, 1 << 20, NAME)
    row = stage.propose(1, EntryKind.OPEN, session_entries.encode_open(entry))
    if not is_broken:
        stage.spread(1, row)
    look_up(stage, SessionStateReply(PRODUCER, 1, 0, b""))


@breaks("I10", says="batch 1, which is not committed")
def a_lookup_is_answered_with_a_batch_that_is_under_way(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    stage.invoke(1)
    stage.data(1, batch_of(1))
    look_up(stage, SessionStateReply(PRODUCER, 1, 2 if is_broken else 1, rows((0, 1))))


@breaks("I10", says="batch 0 with code")
def a_lookup_is_answered_with_a_row_of_unknown_outcome(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    code = ErrorCode.OUTCOME_UNKNOWN if is_broken else ErrorCode.OK
    look_up(stage, SessionStateReply(PRODUCER, 1, 1, rows((0, 1), code=code)))


@breaks("I6", says="but not with batch 1, which was committed")
def a_lookup_is_answered_with_an_older_state(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    stage.write(1, 1)
    old = SessionStateReply(PRODUCER, 1, 1, rows((0, 1)))
    look_up(stage, old if is_broken else SessionStateReply(PRODUCER, 1, 2, rows((0, 1), (1, 2))))


@breaks("I6", says="but not with batch 1, which was committed")
def a_window_has_lost_its_newest_row(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    stage.write(1, 1)
    told = rows((0, 1)) if is_broken else rows((0, 1), (1, 2))
    look_up(stage, SessionStateReply(PRODUCER, 1, 2, told))


@breaks("I6", says="but not with batch 0, which was committed")
def a_monotone_session_is_answered_as_empty_after_its_next_opening(
    stage: Stage, is_broken: bool
) -> None:
    begin(stage, mode=SequenceMode.MONOTONE)
    open_session(stage, epoch=2, mode=SequenceMode.MONOTONE, name=NAME)
    whole = SessionStateReply(PRODUCER, 2, 1, rows((0, 1)))
    look_up(stage, SessionStateReply(PRODUCER, 2, 0, b"") if is_broken else whole)


@breaks("I10", says="batch 0, which is not committed")
def an_epoch_is_answered_with_what_only_the_one_before_has_committed(
    stage: Stage, is_broken: bool
) -> None:
    begin(stage)
    open_session(stage, epoch=2, name=NAME)
    look_up(stage, SessionStateReply(PRODUCER, 2, 1 if is_broken else 0, b""))
