"""A lake's manifest: which files there are, of which LSNs, and a chain over them all.

Pure: bytes in, values out. Lines of JSON, the first one the head, then a file each:

    {"lake":2,"cluster_id":"0a…","first_lsn":1,"next_lsn":5001,"files":1,"chain":"e7…"}
    {"first_lsn":1,"last_lsn":5000,…,"digest":"91…","file_digest":"3c…","chain":"e7…"}

The chain is BLAKE2b, 32 bytes, in hexadecimal: before the first file of the cluster id's bytes and
`first_lsn` in decimal; then of the chain before, followed by the file's own line with an empty
`chain`. So the last chain, which the head repeats, stands for every line, and for every byte of the
files through their digests.

Version 1 had no `file_digest`: it named a digest of the batches alone. A lake that began with it
keeps those lines as they are, so that its chain stays; the first files that are added make it a
lake of version 2. A lake with compressed batches is of version 3, which an older reader refuses; a
file that has some says by `stored_bytes` how many bytes their payloads take in the log.

Invariants: files follow each other without gap, and whole batches lie in one file.

A file's line has about 600 bytes, and the manifest is written anew for each round of an archive:
with files of 128 MiB, 1 TiB of log is 5 MB of manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Annotated, Any

import msgspec

from logstore.errors import CorruptData, InvariantViolated

VERSION = 2
# Without `file_digest`.
OLD_VERSION = 1
# With compressed batches.
COMPRESSED_VERSION = 3
SUFFIX = ".parquet"

ClusterId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class LakeFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One Parquet file.

    Attributes:
      cluster_id: in hexadecimal, whose `raft_index`, `term` and `timestamp` the rows have.
      batches, payloads: how many.
      payload_bytes: of the payloads alone.
      stored_bytes: of the payloads as the log stores them; unset: none are compressed.
      batch_bytes: of the whole batches, as the log stores them.
      file_bytes: of the file.
      first_timestamp_us, last_timestamp_us: when the leader accepted the first and the last one.
      digest: of the batches, as `logstore.BatchDigest` has it.
      file_digest: of the file's bytes, BLAKE2b, 32 bytes; unset: version 1 has written the file.
      chain: over this and all files before it.
    """

    first_lsn: int
    last_lsn: int
    batches: int
    payloads: int
    payload_bytes: int
    stored_bytes: int | msgspec.UnsetType = msgspec.UNSET
    batch_bytes: int
    file_bytes: int
    first_timestamp_us: int
    last_timestamp_us: int
    cluster_id: ClusterId
    digest: Digest
    file_digest: Digest | msgspec.UnsetType = msgspec.UNSET
    chain: Digest = ""

    @property
    def name(self) -> str:
        return f"{self.first_lsn:019d}-{self.last_lsn:019d}{SUFFIX}"

    def after(self, chain: str) -> LakeFile:
        """The same, with its chain after a file whose chain is given."""
        line = msgspec.json.encode(msgspec.structs.replace(self, chain=""))
        linked = blake2b(bytes.fromhex(chain) + line, digest_size=32).hexdigest()
        return msgspec.structs.replace(self, chain=linked)


def first_lsn_of(name: str) -> int:
    """Of a file by its name; -1: it is none of a lake's."""
    first = name.partition("-")[0]
    return int(first) if len(first) == 19 and first.isascii() and first.isdigit() else -1


