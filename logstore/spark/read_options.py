"""What a user may write in `.option(…)` to read the log, checked and typed.

Pure: strings in, values out. Every option is known by name or refused by name, and so is a value
that makes no sense. Names arrive in any case.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from logstore.client.endpoint import parse_endpoints
from logstore.errors import ConfigError, InvalidRequest
from logstore.limits import POSITION_MAX
from logstore.units import parse_size

REPLICA_WORDS = ("any", "leader", "follower")
FETCH_TIMEOUT_MS = 30_000
PARTITIONS_MAX = 10_000


class AtLsn(msgspec.Struct, frozen=True, tag=True):
    """A start or an end: this LSN, included."""

    lsn: int


class AtTimestamp(msgspec.Struct, frozen=True, tag=True):
    """A start: the first record not older than this; an end: the last one older than this."""

    timestamp_ns: int


class Earliest(msgspec.Struct, frozen=True, tag=True):
    """A start: the log start."""


class Latest(msgspec.Struct, frozen=True, tag=True):
    """A start: what comes after now."""


Start = AtLsn | AtTimestamp | Earliest | Latest


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a source.

    Attributes:
      replica: "any" (followers first), "leader", "follower" or a node id.
      end: None: batch reads end at what is committed when they are planned, streams never.
      has_payload: whether there is a payload column.
      fails_on_data_loss: whether LSNs below the log start are an error.
      fetch_timeout_ms: how long a range may go without a byte from any replica.
      whole_batches: whether a micro-batch never cuts an atomic batch.
    """

    endpoints: str
    replica: str | int
    start: Start
    end: AtLsn | AtTimestamp | None
    max_records_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_partitions: int
    max_records_per_partition: int | None
    has_payload: bool
    fails_on_data_loss: bool
    fetch_timeout_ms: int
    whole_batches: bool

    @property
    def fetch_timeout_s(self) -> float:
        return self.fetch_timeout_ms / 1_000


# --- values ---


def _refuse(name: str, text: str, advice: str) -> ConfigError:
    return ConfigError(f"option {name}: {text!r} is not valid: {advice}")


def parse_number(name: str, text: str, *, least: int, most: int, what: str) -> int:
    """A whole number within [least, most].

    Raises:
      ConfigError: anything else; names the option.
    """
    stripped = text.strip()
    if stripped.isascii() and stripped.isdigit() and least <= int(stripped) <= most:
        return int(stripped)
    raise _refuse(name, text, f"give {what}, {least} to {most}")


def parse_bool(name: str, text: str) -> bool:
    """Raises: ConfigError: neither true nor false; names the option."""
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise _refuse(name, text, "give true or false")


def parse_endpoint_list(name: str, text: str) -> str:
    """The endpoints as they were given, once they make sense."""
    try:
        parse_endpoints(text)
    except InvalidRequest as error:
        raise _refuse(name, text, str(error)) from error
    return text


def _lsn(name: str, text: str) -> AtLsn:
    return AtLsn(parse_number(name, text, least=1, most=POSITION_MAX - 1, what="an LSN"))


def _timestamp(name: str, text: str) -> AtTimestamp:
    """ISO 8601 with an offset from UTC, or milliseconds since the Unix epoch."""
    if text.strip().isascii() and text.strip().isdigit():
        most = POSITION_MAX // 1_000_000
        milliseconds = parse_number(name, text, least=0, most=most, what="milliseconds")
        return AtTimestamp(milliseconds * 1_000_000)
    advice = "give 2026-11-21T09:30:00Z, with Z or an offset, or milliseconds since 1970"
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise _refuse(name, text, advice) from None
    if moment.tzinfo is None:
        raise _refuse(name, text, advice)
    since = moment - datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if microseconds < 0:
        raise _refuse(name, text, "give a time after 1970")
    return AtTimestamp(microseconds * 1_000)


def _offsets(name: str, text: str) -> Start:
    match text.strip().lower():
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
    raise _refuse(name, text, "give earliest or latest; startingLsn takes an LSN")


def _bytes(name: str, text: str) -> int:
    """Bytes, with a unit or without."""
    stripped = text.strip()
    try:
        size = int(stripped) if stripped.isdigit() else parse_size(stripped, key=name)
    except ConfigError as error:
        raise ConfigError(f"option {error}") from error
    if not 0 < size <= POSITION_MAX:
        raise _refuse(name, text, "give bytes above 0")
    return size


def _count(name: str, text: str) -> int:
    return parse_number(name, text, least=1, most=POSITION_MAX, what="records")


def _partitions(name: str, text: str) -> int:
    return parse_number(name, text, least=1, most=PARTITIONS_MAX, what="partitions")


def parse_milliseconds(name: str, text: str) -> int:
    return parse_number(name, text, least=1, most=86_400_000, what="milliseconds")


def _replica(name: str, text: str) -> str | int:
    word = text.strip().lower()
    if word in REPLICA_WORDS:
        return word
    if word.isascii() and word.isdigit() and int(word) > 0:
        return int(word)
    raise _refuse(name, text, f"give {', '.join(REPLICA_WORDS)} or a node id")


# --- names ---

