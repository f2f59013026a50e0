"""The file `peers`: which starts of other replicas this one has seen (SAFETY L7).

Owns the file and its two places, written in turn, so that a torn write leaves the older one. Must
not know what follows from a start. Nothing promised rests on this file: what cannot be read counts
as nothing seen, older versions do not look at it, and without space for it nothing is kept.

Invariant: after `save` returned True, what it saved is durable.
"""

from __future__ import annotations

import os.path
from collections.abc import Sequence

from logstore.errors import CorruptData, DiskFull, FormatError
from logstore.format.peer_starts import (
    PEER_STARTS_SIZE,
    PeerStart,
    pack_peer_starts,
    unpack_peer_starts,
)
from logstore.storage.disk import Disk

PEER_STARTS_NAME = "peers"
_PLACES = (0, PEER_STARTS_SIZE)
_FILE_SIZE = len(_PLACES) * PEER_STARTS_SIZE


class PeerStartsFile:
    """The file of one data folder. One caller at a time."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._path = os.path.join(folder, PEER_STARTS_NAME)
        self._generation = 0
        self._place = len(_PLACES) - 1  # of the newer image

    def load(self) -> tuple[PeerStart, ...]:
        """What is known; nothing where there is no file, or none that can be read."""
        found: tuple[PeerStart, ...] = ()
        try:
            handle = self._disk.open_read(self._path)
        except FileNotFoundError:
            return found
        try:
            self._disk.drop_cache(handle)  # after a failed flush it is not what the disk holds (F5)
            for place, offset in enumerate(_PLACES):
                image = self._image(handle, offset)
                if image is not None and image[0] > self._generation:
                    self._generation, found = image
                    self._place = place
        finally:
            self._disk.close(handle)
        return found

    def save(self, starts: Sequence[PeerStart]) -> bool:
        """Make these durable, in the place of the older image; False: there is no space.

        Raises:
          WriteFailed: a write or flush failed; the incarnation ends (F5).
        """
        try:
            handle = self._open()
        except DiskFull:
            return False
        place = (self._place + 1) % len(_PLACES)
        try:
            image = pack_peer_starts(starts, self._generation + 1)
            self._disk.write(handle, _PLACES[place], [image])
            self._disk.flush(handle)
        finally:
            self._disk.close(handle)
        self._generation, self._place = self._generation + 1, place
        return True

    def _image(self, handle: int, offset: int) -> tuple[int, tuple[PeerStart, ...]] | None:
        try:
            return unpack_peer_starts(self._disk.read(handle, offset, PEER_STARTS_SIZE))
        except (FormatError, CorruptData):
            return None

    def _open(self) -> int:
        """The file with all of its space, created where there is none."""
        try:
            handle = self._disk.open_write(self._path)
        except FileNotFoundError:
            handle = self._disk.create(self._path)
            self._disk.sync_folder(self._folder)
        try:
            if self._disk.size(handle) < _FILE_SIZE:
                self._disk.allocate(handle, _FILE_SIZE)
        except DiskFull:
            self._disk.close(handle)
            raise
        return handle
