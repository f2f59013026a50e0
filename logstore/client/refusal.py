"""What an error number from the wire means: its exception, and whether to retry.

Knows no sockets and no state.
"""

from __future__ import annotations

from logstore import errors
from logstore.errors import ErrorCode, LogStoreError, OutOfRange
from logstore.format.client_messages import ErrorReply

_BY_CODE: dict[int, type[LogStoreError]] = {
    ErrorCode.NOT_READY: errors.NotReady,
    ErrorCode.OVERLOADED: errors.Overloaded,
    ErrorCode.NO_QUORUM: errors.NoQuorum,
    ErrorCode.NOT_COMMITTED: errors.NotCommitted,
    ErrorCode.OUTCOME_UNKNOWN: errors.OutcomeUnknown,
    ErrorCode.FENCED: errors.Fenced,
    ErrorCode.SEQUENCE_REUSED: errors.SequenceReused,
    ErrorCode.COMMITTED_LSN_UNKNOWN: errors.CommittedLsnUnknown,
    ErrorCode.UNKNOWN_PRODUCER: errors.UnknownProducer,
    ErrorCode.BATCH_TOO_LARGE: errors.BatchTooLarge,
    ErrorCode.INVALID_BATCH: errors.InvalidBatch,
    ErrorCode.UNSUPPORTED_VERSION: errors.UnsupportedVersion,
    ErrorCode.WRONG_CLUSTER: errors.WrongCluster,
    ErrorCode.INVALID_REQUEST: errors.InvalidRequest,
    ErrorCode.DISK_FULL: errors.DiskFull,
    ErrorCode.TRANSFER_FAILED: errors.TransferFailed,
    ErrorCode.TIMED_OUT: errors.Unreachable,
    ErrorCode.IMPORT_REFUSED: errors.ImportRefused,
    ErrorCode.TOO_MANY_CURSORS: errors.TooManyCursors,
    ErrorCode.LEVEL_REFUSED: errors.LevelRefused,
}

_DEFAULT_TEXT: dict[int, str] = {
    ErrorCode.FENCED: "a newer producer epoch of this producer is open: this one must stop",
    ErrorCode.SEQUENCE_REUSED: "this sequence was used for other bytes: open a new producer",
    ErrorCode.COMMITTED_LSN_UNKNOWN: "committed, but too long ago for its LSNs to be known",
    ErrorCode.UNKNOWN_PRODUCER: "unknown producer, or one idle for too long: open a new one",
    ErrorCode.IMPORT_REFUSED: "sessions were opened in this log: import into a new cluster",
    ErrorCode.LEVEL_REFUSED: "the log's format level is too low for it: run `logstore "
    "upgrade`, or append with compression='none' and without expected_next_lsn",
    ErrorCode.BATCH_TOO_LARGE: "the batch is above the replicas' batch_max_bytes: split it",
}

# Another replica, or the same one a moment later, may answer.
TRANSIENT = frozenset(
    {
        ErrorCode.NOT_LEADER,
        ErrorCode.NOT_READY,
        ErrorCode.OVERLOADED,
        ErrorCode.NO_QUORUM,
        ErrorCode.DISK_FULL,
        ErrorCode.TIMED_OUT,
    }
)

# A new log is raised to the newest format level within moments of its forming, once its leader has
# heard from every replica. Only who is refused for longer must do something about it.
LEVEL_PATIENCE_S = 5.0

# Refusals of an append after which the same bytes are sent again, once the leader was looked for.
RETRIED = TRANSIENT | {ErrorCode.NOT_COMMITTED, ErrorCode.OUTCOME_UNKNOWN, ErrorCode.GAP}


def error_of(code: int, text: str = "", *, detail: int = 0, last: int = 0) -> LogStoreError:
    """The exception for an error number.

    Args:
      code: an ErrorCode, or a number of a newer version.
      text: the sender's text; a default is used where there are none.
      detail: by code: the leader's node id, the expected sequence, the first LSN of the bounds or
        of the damage, where the cursor stands, or the LSN that comes next.
      last: the last LSN of the bounds of OUT_OF_RANGE, or of the damage.
    """
    message = text or _DEFAULT_TEXT.get(code, "")
    if code == ErrorCode.NOT_LEADER:
        return errors.NotLeader(message or "this replica does not lead", leader=detail)
    if code == ErrorCode.GAP:
        return errors.Gap(message or f"sequence {detail} is expected next", expected=detail)
    if code == ErrorCode.CURSOR_MOVED:
        return errors.CursorMoved(message or f"the cursor stands at LSN {detail}", lsn=detail)
    if code == ErrorCode.NEXT_LSN_IS:
        message = message or (
            f"the next LSN was {detail}, not the one expected: nothing was stored; read on, decide "
            "again"
        )
        return errors.NextLsnIs(message, next_lsn=detail)
    if code == ErrorCode.OUT_OF_RANGE:
        message = message or f"outside of the LSNs {detail} to {last} that the replica can serve"
        return errors.OutOfRange(message, first=detail, last=last)
    if code == ErrorCode.CORRUPT_DATA:
        return _damage(message, detail, last)
    known = _BY_CODE.get(code)
    if known is None:
        return LogStoreError(f"error {code} of a newer version: {message or 'no text'}")
    return known(message or ErrorCode(code).name.lower().replace("_", " "))


def _damage(message: str, first_lsn: int, last_lsn: int) -> errors.CorruptData:
    """Of a replica's disk. Where it is there, file and byte, is in the replica's text, if at all:
    the error's own text names no byte."""
    disk, good = "the replica's disk", "undamaged data"
    error = errors.CorruptData(
        disk, 0, expected=good, got=message or "damage", first_lsn=first_lsn, last_lsn=last_lsn
    )
    error.args = (f"{disk} is damaged{f': {message}' if message else ''}",)
    return error


def explain_bounds(lsn: int, bounds: OutOfRange) -> OutOfRange:
    """A replica's refusal to read `lsn`; where that lies below its bounds, with what to do."""
    first, last = bounds.first, bounds.last
    if lsn >= first:
        return bounds
    has = f"the log holds LSN {first} to {last}" if first <= last else "it is empty now"
    return OutOfRange(
        f"LSN {lsn} lies below the log start, LSN {first}; {has}. What is below was trimmed, or "
        "never was in this log: begin at the log start, or read the rest from an archive",
        first=first,
        last=last,
    )


def error_of_reply(reply: ErrorReply) -> LogStoreError:
    """The exception for a reply that is an error."""
    text = reply.text.decode("utf-8", "replace")
    if reply.code == ErrorCode.NOT_LEADER:
        return error_of(reply.code, text, detail=reply.leader)
    return error_of(reply.code, text, detail=reply.first, last=reply.last)
