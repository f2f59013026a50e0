"""Whether a batch may be stored in the form in which it came: compressed ones from format level 3
on (SAFETY S11).

Pure. Decides for pushes and imports alike, before the session table sees the batch: what is refused
here changes nothing. A level that is known to be committed stays committed under every leader. That
it is too low is known only once this leader is ready, from a Committed of its term: until then the
batch is refused as `NOT_READY`, and its producer begins a new round, whose SessionState is answered
once this leader is ready.
"""

from __future__ import annotations

from actors.ingress.admission import Admission
from logstore.errors import ErrorCode
from logstore.format.batch import BatchHeader
from logstore.format.level import COMPRESSION_LEVEL
from logstore.session.session import Refused


def refusal_of_codec(admission: Admission, header: BatchHeader) -> Refused | None:
    """Why the batch is not taken in its form; None: it may be. Hot: one call a batch."""
    if not header.codec or admission.level >= COMPRESSION_LEVEL or admission.table is None:
        return None  # without a table it is refused for that
    if not admission.is_ready:
        return Refused(ErrorCode.NOT_READY, 0, "the log's format level is not known yet")
    text = f"compressed batches need format level {COMPRESSION_LEVEL}: run `logstore upgrade`"
    return Refused(ErrorCode.LEVEL_REFUSED, admission.level, text)
