"""A lake: a folder of Parquet files by ranges of LSNs, and the manifest that says which count.

    LAKE/manifest.jsonl        what the lake has (`lake_manifest`); other files do not count
    LAKE/data/FIRST-LAST.parquet
    LAKE/incoming/             what tasks are writing
    LAKE/lock                  held by the one process that archives

Owns the order of things. A round of an archive is: files written and flushed in `incoming` →
renamed into `data`, its folder flushed → a new manifest, flushed → renamed over the old one, the
folder flushed. So a crash between any two steps leaves the lake as it was or as it is to be, and
files that no manifest names; the next process that archives removes those. A file that the manifest
names is never written again.

The folder must be the same one for the driver and all executors.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import msgspec

from logstore.errors import CorruptData, InvalidRequest
from logstore.spark.lake_manifest import (
    SUFFIX,
    LakeFile,
    Manifest,
    decode_manifest,
    encode_manifest,
    first_lsn_of,
)
from logstore.storage.disk import RealDisk

MANIFEST = "manifest.jsonl"
_NEW_MANIFEST = "manifest.jsonl.new"
_DATA = "data"
_INCOMING = "incoming"


class Written(msgspec.Struct, frozen=True):
    """A file that a task has written and flushed: where it lies, and what it is to be."""

    path: str
    file: LakeFile


def is_lake(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, MANIFEST))


def read_manifest(folder: str) -> Manifest:
    """What the lake in `folder` has now.

    Raises:
      InvalidRequest: there is no lake.
      CorruptData: the manifest is damaged.
    """
    path = os.path.join(folder, MANIFEST)
    try:
        with open(path, "rb") as manifest:
            return decode_manifest(manifest.read(), path)
    except FileNotFoundError:
        raise InvalidRequest(
            f"{folder} has no {MANIFEST}: it is no lake, or its disk is not mounted; "
            "`logstore pipeline archive` makes one"
        ) from None


def data_path(folder: str, file: LakeFile) -> str:
    return os.path.join(folder, _DATA, file.name)


def check_files_are_there(folder: str, files: Iterable[LakeFile]) -> None:
    """That each is there, as long as the manifest says; its bytes are proved where they are read.

    Raises:
      CorruptData: one is not.
    """
    for file in files:
        path = data_path(folder, file)
        try:
            size = os.stat(path).st_size
        except OSError as error:
            got = error.strerror or str(error)
        else:
            if size == file.file_bytes:
                continue
            got = f"{size} bytes"
        raise CorruptData(
            path, 0, expected=f"{file.file_bytes} bytes, as the manifest says",
            got=f"{got}: put it back from a copy of the lake",
            first_lsn=file.first_lsn, last_lsn=file.last_lsn,
        )  # fmt: skip


def make_durable(path: str) -> None:
    """Flush a file that something else has written."""
    disk = RealDisk()
    handle = disk.open_write(path)
    try:
        disk.flush(handle)
    finally:
        disk.close(handle)


class LakeWriter:
    """The one process that adds to a lake; a context manager.

    `manifest`: what is durable; None: the lake is not made yet.
    """

    def __init__(self, folder: str) -> None:
        """Open the lake in `folder`, or make the folder.

        Raises:
          FolderInUse: another process archives into it.
          CorruptData: its manifest is damaged, or gone while its files are there.
        """
        self.folder = os.path.abspath(folder)
        self._disk = RealDisk()
        for name in ("", _DATA, _INCOMING):
            self._disk.make_folder(os.path.join(self.folder, name))
        self._disk.lock_folder(self.folder)
        try:
            self.manifest = self._read()
        except BaseException:
            self.close()
            raise

    @property
    def incoming(self) -> str:
        """Where tasks write, under names of their own."""
        return os.path.join(self.folder, _INCOMING)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever archived into it. Files that no manifest names may be all that
        is left of a lake whose manifest is an older copy."""
        has_files = self.manifest is not None and bool(self.manifest.files)
        return not has_files and not self._disk.list_folder(os.path.join(self.folder, _DATA))

    def close(self) -> None:
        self._disk.unlock_folder(self.folder)

    def __enter__(self) -> LakeWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def make(self, *, cluster_id: str, first_lsn: int) -> Manifest:
        """An empty lake of this cluster's log, from `first_lsn` on; durable."""
        self._disk.sync_folder(os.path.dirname(self.folder))
        return self._publish(Manifest(cluster_id=cluster_id, first_lsn=first_lsn))

    def add(self, manifest: Manifest, written: Sequence[Written]) -> Manifest:
        """`manifest`, which is the lake's, and these files after it; durable."""
        grown = manifest.with_files(each.file for each in written)
        for each in written:
            os.replace(each.path, data_path(self.folder, each.file))
        self._disk.sync_folder(os.path.join(self.folder, _DATA))
        return self._publish(grown)

    def remove_unnamed(self) -> None:
        """What a process left that did not come to its manifest: never what may be older."""
        next_lsn = self.manifest.next_lsn if self.manifest else 0
        for folder, oldest in ((_DATA, next_lsn), (_INCOMING, 0)):
            path = os.path.join(self.folder, folder)
            for name in self._disk.list_folder(path):
                if name.endswith(SUFFIX) and first_lsn_of(name) >= oldest:
                    self._disk.unlink(os.path.join(path, name))

    def _publish(self, manifest: Manifest) -> Manifest:
        new = os.path.join(self.folder, _NEW_MANIFEST)
        self._disk.unlink(new)
        handle = self._disk.create(new)
        try:
            self._disk.write(handle, 0, [encode_manifest(manifest)])
            self._disk.flush(handle)
        finally:
            self._disk.close(handle)
        os.replace(new, os.path.join(self.folder, MANIFEST))
        self._disk.sync_folder(self.folder)
        self.manifest = manifest
        return manifest

    def _read(self) -> Manifest | None:
        if is_lake(self.folder):
            return read_manifest(self.folder)
        if self._disk.list_folder(os.path.join(self.folder, _DATA)):
            path = os.path.join(self.folder, MANIFEST)
            raise CorruptData(path, 0, expected=f"the manifest of the files in {_DATA}", got="none")
        return None
