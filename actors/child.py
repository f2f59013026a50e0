"""What a child process gets from the supervisor, and what it does with it.

Its standard input is a pipe that the supervisor keeps open and never writes to, so its end of file
means that the supervisor is gone (the lifeline, SAFETY M3). Descriptors keep their numbers.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
from contextlib import suppress

import msgspec

from actors.host import RealHost
from actors.station import Regions, Station
from actors.thread_placement import place_threads
from logstore.config import parse_config
from logstore.config_layout import actors_in, layout_of
from logstore.config_placement import IO_THREADS, Placement
from logstore.model import NodeId
from transport import link
from transport.counters import open_counters
from transport.doorbell import Doorbell
from transport.shm import map_region, region_size_bytes

LIFELINE = 0
EXIT_PARENT_GONE = 72
# The exit status of a child that starting again cannot help: an operator must act.
EXIT_REFUSED = 78
# Of one that found out that its replica must not go on, and left word why (SAFETY L6).
EXIT_LOST = 79
LAST_WORDS_MAX_BYTES = 4_096  # PIPE_BUF: what a write to an empty pipe never waits for
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class ChildSpec(msgspec.Struct, frozen=True):
    """Everything a child needs. Which actors it runs, the layout of the config says. Descriptors
    are the supervisor's, inherited under the same numbers; `bells` has every actor's. `damage`: why
    this replica must not go on, as found out before; `last_words`: a pipe for what it finds out."""

    process: str
    node: int
    config_text: str
    folder: str
    incarnation: int
    rings: dict[str, int]
    payload: int
    counters_path: str
    stamps: int
    bells: dict[str, int]
    placement: Placement
    damage: str = ""
    last_words: int = -1


def leave_last_words(spec: ChildSpec, text: str) -> None:
    """Tell the supervisor why this replica must not go on. One that is gone reads nothing."""
    with suppress(OSError):
        os.write(spec.last_words, text.encode()[:LAST_WORDS_MAX_BYTES])


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel for SIGKILL when the parent dies, then check that it
    still lives (FAULTS P13)."""
    if _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:
        os._exit(EXIT_PARENT_GONE)


def take_placement(placement: Placement) -> None:
    """Run where and how the supervisor says, from before the first socket and thread on. What the
    kernel refuses now, because CPUs went or a right was taken away, is not worth a replica."""
    try:
        place_threads(os.getpid(), placement)
    except OSError as error:
        logging.error("not placed as configured: %s; `logstore placement show` has the rest", error)
    if placement.io_threads > IO_THREADS:
        link.use_io_threads(placement.io_threads)


def open_stations(spec: ChildSpec) -> list[Station]:
    """Map the regions and the counters, each checked to be of this incarnation (M1), for every
    actor of the process, in the order of their turns."""
    regions = Regions(
        rings={name: map_region(fd, region_size_bytes(fd)) for name, fd in spec.rings.items()},
        payload=map_region(spec.payload, region_size_bytes(spec.payload)),
        counters=open_counters(spec.counters_path),
        stamps=map_region(spec.stamps, region_size_bytes(spec.stamps)),
        bells={name: Doorbell(fd) for name, fd in spec.bells.items()},
        incarnation=spec.incarnation,
    )
    config, node = parse_config(spec.config_text), NodeId(spec.node)
    actors = actors_in(layout_of(config, node), spec.process)
    return [
        Station(
            actor,
            node=node,
            config=config,
            folder=spec.folder,
            regions=regions,
            host=RealHost(has_own_thread=len(actors) == 1),
            damage=spec.damage,
        )
        for actor in actors
    ]
