"""The demo's comparison sees every way in which a stream can be wrong, and counts it in the right
field.
"""

from __future__ import annotations

import numpy as np
import pytest

from logstore.cli.demo.outcome import Acknowledged, Delivered, Findings, compare, digest, digests_of

BATCHES = [[b"a", b"b"], [b"", b"c\r", b"\xff" * 9], [b"d"], [b"e", b"f", b"g", b"h"]]


def told(rows: list[tuple[int, list[bytes]]]) -> Acknowledged:
    """One producer's acknowledgements: the first LSN and the payloads of each batch."""
    payloads = [payload for _, batch in rows for payload in batch]
    return Acknowledged(
        np.array([first for first, _ in rows], dtype=np.int64),
        np.array([len(batch) for _, batch in rows], dtype=np.int64),
        digests_of(payloads),
    )


def producers() -> list[Acknowledged]:
    """Two producers, interleaved: LSNs 1-2 and 6 of one, 3-5 and 7-10 of the other."""
    return [
        told([(1, BATCHES[0]), (6, BATCHES[2])]),
        told([(3, BATCHES[1]), (7, BATCHES[3])]),
    ]


def rows() -> list[tuple[int, bytes]]:
    """The whole log as a consumer should get it."""
    return list(enumerate((payload for batch in BATCHES for payload in batch), 1))


def delivered(given: list[tuple[int, bytes]]) -> Delivered:
    return Delivered(
        np.array([lsn for lsn, _ in given], dtype=np.int64),
        digests_of([payload for _, payload in given]),
    )


def found_in(given: list[tuple[int, bytes]]) -> Findings:
    return compare(producers(), delivered(given))


def test_a_whole_stream_has_no_findings() -> None:
    assert found_in(rows()) == Findings()
    assert found_in(rows()).is_clean


def test_no_appends_and_an_empty_stream_have_no_findings() -> None:
    assert compare([], delivered([])).is_clean
    assert compare([told([])], delivered([])).is_clean


def test_a_dropped_payload_is_lost_leaves_a_gap_and_tears_its_batch() -> None:
    given = [row for row in rows() if row[0] != 8]
    assert found_in(given) == Findings(lost=1, gaps=1, torn_batches=1)


def test_a_dropped_batch_is_lost_and_leaves_one_gap() -> None:
    given = [row for row in rows() if row[0] not in (3, 4, 5)]
    assert found_in(given) == Findings(lost=3, gaps=1)


def test_a_stream_that_ends_early_is_lost_from_there_on() -> None:
    assert found_in(rows()[:-1]) == Findings(lost=1, gaps=1, torn_batches=1)
    assert found_in([]) == Findings(lost=10, gaps=1)


def test_a_payload_that_comes_twice_is_duplicated() -> None:
    given = rows()
    assert found_in([*given[:4], given[3], *given[4:]]) == Findings(duplicated=1)


def test_a_batch_that_is_stored_twice_is_duplicated() -> None:
    again = [(11, b"a"), (12, b"b")]
    assert found_in([*rows(), *again]) == Findings(duplicated=2)


def test_rows_that_change_places_on_the_way_violate_the_order() -> None:
    given = rows()
    given[3], given[4] = given[4], given[3]
    assert found_in(given) == Findings(order_violations=1)


def test_payloads_that_change_places_in_the_log_violate_the_order() -> None:
    given = rows()
    given[1], given[5] = (2, b"d"), (6, b"b")
    assert found_in(given) == Findings(order_violations=2, torn_batches=1)


def test_a_torn_batch_is_counted_once() -> None:
    given = [row for row in rows() if row[0] not in (9, 10)]
    assert found_in(given) == Findings(lost=2, gaps=1, torn_batches=1)


@pytest.mark.parametrize("altered", [b"C\r", b"c", b"c\r\n", b"", b"\xff" * 9 + b"\x00"])
def test_an_altered_payload_is_lost_and_tears_its_batch(altered: bytes) -> None:
    given = [(lsn, altered if lsn == 4 else payload) for lsn, payload in rows()]
    found = found_in(given)
    assert found == Findings(lost=1, torn_batches=1)


def test_a_payload_altered_alone_in_its_batch_is_lost() -> None:
    given = [(lsn, b"D" if lsn == 6 else payload) for lsn, payload in rows()]
    assert found_in(given) == Findings(lost=1)


def test_two_appends_that_were_told_the_same_lsn_lose_one_of_them() -> None:
    both = [told([(1, [b"a"])]), told([(1, [b"a"])])]
    assert compare(both, delivered([(1, b"a")])) == Findings(lost=1)


def test_a_producer_whose_appends_changed_places_violates_the_order() -> None:
    swapped = [told([(2, [b"first"]), (1, [b"second"])])]
    given = [(1, b"second"), (2, b"first")]
    assert compare(swapped, delivered(given)) == Findings(order_violations=1)


def test_findings_of_several_consumers_add_up() -> None:
    assert Findings(lost=1, gaps=2) + Findings(lost=3, torn_batches=4) == Findings(
        lost=4, gaps=2, torn_batches=4
    )


def test_digests_tell_payloads_apart_and_fit_64_bits() -> None:
    payloads = [b"", b"\0", b"\0\0", b"a", b"a\r", b"a\n"]
    found = [digest(payload) for payload in payloads]
    assert len(set(found)) == len(found)
    assert all(0 <= value < 1 << 64 for value in found)
