"""This log beside what a user would pick instead: one machine, the same loads, three nodes each.

Owns which systems there are, the options, and the course of the whole: rounds in turn, then kills
of leaders. A system that is missing on this machine is told as missing, with the reason.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from benchmarks.measurement import Measured, Measurement, Site, option
from benchmarks.peers.etcd import ETCD
from benchmarks.peers.kafka import KAFKA
from benchmarks.peers.loads import BATCHES, LOADS, ONE_IN_FLIGHT, choose
from benchmarks.peers.nats import NATS, NATS_ALWAYS
from benchmarks.peers.ours import CONTENDER, OURS
from benchmarks.peers.peer import System
from benchmarks.peers.peer_plots import draw_peers
from benchmarks.peers.ratios import summarise
from benchmarks.peers.rounds import Course, Rounds

# Kafka's turn is the longest by far: where the time ends in the first round, it is what is skipped.
SYSTEMS = (OURS, NATS_ALWAYS, NATS, ETCD, KAFKA)
WARM_S = 1.0


def measure_peers(
    site: Site,
    *,
    rounds: int,
    seconds: float,
    kills: int,
    warm_ups: int,
    minutes_max: float,
    systems: str,
    loads: str,
) -> Measured:
    """All of it.

    Raises:
      InvalidRequest: a system or a load has another name.
    """
    chosen = choose(systems, [system.name for system in SYSTEMS], option="--systems")
    wanted = [system for system in SYSTEMS if system.name in chosen]
    missing = find_missing(wanted)
    for name, reason in missing.items():
        site.say(f"{name} is MISSING: {reason}")
    present = [system for system in wanted if system.name not in missing]
    versions = {name: version for system in present for name, version in system.versions().items()}
    course = Course(
        loads=choose(loads, [load.name for load in LOADS], option="--loads"),
        seconds=seconds,
        warm_s=min(WARM_S, seconds / 2),
        warm_up_runs=warm_ups,
        minutes_max=minutes_max,
    )
    with tempfile.TemporaryDirectory(prefix="peers-", dir=site.folder) as own:
        work = Rounds(course, Path(own), site.say)
        for number in range(1, rounds + 1):
            work.measure(present, number)
        work.measure_failovers(present, kills)
    return Measured(
        rows=work.rows,
        summary=summarise(work.rows, missing, ours=CONTENDER),
        samples=work.curves,
        versions=versions,
    )


def find_missing(systems: list[System]) -> dict[str, str]:
    """By name, why a system cannot be measured here."""
    reasons = {system.name: system.find_missing() for system in systems}
    return {name: reason for name, reason in reasons.items() if reason}


PEERS = Measurement(
    "peers",
    "How fast is it beside Apache Kafka, NATS JetStream and etcd? `make peers` builds them first.",
    45,
    measure_peers,
    [
        option("--rounds", type=click.IntRange(1, 99), default=5),
        option("--seconds", type=click.FloatRange(0.5, 3_600.0), default=4.0),
        option("--kills", type=click.IntRange(0, 99), default=5, help="of the leader, each system"),
        option(
            "--warm-ups",
            type=click.IntRange(0, 99),
            default=8,
            help="runs at most, until two agree within 10 %; 0: none",
        ),
        option(
            "--minutes-max",
            type=click.FloatRange(0.1),
            default=60.0,
            help="no system's turn begins after so many",
        ),
        option("--systems", default="all", help=", ".join(system.name for system in SYSTEMS)),
        option("--loads", default="all", help=", ".join(load.name for load in LOADS)),
    ],
    {
        "rounds": 1,
        "seconds": 0.5,
        "kills": 1,
        "warm_ups": 0,
        "minutes_max": 1.0,
        "loads": f"{ONE_IN_FLIGHT.name},{BATCHES.name}",
    },
    draw_peers,
)
