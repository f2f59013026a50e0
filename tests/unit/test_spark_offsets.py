"""A stream's offsets as the checkpoint keeps them. No Spark."""

from __future__ import annotations

import json

import pytest

from logstore.errors import FormatError, InvalidRequest
from logstore.spark.offsets import Offset, first_offset, parse_offset
from logstore.spark.read_options import AtLsn, AtTimestamp, Earliest, Latest, Start

CLUSTER = "0a" * 16


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (AtLsn(17), '{"cluster": "%s", "lsn": 17}'),
        (Earliest(), '{"cluster": "%s", "lsn": 0}'),
        (Latest(), '{"cluster": "%s", "lsn": -1}'),
        (AtTimestamp(5), '{"cluster": "%s", "lsn": -2, "timestampNs": 5}'),
    ],
)
def test_a_first_offset_is_the_same_text_each_time(start: Start, text: str) -> None:
    offset = first_offset(start, CLUSTER)
    assert json.dumps(offset.as_json()) == text % CLUSTER
    assert parse_offset(json.loads(json.dumps(offset.as_json())), CLUSTER) == offset


def test_lsns_beyond_a_double_keep_their_digits() -> None:
    offset = Offset(CLUSTER, (1 << 62) + 1)
    assert parse_offset(json.loads(json.dumps(offset.as_json())), CLUSTER) == offset


def test_an_offset_of_another_cluster_is_refused_with_both() -> None:
    other = "0b" * 16
    with pytest.raises(InvalidRequest, match=f"belongs to cluster {other}, the endpoints to") as e:
        parse_offset({"cluster": other, "lsn": 4}, CLUSTER)
    assert "a new checkpointLocation" in str(e.value)


@pytest.mark.parametrize(
    "found", [{}, {"lsn": 4}, {"lsn": "4", "cluster": CLUSTER}, {"topic": {"0": 1}}]
)
def test_what_another_source_has_left_is_refused(found: dict[str, object]) -> None:
    with pytest.raises(FormatError, match="a new checkpointLocation"):
        parse_offset(found, CLUSTER)
