"""A block of Raft records as a numpy array, for binary searches over LSN, time and position.

Separate from raft_record.py so that only readers import numpy. Nothing is verified here: search,
then unpack the record that was found.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from logstore.errors import FormatError
from logstore.format.fields import Buffer
from logstore.format.raft_record import RECORD_SIZE

# The bytes of raft_record.py and entry.py, field by field.
RECORD_DTYPE = np.dtype(
    [
        ("magic", "<u4"), ("version", "<u2"), ("reserved", "<u2"),
        ("kind", "<u2"), ("entry_reserved", "<u2"), ("count", "<u4"),
        ("term", "<u8"), ("index", "<u8"), ("prev_term", "<u8"), ("first_lsn", "<u8"),
        ("timestamp_ns", "<u8"), ("cumulative_bytes", "<u8"), ("prev_chain", "<u8"),
        ("body_size", "<u4"), ("body_crc", "<u4"),
        ("frame_offset", "<u8"), ("next_lsn", "<u8"), ("chain", "<u8"), ("commit_known", "<u8"),
        ("log_epoch", "<u4"), ("tail_reserved", "V8"), ("crc", "<u4"),
    ]
)  # fmt: skip


def record_array(buffer: Buffer) -> npt.NDArray[Any]:
    """The whole records of `buffer` as a view of RECORD_DTYPE; no copy.

    Raises:
      FormatError: the buffer is not a whole number of records.
    """
    if len(buffer) % RECORD_SIZE:
        raise FormatError(f"{len(buffer)} bytes are no whole number of {RECORD_SIZE}-byte records")
    return np.frombuffer(buffer, RECORD_DTYPE)