_Parser = Callable[[str, str], Any]
_BOTH: dict[str, _Parser] = {
    "endpoints": parse_endpoint_list,
    "replica": _replica,
    "startingLsn": _lsn,
    "startingTimestamp": _timestamp,
    "startingOffsets": _offsets,
    "minPartitions": _partitions,
    "maxRecordsPerPartition": _count,
    "includePayload": parse_bool,
    "failOnDataLoss": parse_bool,
    "fetchTimeoutMs": parse_milliseconds,
}
_BATCH: dict[str, _Parser] = {"endingLsn": _lsn, "endingTimestamp": _timestamp}
_STREAM: dict[str, _Parser] = {
    "maxRecordsPerTrigger": _count,
    "maxBytesPerTrigger": _bytes,
    "wholeBatches": parse_bool,
}
_EXCLUSIVE = (
    ("startingLsn", "startingTimestamp", "startingOffsets"),
    ("endingLsn", "endingTimestamp"),
    ("maxRecordsPerTrigger", "maxBytesPerTrigger"),
)


def parse_known(
    given: Mapping[str, str], known: Mapping[str, _Parser], others: Mapping[str, str]
) -> dict[str, Any]:
    """The values of the options given, by their proper names.

    Args:
      given: what the user wrote, names in any case.
      known: proper name to parser.
      others: names that belong elsewhere, and where.

    Raises:
      ConfigError: an unknown name, one that belongs elsewhere, or a bad value.
    """
    proper = {name.lower(): name for name in known}
    elsewhere = {name.lower(): (name, where) for name, where in others.items()}
    found: dict[str, Any] = {}
    for key, text in given.items():
        name = proper.get(key.lower())
        if name is not None:
            found[name] = known[name](name, text)
        elif key.lower() in elsewhere:
            other, where = elsewhere[key.lower()]
            raise ConfigError(f"option {other} is for {where}")
        else:
            near = difflib.get_close_matches(key.lower(), proper, n=1)
            hint = f"; did you mean {proper[near[0]]}?" if near else ""
            raise ConfigError(f"unknown option {key!r}{hint}; known are {', '.join(known)}")
    if "endpoints" not in found:
        raise ConfigError("option endpoints is missing: give HOST:PORT[,HOST:PORT…] of replicas")
    return found


def parse_read_options(given: Mapping[str, str], *, is_streaming: bool) -> ReadOptions:
    """The settings of a batch read or of a stream.

    Raises:
      ConfigError: an option is unknown, has a bad value, or contradicts another; names it.
    """
    if is_streaming:
        known, others = _BOTH | _STREAM, dict.fromkeys(_BATCH, "batch reads; a stream has no end")
    else:
        known, others = _BOTH | _BATCH, dict.fromkeys(_STREAM, "streams (readStream)")
    found = parse_known(given, known, others)
    _check_exclusive(found)
    start = _start(found, Latest() if is_streaming else Earliest())
    if isinstance(start, Latest) and not is_streaming:
        raise ConfigError("option startingOffsets: a batch read from latest on is empty")
    end = found.get("endingLsn") or found.get("endingTimestamp")
    if isinstance(start, AtLsn) and isinstance(end, AtLsn) and start.lsn > end.lsn:
        raise ConfigError(
            f"option startingLsn: {start.lsn} is above endingLsn {end.lsn}: both are included, so "
            "give a start that is not above the end"
        )
    if (
        isinstance(start, AtTimestamp)
        and isinstance(end, AtTimestamp)
        and start.timestamp_ns > end.timestamp_ns
    ):
        raise ConfigError("option startingTimestamp is above endingTimestamp: exchange them")
    return ReadOptions(
        endpoints=found["endpoints"],
        replica=found.get("replica", "any"),
        start=start,
        end=end,
        max_records_per_trigger=found.get("maxRecordsPerTrigger"),
        max_bytes_per_trigger=found.get("maxBytesPerTrigger"),
        min_partitions=found.get("minPartitions", 1),
        max_records_per_partition=found.get("maxRecordsPerPartition"),
        has_payload=found.get("includePayload", True),
        fails_on_data_loss=found.get("failOnDataLoss", True),
        fetch_timeout_ms=found.get("fetchTimeoutMs", FETCH_TIMEOUT_MS),
        whole_batches=found.get("wholeBatches", False),
    )


def _check_exclusive(found: Mapping[str, Any]) -> None:
    for names in _EXCLUSIVE:
        both = [name for name in names if name in found]
        if len(both) > 1:
            raise ConfigError(f"options {' and '.join(both)} contradict each other: give one")


def _start(found: Mapping[str, Any], default: Start) -> Start:
    for name in _EXCLUSIVE[0]:
        if name in found:
            start: Start = found[name]
            return start
    return default


def check_read_names(given: Mapping[str, str]) -> bool:
    """Check what a batch read or a stream may have, before it is known which one this is; whether
    there is a payload column.

    Raises:
      ConfigError: an option is unknown, has a bad value, or contradicts another.
    """
    found = parse_known(given, _BOTH | _BATCH | _STREAM, {})
    _check_exclusive(found)
    return bool(found.get("includePayload", True))
