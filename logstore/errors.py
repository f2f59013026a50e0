"""The error tree: what went wrong, whose fault it is and what the caller does next.

An operating error is handled by somebody and says what to do. `InvariantViolated` is never handled:
it ends the process. Errors that cross the wire have an `ErrorCode`.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """Numbers of the errors that cross the wire (acks, refusals, control and fetch replies)."""

    OK = 0
    NOT_LEADER = 1
    NOT_READY = 2
    OVERLOADED = 3
    NO_QUORUM = 4
    NOT_COMMITTED = 5
    OUTCOME_UNKNOWN = 6
    FENCED = 7
    GAP = 8
    SEQUENCE_REUSED = 9
    COMMITTED_LSN_UNKNOWN = 10
    UNKNOWN_PRODUCER = 11
    BATCH_TOO_LARGE = 12
    INVALID_BATCH = 13
    UNSUPPORTED_VERSION = 14
    OUT_OF_RANGE = 15
    CORRUPT_DATA = 16
    WRONG_CLUSTER = 17
    INVALID_REQUEST = 18
    DISK_FULL = 19
    TRANSFER_FAILED = 20
    TIMED_OUT = 21
    CURSOR_MOVED = 22
    TOO_MANY_CURSORS = 23
    IMPORT_REFUSED = 24
    LEVEL_REFUSED = 25
    PROVISIONAL = 26  # of an append, and no error: the leader has flushed it (SAFETY E10)
    NEXT_LSN_IS = 27


class LogStoreError(Exception):
    """Root of every error of this package. `code` is what crosses the wire."""

    code = ErrorCode.INVALID_REQUEST

    def __reduce__(self) -> tuple[object, ...]:
        """As it is, for a process of Spark's to hand to another one: the default would call the
        class with its text alone."""
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(
    kind: type[LogStoreError], arguments: tuple[object, ...], fields: dict[str, object]
) -> LogStoreError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(fields)
    return error


class InvariantViolated(LogStoreError):
    """A promise of the code to itself is broken. Ends the process; never caught to go on."""


# --- the request is at fault: never retry the same ---


class InvalidRequest(LogStoreError, ValueError):
    """The request makes no sense; the message says which field and what to send instead."""

    code = ErrorCode.INVALID_REQUEST


class BatchTooLarge(InvalidRequest):
    """A payload or batch is above `batch_max_bytes`: split it, or raise the limit on every
    replica."""

    code = ErrorCode.BATCH_TOO_LARGE


class InvalidBatch(InvalidRequest):
    """A batch does not hold together (no payloads, offsets that go back, a bad CRC, a compressed
    block that is not what the batch says)."""

    code = ErrorCode.INVALID_BATCH


class OutOfRange(InvalidRequest):
    """A read outside [first, last]; both are LSNs that the replica can serve now."""

    code = ErrorCode.OUT_OF_RANGE

    def __init__(self, message: str, *, first: int, last: int) -> None:
        super().__init__(message)
        self.first = first
        self.last = last


class CursorMoved(InvalidRequest):
    """The cursor does not stand where the caller expects it; `lsn` is where it does, 0: nowhere.
    Somebody else has moved it: read on from there, or stop."""

    code = ErrorCode.CURSOR_MOVED

    def __init__(self, message: str, *, lsn: int) -> None:
        super().__init__(message)
        self.lsn = lsn


class TooManyCursors(InvalidRequest):
    """The log has as many named cursors as it may have: delete one that nobody needs first."""

    code = ErrorCode.TOO_MANY_CURSORS


class ImportRefused(InvalidRequest):
    """The log does not take this import: it has sessions, or other batches at these LSNs. Import
    into a cluster formed for it."""

    code = ErrorCode.IMPORT_REFUSED


class LevelRefused(InvalidRequest):
    """The log's format level is too low for the request: run `logstore upgrade`. Or it cannot be
    raised; the message says which replicas do not read the level: start a newer version there, then
    ask again."""

    code = ErrorCode.LEVEL_REFUSED


class WrongCluster(InvalidRequest):
    """The other side belongs to another cluster: check the endpoints."""

    code = ErrorCode.WRONG_CLUSTER


class Closed(InvalidRequest):
    """The client was closed, or this consumer, reader or watch, maybe by another thread while this
    one waited: make another one."""


# --- bytes that do not decode ---


class FormatError(LogStoreError, ValueError):
    """Bytes that are no valid message, batch, frame, record, header or META."""

    code = ErrorCode.INVALID_BATCH


class UnsupportedVersion(FormatError):
    """Bytes of a newer version: upgrade this side."""

    code = ErrorCode.UNSUPPORTED_VERSION


class UnknownMessageType(FormatError):
    """A whole, undamaged message of a type this side does not know: drop and count it (SAFETY
    M6)."""

    def __init__(self, number: int) -> None:
        super().__init__(f"unknown message type {number}")
        self.number = number


class DamagedMessage(FormatError):
    """The envelope of a message whose CRC does not fit: nothing in it can be believed."""


class CorruptData(LogStoreError):
    """Damage on disk: `file`, `position` (bytes), `expected` and `got` say where and what; LSNs
    [first_lsn, last_lsn] cannot be had from there, 0: unknown."""

    code = ErrorCode.CORRUPT_DATA

    def __init__(
        self,
        file: str,
        position: int,
        *,
        expected: str,
        got: str,
        first_lsn: int = 0,
        last_lsn: int = 0,
    ) -> None:
        super().__init__(f"{file} at byte {position}: expected {expected}, got {got}")
        self.file = file
        self.position = position
        self.expected = expected
        self.got = got
        self.first_lsn = first_lsn
        self.last_lsn = last_lsn


# --- retry elsewhere or later ---


class NotLeader(LogStoreError):
    """Ask the leader; `leader` is its node id where the replica knows it, else 0."""

    code = ErrorCode.NOT_LEADER

    def __init__(self, message: str = "this replica does not lead", *, leader: int = 0) -> None:
        super().__init__(message)
        self.leader = leader


class NotReady(LogStoreError):
    """The replica has not heard a commit index from a current leader yet: retry later or
    elsewhere."""

    code = ErrorCode.NOT_READY


class Overloaded(LogStoreError):
    """A bounded resource is full: retry later."""

    code = ErrorCode.OVERLOADED


class NoQuorum(LogStoreError):
    """No majority answered within the time given: the cluster cannot serve this now."""

    code = ErrorCode.NO_QUORUM


class Unreachable(LogStoreError):
    """No replica answered within the time given: check the endpoints and that the cluster is up."""

    code = ErrorCode.TIMED_OUT


class TransferFailed(LogStoreError):
    """The leadership transfer did not happen as far as the replica knows: ask who leads."""

    code = ErrorCode.TRANSFER_FAILED


# --- the fate of an append ---


class NotCommitted(LogStoreError):
    """The batch is not in the log and will not be: retry the same bytes, or use a new producer
    epoch."""

    code = ErrorCode.NOT_COMMITTED


class OutcomeUnknown(LogStoreError):
    """The batch may or may not be in the log: retry the same bytes under the same sequence."""

    code = ErrorCode.OUTCOME_UNKNOWN


class NextLsnIs(LogStoreError):
    """The batch was to be stored only where the log ended, and it ended elsewhere: before
    `next_lsn`. It is not in the log and will not be, and its sequence counts as unused: read up to
    there, decide again, append again."""

    code = ErrorCode.NEXT_LSN_IS

    def __init__(self, message: str, *, next_lsn: int) -> None:
        super().__init__(message)
        self.next_lsn = next_lsn


class Fenced(LogStoreError):
    """A newer producer epoch of this producer id exists: this producer must stop."""

    code = ErrorCode.FENCED


class Gap(LogStoreError):
    """A dense sequence was skipped; `expected` is the one to send."""

    code = ErrorCode.GAP

    def __init__(self, message: str, *, expected: int) -> None:
        super().__init__(message)
        self.expected = expected


class SequenceReused(LogStoreError):
    """A used sequence came again with other bytes: a bug of the producer; open a new producer
    epoch."""

    code = ErrorCode.SEQUENCE_REUSED


class CommittedLsnUnknown(LogStoreError):
    """The batch is committed, but so long ago that its LSNs are no longer known to the session."""

    code = ErrorCode.COMMITTED_LSN_UNKNOWN


class UnknownProducer(LogStoreError):
    """No such session: open one."""

    code = ErrorCode.UNKNOWN_PRODUCER


# --- the operator ---


class ConfigError(LogStoreError, ValueError):
    """A setting is unknown, has a bad unit or contradicts another; the message names key and
    reason."""


class CodecMissing(LogStoreError):
    """Batches are compressed, or are to be, and this side lacks the codec: install the package that
    the message names. A loop over records stays before the batch: read on afterwards. `poll`,
    `batches` and `read` have handed the batch out, and the consumer stands behind it, when its
    payloads are asked for and raise this: keep the batch, or seek to its `first_lsn`."""


class FolderRefused(LogStoreError):
    """The data folder is another cluster's, a newer version's, another node's copy, or in use (L3,
    M2)."""


class FolderInUse(FolderRefused):
    """Another process holds the data folder's lock: it may be about to die, so trying again a few
    times makes sense; then stop it, or take another folder (M2)."""


class UnsupportedLevel(FolderRefused):
    """The log is at a format level that this version does not read: start a newer version. It is
    whole as far as this version can know (SAFETY S11)."""


class MetaLost(LogStoreError):
    """META is damaged or gone but the log is not: the replica may have voted, so it must not come
    back in place (SAFETY L1). Move the folder away and add a replica with a new uuid.
    """


class ReplicaLost(LogStoreError):
    """Damage that this replica cannot go on with: nothing is left of an entry that its leader
    compares with, or that a truncation leaves as the last one. The replica stays up, serves nothing
    and says why (SAFETY L6). Move the folder away and add a replica with a new uuid."""


class DiskFull(LogStoreError):
    """No space for the next segment: free some; nothing is lost, writes go on when space
    appears."""

    code = ErrorCode.DISK_FULL


class WriteFailed(LogStoreError):
    """A flush, or a write on prepared space, failed: the incarnation ends, no retry (SAFETY F5)."""
