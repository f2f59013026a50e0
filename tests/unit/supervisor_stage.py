"""A supervisor and its children on real processes, with actors that only tell what they see.

Run as a script, with a FOLDER, it is the supervisor. Children
print one line an event to the standard output they share, so that a test waits for a line and never
for time. A file FOLDER/PROCESS.status makes that process leave at once with the status in it; with
a file FOLDER/PROCESS.words once only, after it left these last words. While there is a file
FOLDER/forks-left, the supervisor can start as many processes as it says. Raft asks for the
spares that FOLDER/wanted names when it starts, and when it hears of a death.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from actors import messages, topology
from actors.child import LIFELINE, ChildSpec, leave_last_words, open_stations, take_placement
from actors.loop_usage import LoopUsage
from actors.runner import StopFlag, prepare_process, run
from actors.station import Station
from actors.supervisor.held_folder import sole_supervisor
from actors.supervisor.placement import look_at_machine
from actors.supervisor.placement_file import PlacementFile
from actors.supervisor.placement_keeper import PlacementKeeper
from actors.supervisor.signals import StopSignals
from actors.supervisor.supervisor import Supervisor
from logstore.config import load_config
from logstore.model import NodeId

CONFIG = """
[cluster]
name = "stage"
[[nodes]]
node = 1
port = 7300
[[nodes]]
node = 2
port = 7310
[limits]
ring = "16MiB"
batch_max = "64KiB"
group_max = "64KiB"
bulk_window = "64KiB"
[process]
mode = "processes"
metrics = false
"""
CONFIG_NAME = "stage.toml"
NODE = NodeId(1)
CHILDREN = ("writer", "raft", "ingress", "egress", "replicator-2")


def tell(*words: object) -> None:
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())


class StageActor:
    """Tells that it runs; as raft also what the supervisor says, and answers a stop."""

    full_turn = 1

    def __init__(self, station: Station) -> None:
        self._station = station
        self._is_raft = station.actor == topology.RAFT
        if self._is_raft:
            self._inbox = station.inbox(topology.SUPERVISOR)
            self._outbox = station.outbox(topology.SUPERVISOR)

    def on_start(self) -> None:
        tell("started", self._station.actor, os.getpid(), self._station.incarnation)
        if self._is_raft:
            self._want_spares()
            self._outbox.flush()
        if self._station.damage:
            tell("damaged", self._station.actor, self._station.damage)

    def _want_spares(self) -> None:
        wanted = Path(self._station.folder) / "wanted"
        if wanted.exists():
            for spare in wanted.read_text().split():
                self._outbox.send(messages.ReplicatorWanted(spare))

    def do_work(self, now_ns: int) -> int:
        if not self._is_raft:
            return 0
        received = self._inbox.receive()
        for message in received:
            match message:
                case messages.ProcessGone():
                    tell("gone", message.process)
                    self._want_spares()
                case messages.ReplicatorStarted():
                    tell("replicator-started", message.actor)
                case messages.PlacementReported():
                    tell("placement-reported")
                case messages.StopRequested():
                    tell("stop-requested")
                    self._outbox.send(messages.StopReady())
        self._outbox.flush()
        return len(received)

    def wait_on(self) -> Sequence[Any]:
        return ()

    def next_timer_ns(self) -> int:
        return 1 << 62

    def on_close(self) -> None:
        tell("closed", self._station.actor)


def be_child(spec: ChildSpec) -> None:
    order = Path(spec.folder) / f"{spec.process}.status"
    if order.exists():
        tell("leaving", spec.process)
        status, words = int(order.read_text()), Path(spec.folder) / f"{spec.process}.words"
        if words.exists():
            leave_last_words(spec, words.read_text())
            order.unlink()
        sys.exit(status)
    take_placement(spec.placement)
    stop = StopFlag()
    prepare_process(stop)
    stations = open_stations(spec)
    station = stations[0]
    stop.wake(station.bell)
    slots, loops = station.slots, station.slot(f"{spec.process}.loops")

    def count_loop() -> None:
        slots[loops] += 1

    run(
        [StageActor(each) for each in stations],
        [each.bell for each in stations],
        count_loop=count_loop,
        usage=LoopUsage(slots, station.slot, station.process),
        stop=lambda: stop.is_set,
        lifeline=LIFELINE,
        spin=False,
    )


def make_keeper(folder: Path) -> PlacementKeeper:
    """Of a supervisor that follows FOLDER/stage.toml, which is CONFIG if it is not there yet."""
    path = folder / CONFIG_NAME
    if not path.exists():
        path.write_text(CONFIG)
    file = PlacementFile(load_config(path), NODE, look_at_machine(), path)
    return PlacementKeeper(file, NODE, folder)


def bound_forks(order: Path) -> None:
    """As where a cgroup has as many processes as it may."""
    fork = os.fork

    def try_fork() -> int:
        if order.exists():
            left = int(order.read_text())
            if not left:
                tell("fork-refused")
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            order.write_text(str(left - 1))
        return fork()

    os.fork = try_fork


def be_supervisor(folder: Path) -> int:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    bound_forks(folder / "forks-left")
    with (
        sole_supervisor(folder) as held,
        StopSignals() as signals,
        closing(make_keeper(folder)) as placement,
    ):
        placement.place_supervisor()
        supervisor = Supervisor(
            load_config(folder / CONFIG_NAME),
            NODE,
            held,
            signals=signals,
            metrics=None,
            random=Random(1),
            run_child=be_child,
            placement=placement,
        )
        return supervisor.run()


if __name__ == "__main__":
    sys.exit(be_supervisor(Path(sys.argv[1])))
