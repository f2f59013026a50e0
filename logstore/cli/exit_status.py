"""Exit statuses of the command line, and which error gives which.

0 done, 1 the answer is no, or the output cannot be written, 2 usage, 3 unreachable or no quorum,
4 refused, 5 damaged, 130 ended by SIGINT, 143 by SIGTERM. Knows no commands.
"""

from __future__ import annotations

from enum import IntEnum

from logstore import errors
from logstore.errors import LogStoreError


class ExitStatus(IntEnum):
    """What a script learns from the status alone."""

    DONE = 0
    NO = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    DAMAGED = 5
    INTERRUPTED = 130
    TERMINATED = 143


_REFUSED = (
    errors.BatchTooLarge,
    errors.InvalidBatch,
    errors.OutOfRange,
    errors.ImportRefused,
    errors.LevelRefused,
    errors.WrongCluster,
    errors.Fenced,
    errors.Gap,
    errors.SequenceReused,
    errors.CommittedLsnUnknown,
    errors.UnknownProducer,
    errors.CursorMoved,
    errors.NextLsnIs,
    errors.TooManyCursors,
    errors.TransferFailed,
    errors.FolderRefused,
    errors.DiskFull,
)
_UNREACHABLE = (
    errors.Unreachable,
    errors.NoQuorum,
    errors.NotLeader,
    errors.NotReady,
    errors.Overloaded,
    errors.NotCommitted,
    errors.OutcomeUnknown,
)
_DAMAGED = (errors.CorruptData, errors.FormatError)
_USAGE = (errors.InvalidRequest, errors.ConfigError, errors.CodecMissing)


def exit_status_of(error: LogStoreError) -> ExitStatus:
    """The status for an error; the more special classes are looked at first."""
    for status, kinds in (
        (ExitStatus.REFUSED, _REFUSED),
        (ExitStatus.UNREACHABLE, _UNREACHABLE),
        (ExitStatus.DAMAGED, _DAMAGED),
        (ExitStatus.USAGE, _USAGE),
    ):
        if isinstance(error, kinds):
            return status
    return ExitStatus.NO
