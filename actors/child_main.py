"""What every child process does: it runs the actors of its process until SIGTERM, until the
supervisor is gone, or until an error that must end the process.

Imports every actor: the supervisor has imported this module when it forks, so a child imports
nothing, and the pages of all that code are shared.
"""

from __future__ import annotations

import logging
import os
import select
import sys
from collections.abc import Callable

from actors import topology
from actors.actor import Actor
from actors.child import (
    EXIT_LOST,
    EXIT_REFUSED,
    LIFELINE,
    ChildSpec,
    leave_last_words,
    open_stations,
    take_placement,
)
from actors.egress import EgressActor
from actors.ingress import IngressActor
from actors.loop_usage import LoopUsage
from actors.naming import name_process
from actors.raft import RaftActor
from actors.replicator import ReplicatorActor
from actors.runner import EXIT_ORPHANED, StopFlag, prepare_process, run
from actors.station import Station
from actors.writer import WriterActor
from logstore.config import parse_config
from logstore.errors import ConfigError, FolderInUse, FolderRefused, ReplicaLost
from logstore.storage.disk import RealDisk
from transport.errors import LinkError, PortInUse

# How often a process that waits for a predecessor looks whether that is gone.
_LOOK_S = 0.2


def make_actor(station: Station) -> Actor:
    """The actor that the station names."""
    match station.actor:
        case topology.INGRESS:
            return IngressActor(station)
        case topology.RAFT:
            return RaftActor(station)
        case topology.WRITER:
            return WriterActor(station)
        case topology.EGRESS:
            return EgressActor(station)
        case _:
            return ReplicatorActor(station)


def run_child(spec: ChildSpec) -> None:
    """
    Raises:
      SystemExit: with EXIT_REFUSED, if starting the process again cannot help; with EXIT_LOST, if
        the replica must not go on; with 1, if it cannot listen.
    """
    try:
        _run_actors(spec)
    except (ConfigError, FolderRefused) as error:
        logging.critical("%s", error)
        sys.exit(EXIT_REFUSED)
    except ReplicaLost as error:
        logging.critical("%s", error)
        leave_last_words(spec, str(error))
        sys.exit(EXIT_LOST)
    except LinkError as error:  # a port that is in use may be free at the next restart
        logging.critical("%s", error)
        sys.exit(1)


def _run_actors(spec: ChildSpec) -> None:
    name_process(parse_config(spec.config_text).cluster.name, spec.node, spec.process)
    take_placement(spec.placement)
    stop = StopFlag()
    prepare_process(stop)
    stations = open_stations(spec)
    station = stations[0]
    stop.wake(station.bell)
    slots, loops = station.slots, station.slot(f"{spec.process}.loops")

    def count_loop() -> None:
        slots[loops] += 1

    actors = [make_actor(each) for each in stations]
    try:
        run(
            actors,
            [each.bell for each in stations],
            count_loop=count_loop,
            usage=LoopUsage(slots, station.slot, spec.process),
            stop=lambda: stop.is_set,
            lifeline=LIFELINE,
            spin=spec.placement.spin,
        )
    except PortInUse as error:
        if any(isinstance(each, WriterActor) and each.delay for each in actors):
            _wait_for_predecessor(spec.folder, error, count_loop, lambda: stop.is_set)
        raise


def _wait_for_predecessor(
    folder: str, error: PortInUse, count_loop: Callable[[], None], is_stopped: Callable[[], bool]
) -> None:
    """Our writer did not get the folder's lock: a process of an earlier start that hangs in the
    kernel may have it, and our ports (FAULTS P17). Wait until it has the lock no more; end with the
    supervisor."""
    disk, is_said = RealDisk(), False
    while not is_stopped():
        count_loop()
        try:
            disk.lock_folder(folder)
        except FolderInUse as held:
            if not is_said:
                logging.warning("this replica waits: %s, and %s", held, error)
            is_said = True
        else:
            disk.unlock_folder(folder)
            return
        if select.select([LIFELINE], [], [], _LOOK_S)[0]:
            os._exit(EXIT_ORPHANED)
