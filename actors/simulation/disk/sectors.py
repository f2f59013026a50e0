"""Sectors of a simulated file as data, and those that a flush in flight was given."""

from __future__ import annotations

from collections.abc import Iterator

from logstore.limits import SECTOR_BYTES

ZERO_SECTOR = bytes(SECTOR_BYTES)
Sectors = dict[int, bytes]  # sector number -> its bytes; an absent sector reads as zeros


class Flush:
    """What one flush was given when it began. Compared by identity."""

    __slots__ = ("newest", "replaced", "sizes")

    def __init__(self) -> None:
        self.newest: Sectors = {}
        self.replaced: dict[int, list[bytes]] = {}  # what `newest` replaced since the flush before
        self.sizes: list[int] = []

    def versions(self) -> Iterator[tuple[int, list[bytes]]]:
        """Each sector with its versions, oldest first."""
        for number, newest in self.newest.items():
            yield number, [*self.replaced.get(number, ()), newest]

    def versions_of(self, number: int) -> list[bytes]:
        if number not in self.newest:
            return []
        return [*self.replaced.get(number, ()), self.newest[number]]

    def forget(self, number: int) -> None:
        self.newest.pop(number, None)
        self.replaced.pop(number, None)


def cut_sectors(sectors: Sectors, size: int) -> None:
    """Drop what lies at or beyond byte `size`."""
    for number in [n for n in sectors if (n + 1) * SECTOR_BYTES > size]:
        inside = size - number * SECTOR_BYTES
        if inside <= 0:
            del sectors[number]
        else:
            sectors[number] = sectors[number][:inside].ljust(SECTOR_BYTES, b"\0")
