"""A lake's manifest: its bytes, its chain, and every damage that it shows."""

from __future__ import annotations

import msgspec
import pytest

from logstore.errors import CorruptData, InvariantViolated
from logstore.spark.lake_manifest import (
    LakeFile,
    Manifest,
    decode_manifest,
    encode_manifest,
    first_lsn_of,
)

CLUSTER = "0f" * 16


def file(
    first: int, last: int, digest: str = "ab" * 32, file_digest: str | None = "cd" * 32
) -> LakeFile:
    return LakeFile(
        first_lsn=first, last_lsn=last, batches=1, payloads=last - first + 1, payload_bytes=10,
        batch_bytes=72, file_bytes=99, first_timestamp_us=5, last_timestamp_us=6,
        cluster_id=CLUSTER, digest=digest, file_digest=file_digest or msgspec.UNSET,
    )  # fmt: skip


def manifest(*ranges: tuple[int, int], first_lsn: int = 7) -> Manifest:
    empty = Manifest(cluster_id=CLUSTER, first_lsn=first_lsn)
    return empty.with_files(file(*each) for each in ranges)


OLD_CHAIN = b"dcffc34f3e437d3b55c58358b0391c8c2e00fc56013669a76deb096f27891e47"
OLD_LINE = (
    b'{"first_lsn":7,"last_lsn":10,"batches":1,"payloads":4,"payload_bytes":10,"batch_bytes":72,'
    b'"file_bytes":99,"first_timestamp_us":5,"last_timestamp_us":6,'
    b'"cluster_id":"0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f","digest":"DIGEST","chain":"CHAIN"}\n'
).replace(b"CHAIN", OLD_CHAIN)
NEW_CHAIN = b"a41f26c73f875d1e35f17dc40ddad4914e5d85d780c88e4b2240296a320da755"
NEW_LINE = OLD_LINE.replace(b',"chain"', b',"file_digest":"FILE","chain"')
HEAD = (
    b'{"lake":2,"cluster_id":"0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f","first_lsn":7,"next_lsn":11,'
    b'"files":1,"chain":"CHAIN"}\n'
)


def golden(chain: bytes, line: bytes, version: bytes = b"2") -> bytes:
    head = HEAD.replace(b'"lake":2', b'"lake":' + version).replace(b"CHAIN", chain)
    found = head + line.replace(OLD_CHAIN, chain)
    return found.replace(b"DIGEST", b"ab" * 32).replace(b"FILE", b"cd" * 32)


def old_manifest() -> Manifest:
    """As version 1 has left it."""
    empty = Manifest(cluster_id=CLUSTER, first_lsn=7)
    return empty.with_files([file(7, 10, file_digest=None)])


def test_a_manifest_has_these_bytes() -> None:
    assert encode_manifest(manifest((7, 10))) == golden(NEW_CHAIN, NEW_LINE)


def test_a_manifest_of_version_1_is_read_and_keeps_its_lines_when_it_grows() -> None:
    data = golden(OLD_CHAIN, OLD_LINE, b"1")
    found = decode_manifest(data, "m")
    assert found == old_manifest()
    grown = encode_manifest(found.with_files([file(11, 12)]))
    head, old, new = grown.splitlines(keepends=True)
    assert old == data.splitlines(keepends=True)[1]
    assert head.startswith(b'{"lake":2,')
    assert b'"file_digest":"cdcd' in new
    assert decode_manifest(grown, "m") == old_manifest().with_files([file(11, 12)])


def test_version_1_with_a_digest_of_bytes_is_damage() -> None:
    data = encode_manifest(manifest((7, 10))).replace(b'"lake":2', b'"lake":1')
    with pytest.raises(CorruptData, match="expected version 2"):
        decode_manifest(data, "m")


@pytest.mark.parametrize("ranges", [(), ((7, 7),), ((7, 10), (11, 11), (12, 500))])
def test_what_is_encoded_is_decoded(ranges: tuple[tuple[int, int], ...]) -> None:
    made = manifest(*ranges)
    assert decode_manifest(encode_manifest(made), "m") == made
    assert made.next_lsn == (ranges[-1][1] + 1 if ranges else 7)


