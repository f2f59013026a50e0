"""Sectors of a simulated file as data, and those that a flush under way was given.

Owns their bytes while they are between the page cache and the medium. Must not know which file.
"""

from __future__ import annotations

from collections.abc import Iterator

from logstore.limits import SECTOR_BYTES

ZERO_SECTOR = bytes(SECTOR_BYTES)
Sectors = dict[int, bytes]  # sector number -> its bytes; an absent sector reads as zeros


class Landing:
    """What one flush was given when it began. Compared by identity."""

    __slots__ = ("newest", "older", "sizes")

    def __init__(self) -> None:
        self.newest: Sectors = {}
        self.older: dict[int, list[bytes]] = {}  # what `newest` replaced since the flush before
        self.sizes: list[int] = []

    def versions(self) -> Iterator[tuple[int, list[bytes]]]:
        """Each sector with its versions, oldest first."""
        for number, newest in self.newest.items():
            yield number, [*self.older.get(number, ()), newest]

    def versions_of(self, number: int) -> list[bytes]:
        if number not in self.newest:
            return []
        return [*self.older.get(number, ()), self.newest[number]]

    def forget(self, number: int) -> None:
        self.newest.pop(number, None)
        self.older.pop(number, None)


def cut_sectors(sectors: Sectors, size: int) -> None:
    """Drop what lies at or beyond byte `size`."""
    for number in [n for n in sectors if (n + 1) * SECTOR_BYTES > size]:
        inside = size - number * SECTOR_BYTES
        if inside <= 0:
            del sectors[number]
        else:
            sectors[number] = sectors[number][:inside].ljust(SECTOR_BYTES, b"\0")
