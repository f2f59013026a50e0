"""Options of the sink: defaults, values, and refusals that name what is wrong. No Spark."""

from __future__ import annotations

import pytest

from logstore.errors import ConfigError
from logstore.spark.write_options import WriteOptions, parse_write_options

AT = {"endpoints": "127.0.0.1:7100"}


def test_a_batch_write_is_atomic_and_has_no_name() -> None:
    assert parse_write_options(AT, is_streaming=False) == WriteOptions(
        endpoints=AT["endpoints"],
        txn_app_id=None,
        txn_version=None,
        is_atomic=True,
        expected_rows=None,
        commit_timeout_ms=60_000,
    )


def test_every_option_has_its_place() -> None:
    given = {"txnappid": "loader", "TXNVERSION": "7", "atomic": "false", "committimeoutms": "500"}
    found = parse_write_options(AT | given, is_streaming=False)
    assert (found.txn_app_id, found.txn_version, found.is_atomic) == ("loader", 7, False)
    assert found.commit_timeout_s == 0.5


def test_what_spark_puts_among_a_streams_options_is_passed_over() -> None:
    given = AT | {"checkpointlocation": "/somewhere", "queryname": "q", "txnAppId": "mine"}
    assert parse_write_options(given, is_streaming=True).txn_app_id == "mine"
    with pytest.raises(ConfigError, match="unknown option 'checkpointlocation'"):
        parse_write_options(given, is_streaming=False)


@pytest.mark.parametrize(
    ("given", "is_streaming", "words"),
    [
        ({"txnVersion": "1"}, True, "option txnVersion is for batch writes; a stream's versions"),
        ({"expectedRows": "1"}, True, "option expectedRows is for batch writes"),
        ({"expectedRows": "all"}, False, "option expectedRows: 'all' is not valid"),
        ({"txnVersion": "1"}, False, "options txnAppId and txnVersion go together"),
        ({"txnAppId": "a"}, False, "options txnAppId and txnVersion go together"),
        ({"txnAppId": ""}, True, "option txnAppId: give 1 to 255 bytes"),
        ({"txnAppId": "ä" * 128}, True, "option txnAppId: give 1 to 255 bytes"),
        ({"txnAppId": "a", "txnVersion": "-1"}, False, "option txnVersion: '-1' is not valid"),
        ({"atomic": "perhaps"}, True, "option atomic: 'perhaps' is not valid: give true or false"),
        ({"commitTimeoutMs": "0"}, True, "option commitTimeoutMs: '0' is not valid"),
        ({"atomik": "true"}, True, "unknown option 'atomik'; did you mean atomic?"),
        ({"startingLsn": "1"}, False, "unknown option 'startingLsn'"),
        ({"endpoints": "nowhere"}, False, "option endpoints: 'nowhere' is not valid"),
    ],
)
def test_bad_options_are_refused_by_name(
    given: dict[str, str], is_streaming: bool, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_write_options(AT | given, is_streaming=is_streaming)
    assert words in str(caught.value)
