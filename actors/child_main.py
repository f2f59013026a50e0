"""Entry point of every child process: `python -m actors.child_main PROCESS PARENT_PID`.

Reads its spec from standard input and runs that actor until SIGTERM, until the supervisor is gone,
or until an error that must end the process.
"""

from __future__ import annotations

import logging
import sys

from actors import topology
from actors.actor import Actor
from actors.child import (
    EXIT_REFUSED,
    LIFELINE,
    ChildSpec,
    die_with_parent,
    open_station,
    read_spec,
    take_placement,
)
from actors.loop_usage import LoopUsage
from actors.naming import name_process
from actors.runner import StopFlag, prepare_process, run
from actors.station import Station
from logstore.config import parse_config
from logstore.errors import ConfigError, FolderRefused


def make_actor(station: Station) -> Actor:
    """The actor that the station names. Imports only that actor, because start-up time counts."""
    match station.process:
        case topology.INGRESS:
            from actors.ingress import IngressActor

            return IngressActor(station)
        case topology.RAFT:
            from actors.raft import RaftActor

            return RaftActor(station)
        case topology.WRITER:
            from actors.writer import WriterActor

            return WriterActor(station)
        case topology.EGRESS:
            from actors.egress import EgressActor

            return EgressActor(station)
        case _:
            from actors.replicator import ReplicatorActor

            return ReplicatorActor(station)


def run_child(spec: ChildSpec) -> None:
    name_process(parse_config(spec.config_text).cluster.name, spec.node, spec.process)
    take_placement(spec.placement)
    stop = StopFlag()
    prepare_process(stop)
    station = open_station(spec)
    stop.wake(station.bell)
    slots, loops = station.slots, station.slot(f"{spec.process}.loops")

    def count_loop() -> None:
        slots[loops] += 1

    run(
        [make_actor(station)],
        [station.bell],
        count_loop=count_loop,
        usage=LoopUsage(slots, station.slot, spec.process),
        stop=lambda: stop.is_set,
        lifeline=LIFELINE,
        spin=spec.placement.spin,
    )


def main() -> None:
    process, parent_pid = sys.argv[1:3]
    die_with_parent(int(parent_pid))
    spec = read_spec()
    if spec.process != process:
        raise SystemExit(f"started as {process}, but the spec is of {spec.process}")
    try:
        run_child(spec)
    except (ConfigError, FolderRefused) as error:
        logging.critical("%s", error)
        sys.exit(EXIT_REFUSED)


if __name__ == "__main__":
    main()
