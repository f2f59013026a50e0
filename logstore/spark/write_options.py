"""What a user may write in `.option(…)` to append to the log, checked and typed.

Pure: strings in, values out; unknown names are refused, as for reads.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from logstore.errors import ConfigError
from logstore.limits import POSITION_MAX, SESSION_NAME_MAX_BYTES
from logstore.spark.read_options import (
    parse_bool,
    parse_endpoint_list,
    parse_known,
    parse_milliseconds,
    parse_number,
)

COMMIT_TIMEOUT_MS = 60_000
# What Spark itself puts among the options of a stream's sink.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a sink.

    Attributes:
      txn_app_id: name of the session; None: a stream's query id, a batch write has none.
      txn_version: sequence of a batch write under that name; a stream's are its batch ids.
      is_atomic: False: what is too large for one batch may go in several.
      expected_rows: of a batch write: with any other number nothing is written; None: any.
      commit_timeout_ms: how long an append may take, changes of leader included.
    """

    endpoints: str
    txn_app_id: str | None
    txn_version: int | None
    is_atomic: bool
    expected_rows: int | None
    commit_timeout_ms: int

    @property
    def commit_timeout_s(self) -> float:
        return self.commit_timeout_ms / 1_000


def _name(name: str, text: str) -> str:
    if 0 < len(text.encode()) <= SESSION_NAME_MAX_BYTES:
        return text
    raise ConfigError(f"option {name}: give 1 to {SESSION_NAME_MAX_BYTES} bytes of UTF-8")


def _version(name: str, text: str) -> int:
    return parse_number(name, text, least=0, most=POSITION_MAX - 1, what="a version")


def _rows(name: str, text: str) -> int:
    return parse_number(name, text, least=0, most=POSITION_MAX, what="a number of rows")


_STREAM = {
    "endpoints": parse_endpoint_list,
    "txnAppId": _name,
    "atomic": parse_bool,
    "commitTimeoutMs": parse_milliseconds,
}
_BATCH = _STREAM | {"txnVersion": _version, "expectedRows": _rows}
_OF_BATCHES = {
    "txnVersion": "batch writes; a stream's versions are its batch ids",
    "expectedRows": "batch writes; a stream's batches are what its query gives",
}


def parse_write_options(given: Mapping[str, str], *, is_streaming: bool) -> WriteOptions:
    """The settings of a batch write or of a stream's sink.

    Raises:
      ConfigError: an option is unknown, has a bad value, or lacks its partner; names it.
    """
    if is_streaming:
        wanted = {key: text for key, text in given.items() if key.lower() not in _SPARKS_OWN}
        found = parse_known(wanted, _STREAM, _OF_BATCHES)
    else:
        found = parse_known(given, _BATCH, {})
        if ("txnAppId" in found) != ("txnVersion" in found):
            raise ConfigError(
                "options txnAppId and txnVersion go together: the name of who writes, and a number "
                "that rises with each write; without both a write that is run again appends again"
            )
    return WriteOptions(
        endpoints=found["endpoints"],
        txn_app_id=found.get("txnAppId"),
        txn_version=found.get("txnVersion"),
        is_atomic=found.get("atomic", True),
        expected_rows=found.get("expectedRows"),
        commit_timeout_ms=found.get("commitTimeoutMs", COMMIT_TIMEOUT_MS),
    )
