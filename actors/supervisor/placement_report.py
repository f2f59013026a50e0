"""Where and how a replica's processes run, as it is and as it should be: one JSON document.

Owns its shape, and the link in the data folder by which a command of this machine reads it: to a
nameless file of the supervisor, as `counters` is. The link leads nowhere once the supervisor is
gone. The bytes: CRC-32 of the rest as eight hexadecimal digits, a line feed, JSON.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from zlib import crc32

import msgspec

from actors.supervisor.placement import Machine
from actors.supervisor.regions import publish_descriptor
from logstore.config_placement import Placement

LINK = "placement"
_CRC_BYTES = 9
_TARGET = f"/memfd:{LINK}"  # as the kernel names what memfd_create made
_SIZE_MAX = 1 << 20  # far above the report of any replica
# A report is replaced in some us: a reader that meets as many halves in a row gives up.
_READS_MAX = 100


class ProcessReport(msgspec.Struct, frozen=True):
    """One process.

    Attributes:
      pid: 0: it does not run now.
      now: CPUs and niceness as the kernel has them, the rest as the process was started; None: it
        does not run now.
      configured: as it should be; what the file leaves open is filled in.
      actors: those that it runs.
    """

    pid: int
    now: Placement | None
    configured: Placement
    actors: tuple[str, ...] = ()


class PlacementReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """One replica.

    Attributes:
      node: its id.
      machine: what it may have there.
      refusal: why the config file as it is now is not taken; empty if it is.
      processes: by name.
      config_path: the file that is followed, absolute; told to commands of this machine only.
    """

    node: int
    machine: Machine
    refusal: str
    processes: dict[str, ProcessReport]
    config_path: str = ""


def encode_report(report: PlacementReport) -> bytes:
    """For whoever asks over the network: without the names of files."""
    refusal = report.refusal.replace(report.config_path or "\0", "its configuration")
    return msgspec.json.encode(msgspec.structs.replace(report, config_path="", refusal=refusal))


class ReportLink:
    """`FOLDER/placement`, which leads to the newest report of this process."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LINK
        self._fd = os.memfd_create(LINK, os.MFD_CLOEXEC)
        publish_descriptor(folder, LINK, self._fd)

    def write(self, report: PlacementReport) -> None:
        document = msgspec.json.encode(report)
        content = b"%08x\n%b" % (crc32(document), document)
        os.pwrite(self._fd, content, 0)
        os.ftruncate(self._fd, len(content))

    def close(self) -> None:
        with suppress(OSError):  # a folder that cannot be written any more: the link leads nowhere
            self._path.unlink(missing_ok=True)
        os.close(self._fd)


def _content(link: Path) -> bytes:
    """What the report's file holds.

    Raises:
      OSError: the link leads to no report. After a kill it may lead to whatever a later process of
        the same pid has open: nothing is read from that.
    """
    with open(os.open(link, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not os.readlink(f"/proc/self/fd/{file.fileno()}").startswith(_TARGET):
            raise FileNotFoundError(link)
        return file.read(_SIZE_MAX)


def read_report(folder: Path) -> PlacementReport | None:
    """What the replica that runs in `folder` says now; None: none runs there that says it."""
    for _ in range(_READS_MAX):
        try:
            content = _content(folder / LINK)
        except OSError:
            return None
        if content[:_CRC_BYTES] == b"%08x\n" % crc32(content[_CRC_BYTES:]):
            return msgspec.json.decode(content[_CRC_BYTES:], type=PlacementReport)
    return None
