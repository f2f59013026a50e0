"""What a replica remembers of the starts of others, and what it learns of its own (SAFETY L7)."""

from __future__ import annotations

from random import Random

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import FormatError, UnsupportedVersion
from logstore.format.fields import seal
from logstore.format.peer_starts import (
    PEER_STARTS_SIZE,
    PeerStart,
    pack_peer_starts,
    unpack_peer_starts,
)
from logstore.limits import PEER_STARTS_MAX, SECTOR_BYTES
from logstore.raft.seen_starts import PeerStarts, is_forgotten
from logstore.storage.peer_starts_file import PEER_STARTS_NAME, PeerStartsFile

FOLDER = "/data"
PATH = f"{FOLDER}/{PEER_STARTS_NAME}"
A, B = b"a" * 16, b"b" * 16
OWN = PeerStart(A, 5, 111)


# --- the rule ---


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (PeerStart(A, 6, 222), True),  # a later start: this folder is of before
        (PeerStart(A, 9, 0), True),
        (PeerStart(A, 5, 222), True),  # the folder was put back, and started a second time
        (PeerStart(A, 5, 111), False),  # this very start
        (PeerStart(A, 4, 222), False),  # late word of an earlier start
        (PeerStart(A, 4, 111), False),
        (PeerStart(A, 5, 0), False),  # a nonce that is not known is no evidence
        (PeerStart(B, 9, 222), False),  # of before a reset: another replica
    ],
)
def test_a_replica_has_forgotten_a_start_that_its_folder_does_not_know(
    seen: PeerStart, expected: bool
) -> None:
    """SAFETY L7."""
    assert is_forgotten(seen, OWN) is expected


def test_without_a_nonce_of_its_own_only_a_later_start_counts() -> None:
    own = PeerStart(A, 5, 0)
    assert not is_forgotten(PeerStart(A, 5, 111), own)
    assert is_forgotten(PeerStart(A, 6, 111), own)


def test_the_highest_boot_counts_and_of_one_boot_the_first_start_seen() -> None:
    starts = PeerStarts([PeerStart(A, 3, 30)])
    assert not starts.learn(PeerStart(A, 3, 30))
    assert not starts.learn(PeerStart(A, 3, 31))
    assert not starts.learn(PeerStart(A, 2, 20))
    assert starts.seen(A) == PeerStart(A, 3, 30)
    assert starts.learn(PeerStart(A, 4, 40))
    assert starts.learn(PeerStart(B, 1, 10))
    assert starts.rows == (PeerStart(A, 4, 40), PeerStart(B, 1, 10))
    assert starts.seen(bytes(16)) is None


def test_of_too_many_replicas_those_heard_of_last_are_remembered() -> None:
    starts = PeerStarts([])
    uuids = [bytes([number]) * 16 for number in range(PEER_STARTS_MAX + 2)]
    for uuid in uuids:
        starts.learn(PeerStart(uuid, 1, 1))
    starts.learn(PeerStart(uuids[2], 2, 2))
    starts.learn(PeerStart(A, 1, 1))
    assert len(starts.rows) == PEER_STARTS_MAX
    assert [row.replica_uuid for row in starts.rows] == [*uuids[4:], uuids[2], A]


# --- the bytes ---


def test_an_image_holds_as_many_starts_as_there_can_be() -> None:
    rows = tuple(PeerStart(bytes([n]) * 16, n, n) for n in range(1, PEER_STARTS_MAX + 1))
    image = pack_peer_starts(rows, 7)
    assert len(image) == PEER_STARTS_SIZE
    assert unpack_peer_starts(image) == (7, rows)


@pytest.mark.parametrize(("at", "byte"), [(4, 2), (6, PEER_STARTS_MAX + 1), (900, 1)])
def test_other_bytes_are_refused(at: int, byte: int) -> None:
    image = bytearray(pack_peer_starts([OWN], 1)[:-4])
    image[at] = byte
    with pytest.raises(UnsupportedVersion if at == 4 else FormatError):
        unpack_peer_starts(seal(bytes(image), b""))


# --- the file ---


def opened(disk: SimulatedDisk) -> PeerStartsFile:
    return PeerStartsFile(disk, FOLDER)


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    return disk


def test_what_was_saved_is_there_after_a_power_cut(disk: SimulatedDisk) -> None:
    first = opened(disk)
    assert first.load() == ()
    assert first.save([OWN])
    assert first.save([OWN, PeerStart(B, 2, 3)])
    disk.power_cut(Random(1), garble=False)
    second = opened(disk)
    assert second.load() == (OWN, PeerStart(B, 2, 3))
    assert second.save([PeerStart(B, 3, 4)])
    assert opened(disk).load() == (PeerStart(B, 3, 4),)


@pytest.mark.parametrize("saves", [1, 2, 3])
def test_a_torn_write_leaves_what_was_saved_before(disk: SimulatedDisk, saves: int) -> None:
    file = opened(disk)
    for boot in range(1, saves + 1):
        file.save([PeerStart(A, boot, boot)])
    sector = (saves - 1) % 2 * PEER_STARTS_SIZE // SECTOR_BYTES
    disk.damage(PATH, sector, b"\xff")
    found = opened(disk)
    assert found.load() == ((PeerStart(A, saves - 1, saves - 1),) if saves > 1 else ())
    assert found.save([PeerStart(B, 1, 1)])
    assert opened(disk).load() == (PeerStart(B, 1, 1),)


def test_a_full_disk_keeps_nothing_and_ends_nothing(disk: SimulatedDisk) -> None:
    disk.fill()
    file = opened(disk)
    assert not file.save([OWN])
    disk.free_space()
    assert file.save([OWN])
    assert opened(disk).load() == (OWN,)