def compressed(first: int, last: int) -> LakeFile:
    return msgspec.structs.replace(file(first, last), stored_bytes=4)


def test_a_lake_with_compressed_batches_is_of_a_version_that_older_readers_refuse() -> None:
    before = encode_manifest(manifest((7, 10)))
    grown = manifest((7, 10)).with_files([compressed(11, 12)])
    head, first, second = encode_manifest(grown).splitlines(keepends=True)
    assert head.startswith(b'{"lake":3,')
    assert first == before.splitlines(keepends=True)[1]  # what is there stays as it is
    assert b'"payload_bytes":10,"stored_bytes":4,"batch_bytes":72,' in second
    assert decode_manifest(encode_manifest(grown), "m") == grown
    again = grown.with_files([file(13, 14)])
    assert encode_manifest(again).startswith(b'{"lake":3,')
    for version in (b"1", b"2"):
        data = encode_manifest(again).replace(b'"lake":3', b'"lake":' + version)
        with pytest.raises(CorruptData, match="expected version"):
            decode_manifest(data, "m")
    with pytest.raises(CorruptData, match="expected version 2 of a lake, got version 3"):
        decode_manifest(before.replace(b'"lake":2', b'"lake":3'), "m")


def test_every_changed_byte_and_every_cut_is_damage() -> None:
    mixed = old_manifest().with_files([file(11, 12)])
    for made in (mixed, mixed.with_files([compressed(13, 14)])):
        check_every_byte(encode_manifest(made))


def check_every_byte(data: bytes) -> None:
    for place in range(len(data)):
        with pytest.raises(CorruptData):
            decode_manifest(data[:place], "m")
        for bit in (1, 16):
            changed = bytes([data[place] ^ bit])
            with pytest.raises(CorruptData):
                decode_manifest(data[:place] + changed + data[place + 1 :], "m")


def test_the_chain_stands_for_every_file_and_their_order() -> None:
    two = manifest((7, 10), (11, 12))
    bytes_differ = manifest((7, 10)).with_files([file(11, 12, file_digest="ce" * 32)])
    assert manifest((7, 10)).chain == two.files[0].chain
    other = manifest((7, 10)).with_files([file(11, 12, digest="ac" * 32)])
    firsts = {manifest().chain, manifest(first_lsn=8).chain}
    assert len({two.chain, other.chain, bytes_differ.chain} | firsts) == 5


def test_files_that_leave_a_gap_are_no_lake() -> None:
    for ranges in (((8, 9),), ((7, 9), (9, 10)), ((7, 9), (11, 12))):
        with pytest.raises(InvariantViolated):
            manifest(*ranges)
    with pytest.raises(InvariantViolated):
        manifest().with_files([msgspec.structs.replace(file(7, 9), payloads=4)])


def test_a_newer_version_is_refused() -> None:
    data = encode_manifest(manifest((7, 10))).replace(b'"lake":2', b'"lake":3')
    with pytest.raises(CorruptData, match="version 3"):
        decode_manifest(data, "m")


def test_overlapping_gives_the_files_of_a_range() -> None:
    three = manifest((7, 10), (11, 12), (13, 20))
    assert [each.first_lsn for each in three.overlapping(10, 11)] == [7, 11]
    assert [each.first_lsn for each in three.overlapping(13, 13)] == [13]
    assert three.overlapping(21, 30) == three.overlapping(1, 6) == []


def test_names_sort_by_lsn_and_tell_it() -> None:
    files = manifest((7, 10), (11, 12)).files
    assert files[0].name == "0000000000000000007-0000000000000000010.parquet"
    assert [first_lsn_of(each.name) for each in files] == [7, 11]
    assert first_lsn_of("notes.parquet") == first_lsn_of("7-10.parquet") == -1
