"""Liveness from headers alone (SAFETY S7, S10)."""

from __future__ import annotations

from logstore.format.segment_header import FileRole, SegmentHeader
from logstore.model import Index, Lsn, Term
from logstore.storage.segment_map import OPEN_END, SegmentMap


def header(number: int, first: int, *, before: tuple[int, int] = (0, 0)) -> SegmentHeader:
    return SegmentHeader(
        role=FileRole.RAFT, number=number, log_epoch=0, cluster_id=bytes(16),
        replica_uuid=bytes(16), segment_uuid=bytes(16), first_index=Index(first), first_lsn=Lsn(1),
        base_term=Term(0), base_chain=0, base_timestamp_ns=0, base_cumulative_bytes=0,
        previous_number=before[0], previous_first_index=Index(before[1]),
    )  # fmt: skip


def ranges(*headers: SegmentHeader, start: int = 0) -> list[tuple[int, int, int]]:
    found = SegmentMap.of(headers, start_index=Index(start))
    return [
        (s.number, s.first_index, -1 if s.end_index == OPEN_END else s.end_index)
        for s in found.segments
    ]


def test_a_roll_seals_the_segment_before_it() -> None:
    assert ranges(header(1, 1), header(2, 5, before=(1, 1))) == [(1, 1, 5), (2, 5, -1)]


def test_a_truncation_clips_and_kills_what_came_before_it() -> None:
    one, two = header(1, 1), header(2, 5, before=(1, 1))
    assert ranges(one, two, header(3, 3, before=(1, 1))) == [(1, 1, 3), (3, 3, -1)]
    assert ranges(one, two, header(3, 5, before=(1, 1))) == [(1, 1, 5), (3, 5, -1)]
    assert ranges(one, two, header(3, 7, before=(2, 5))) == [(1, 1, 5), (2, 5, 7), (3, 7, -1)]
    assert ranges(one, two, header(3, 1)) == [(3, 1, -1)]


def test_a_missing_segment_that_a_header_names_is_in_the_map() -> None:
    assert ranges(header(1, 1), header(4, 9, before=(3, 5))) == [(1, 1, 5), (3, 5, 9), (4, 9, -1)]


def test_what_is_missing_below_every_segment_is_in_the_map() -> None:
    assert ranges(header(4, 9, before=(3, 5))) == [(0, 1, 5), (3, 5, 9), (4, 9, -1)]


def test_segments_below_the_log_start_are_not() -> None:
    headers = (header(1, 1), header(2, 5, before=(1, 1)), header(3, 9, before=(2, 5)))
    assert ranges(*headers, start=4) == [(2, 5, 9), (3, 9, -1)]
    assert ranges(*headers[1:], start=6) == [(2, 5, 9), (3, 9, -1)]


def test_an_index_lies_in_the_last_segment_that_begins_at_or_below_it() -> None:
    found = SegmentMap.of([header(1, 1), header(2, 5, before=(1, 1))], start_index=Index(0))
    numbers = [segment.number if segment else None for segment in map(found.find, range(7))]
    assert numbers == [None, 1, 1, 1, 1, 2, 2]
