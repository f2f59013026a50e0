"""Where a new log begins, as the tail of a message: nothing for LSN 1, else the LSN, u64.

Almost every log begins at LSN 1. Its messages have the bytes that they had before other
first LSNs were possible.
"""

from __future__ import annotations

import struct

from logstore.errors import FormatError
from logstore.limits import FIRST_LSN_MAX
from logstore.model import FIRST_LSN, Lsn

_U64 = struct.Struct("<Q")
FIRST_LSN_SIZE = _U64.size


def pack_first_lsn(first_lsn: Lsn) -> bytes:
    """The tail, of 0 or 8 bytes."""
    return b"" if first_lsn == FIRST_LSN else _U64.pack(first_lsn)


def unpack_first_lsn(tail: bytes) -> Lsn:
    """The LSN of the log's first payload.

    Raises:
      FormatError: no such tail, or no LSN at which a log may begin.
    """
    if not tail:
        return FIRST_LSN
    if len(tail) != _U64.size:
        raise FormatError(f"a first LSN of {len(tail)} bytes")
    first_lsn = Lsn(_U64.unpack(tail)[0])
    if not FIRST_LSN < first_lsn <= FIRST_LSN_MAX:
        raise FormatError(
            f"a log may begin at LSN {FIRST_LSN} to {FIRST_LSN_MAX}, not at {first_lsn}"
        )
    return first_lsn