class _Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    lake: int
    cluster_id: ClusterId
    first_lsn: int
    next_lsn: int
    files: int
    chain: Digest


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a lake has: LSNs [first_lsn, next_lsn), none if they are equal.

    `cluster_id`: in hexadecimal, of the cluster that was archived first.
    """

    cluster_id: str
    first_lsn: int
    files: tuple[LakeFile, ...] = ()

    @property
    def next_lsn(self) -> int:
        return self.files[-1].last_lsn + 1 if self.files else self.first_lsn

    @property
    def chain(self) -> str:
        return self.files[-1].chain if self.files else self.first_chain

    @property
    def first_chain(self) -> str:
        """Before any file."""
        start = bytes.fromhex(self.cluster_id) + b"%d" % self.first_lsn
        return blake2b(start, digest_size=32).hexdigest()

    @property
    def newest_cluster_id(self) -> str:
        """Of the cluster that the newest file is from."""
        return self.files[-1].cluster_id if self.files else self.cluster_id

    @property
    def payloads(self) -> int:
        return sum(file.payloads for file in self.files)

    @property
    def batch_bytes(self) -> int:
        return sum(file.batch_bytes for file in self.files)

    def with_files(self, files: Iterable[LakeFile]) -> Manifest:
        """The same and these files, chained."""
        found = list(self.files)
        next_lsn, chain = self.next_lsn, self.chain
        for file in files:
            if file.first_lsn != next_lsn or file.payloads != file.last_lsn - file.first_lsn + 1:
                raise InvariantViolated(
                    f"a file of LSNs {file.first_lsn} to {file.last_lsn} with {file.payloads} "
                    f"payloads where LSN {next_lsn} is due"
                )
            linked = file.after(chain)
            found.append(linked)
            next_lsn, chain = linked.last_lsn + 1, linked.chain
        return msgspec.structs.replace(self, files=tuple(found))

    def overlapping(self, first_lsn: int, last_lsn: int) -> list[LakeFile]:
        """The files that have some of [first_lsn, last_lsn]."""
        return [
            file for file in self.files if file.last_lsn >= first_lsn and file.first_lsn <= last_lsn
        ]


def encode_manifest(manifest: Manifest) -> bytes:
    head = _Head(
        lake=_version_of(manifest.files),
        cluster_id=manifest.cluster_id,
        first_lsn=manifest.first_lsn,
        next_lsn=manifest.next_lsn,
        files=len(manifest.files),
        chain=manifest.chain,
    )
    lines = [head, *manifest.files]
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def _version_of(files: Iterable[LakeFile]) -> int:
    """The lowest one that has what these files have; that of version 1 is never written anew."""
    has_compressed = any(file.stored_bytes is not msgspec.UNSET for file in files)
    return COMPRESSED_VERSION if has_compressed else VERSION


def decode_manifest(data: bytes, path: str) -> Manifest:
    """The manifest in `data`; `path` is for the error.

    Raises:
      CorruptData: it is no manifest, of another version, or a line does not fit the others.
    """
    lines = data.split(b"\n")
    if lines.pop():
        raise _damage(path, len(data), "a line feed at its end", "none")
    head = _decode(lines[0] if lines else b"", _Head, path, 0)
    if head.lake not in (OLD_VERSION, VERSION, COMPRESSED_VERSION):
        known = f"version {OLD_VERSION} to {COMPRESSED_VERSION} of a lake"
        raise _damage(path, 0, known, f"version {head.lake}")
    positions = _positions(lines)
    files = [
        _decode(line, LakeFile, path, position)
        for line, position in zip(lines[1:], positions[1:], strict=True)
    ]
    manifest = Manifest(cluster_id=head.cluster_id, first_lsn=head.first_lsn, files=tuple(files))
    if head.lake == OLD_VERSION and any(file.file_digest for file in files):
        raise _damage(path, 0, f"version {VERSION} of a lake", f"version {OLD_VERSION}")
    version = _version_of(files)
    if COMPRESSED_VERSION in (head.lake, version) and head.lake != version:
        raise _damage(path, 0, f"version {version} of a lake", f"version {head.lake}")
    _check_chain(manifest, path, positions[1:])
    told = (head.next_lsn, head.files, head.chain)
    found = (manifest.next_lsn, len(files), manifest.chain)
    if told != found:
        raise _damage(path, 0, f"a head that tells {found}", f"{told}")
    return manifest


def _check_chain(manifest: Manifest, path: str, positions: Sequence[int]) -> None:
    next_lsn, chain = manifest.first_lsn, manifest.first_chain
    for file, position in zip(manifest.files, positions, strict=True):
        if file.first_lsn != next_lsn:
            raise _damage(path, position, f"a file from LSN {next_lsn}", f"LSN {file.first_lsn}")
        chain = file.after(chain).chain
        if file.chain != chain:
            raise _damage(path, position, f"chain {chain}", file.chain)
        next_lsn = file.last_lsn + 1


def _positions(lines: Sequence[bytes]) -> list[int]:
    found = [0]
    for line in lines[:-1]:
        found.append(found[-1] + len(line) + 1)
    return found


def _decode(line: bytes, kind: Any, path: str, position: int) -> Any:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damage(path, position, "a line of a lake's manifest", str(error)) from error


def _damage(path: str, position: int, expected: str, got: str) -> CorruptData:
    return CorruptData(path, position, expected=expected, got=got)
