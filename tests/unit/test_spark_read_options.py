"""Options of the source: defaults, values, and refusals that name what is wrong. No Spark."""

from __future__ import annotations

import pytest

from logstore.errors import ConfigError
from logstore.spark.read_options import (
    AtLsn,
    AtTimestamp,
    Earliest,
    Latest,
    ReadOptions,
    check_read_names,
    parse_read_options,
)

AT = {"endpoints": "127.0.0.1:7100,127.0.0.1:7200"}


def batch(**given: str) -> ReadOptions:
    return parse_read_options(AT | given, is_streaming=False)


def stream(**given: str) -> ReadOptions:
    return parse_read_options(AT | given, is_streaming=True)


def test_a_batch_read_begins_at_the_start_and_a_stream_with_what_comes_next() -> None:
    assert batch() == ReadOptions(
        endpoints=AT["endpoints"],
        replica="any",
        start=Earliest(),
        end=None,
        max_records_per_trigger=None,
        max_bytes_per_trigger=None,
        min_partitions=1,
        max_records_per_partition=None,
        has_payload=True,
        fails_on_data_loss=True,
        fetch_timeout_ms=30_000,
        whole_batches=False,
    )
    assert stream().start == Latest()


def test_names_are_known_in_any_case_as_spark_lowers_them() -> None:
    found = batch(startinglsn="3", ENDINGLSN="9", minPARTITIONS="4", failondataloss="FALSE")
    assert (found.start, found.end, found.min_partitions) == (AtLsn(3), AtLsn(9), 4)
    assert not found.fails_on_data_loss


@pytest.mark.parametrize(
    ("text", "timestamp_ns"),
    [
        ("2026-11-21T09:30:00Z", 1_795_253_400_000_000_000),
        ("2026-11-21T10:30:00.000001+01:00", 1_795_253_400_000_001_000),
        ("1795253400123", 1_795_253_400_123_000_000),
        ("0", 0),
    ],
)
def test_times_are_iso_8601_with_an_offset_or_milliseconds(text: str, timestamp_ns: int) -> None:
    assert batch(startingTimestamp=text).start == AtTimestamp(timestamp_ns)
    assert batch(endingTimestamp=text).end == AtTimestamp(timestamp_ns)


def test_every_option_of_a_stream_has_its_place() -> None:
    found = stream(
        startingOffsets="Earliest",
        maxRecordsPerTrigger="500",
        wholeBatches="true",
        replica="2",
        includePayload="false",
        fetchTimeoutMs="2500",
        maxRecordsPerPartition="10",
    )
    assert found.start == Earliest()
    assert (found.max_records_per_trigger, found.max_records_per_partition) == (500, 10)
    assert found.whole_batches
    assert not found.has_payload
    assert found.replica == 2
    assert found.fetch_timeout_s == 2.5
    assert stream(maxBytesPerTrigger="4096").max_bytes_per_trigger == 4_096
    assert stream(maxBytesPerTrigger="64 MiB").max_bytes_per_trigger == 64 << 20


@pytest.mark.parametrize(
    ("name", "text", "advice"),
    [
        ("startingLsn", "0", "give an LSN, 1 to"),
        ("startingLsn", "-5", "give an LSN"),
        ("startingLsn", "9223372036854775807", "give an LSN"),
        ("startingLsn", "1.5", "give an LSN"),
        ("endingLsn", "last", "give an LSN"),
        ("startingTimestamp", "yesterday", "give 2026-11-21T09:30:00Z"),
        ("startingTimestamp", "2026-11-21T09:30:00", "with Z or an offset"),
        ("endingTimestamp", "1969-12-31T00:00:00Z", "after 1970"),
        ("startingOffsets", "17", "give earliest or latest"),
        ("replica", "nearest", "give any, leader, follower or a node id"),
        ("replica", "0", "a node id"),
        ("minPartitions", "0", "give partitions, 1 to 10000"),
        ("maxRecordsPerPartition", "many", "give records"),
        ("includePayload", "yes", "give true or false"),
        ("failOnDataLoss", "", "give true or false"),
        ("fetchTimeoutMs", "30s", "give milliseconds"),
        ("endpoints", "127.0.0.1", "give HOST:PORT"),
    ],
)
def test_a_bad_value_is_refused_with_option_value_and_advice(
    name: str, text: str, advice: str
) -> None:
    with pytest.raises(ConfigError, match=f"^option {name}: ") as caught:
        batch(**{name: text})
    assert repr(text) in str(caught.value)
    assert advice in str(caught.value)
    with pytest.raises(ConfigError, match=f"^option {name}: "):
        check_read_names(AT | {name: text})


@pytest.mark.parametrize("text", ["0", "64 parsecs", "-1"])
def test_a_bad_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="^option maxBytesPerTrigger"):
        stream(maxBytesPerTrigger=text)


def test_an_unknown_option_is_refused_with_the_nearest_that_is_known() -> None:
    with pytest.raises(ConfigError, match="unknown option 'startinglns'; did you mean startingLsn"):
        batch(startinglns="1")
    with pytest.raises(ConfigError, match="unknown option 'zzz'; known are endpoints, replica"):
        stream(zzz="1")
    with pytest.raises(ConfigError, match="unknown option 'path'"):
        check_read_names(AT | {"path": "somewhere"})


def test_what_belongs_elsewhere_is_refused_with_where() -> None:
    with pytest.raises(ConfigError, match="option endingLsn is for batch reads"):
        stream(endingLsn="5")
    with pytest.raises(ConfigError, match="option maxRecordsPerTrigger is for streams"):
        batch(maxrecordspertrigger="5")
    with pytest.raises(ConfigError, match="startingOffsets: a batch read from latest on is empty"):
        batch(startingOffsets="latest")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingLsn": "1", "startingOffsets": "earliest"}, "startingLsn and startingOffsets"),
        ({"endingLsn": "1", "endingTimestamp": "5"}, "endingLsn and endingTimestamp"),
        ({"startingLsn": "9", "endingLsn": "8"}, "startingLsn: 9 is above endingLsn 8"),
        ({"startingTimestamp": "9", "endingTimestamp": "8"}, "above endingTimestamp"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        batch(**given)


def test_a_stream_takes_one_limit_a_trigger() -> None:
    with pytest.raises(ConfigError, match="maxRecordsPerTrigger and maxBytesPerTrigger"):
        stream(maxRecordsPerTrigger="1", maxBytesPerTrigger="1")


def test_endpoints_are_needed() -> None:
    with pytest.raises(ConfigError, match="option endpoints is missing: give HOST:PORT"):
        parse_read_options({}, is_streaming=False)


def test_names_are_checked_before_it_is_known_what_is_read() -> None:
    assert check_read_names(AT | {"endingLsn": "4"})
    assert not check_read_names(AT | {"maxrecordspertrigger": "4", "includepayload": "false"})
    with pytest.raises(ConfigError, match="startingLsn and startingOffsets contradict"):
        check_read_names(AT | {"startingLsn": "4", "startingOffsets": "latest"})
