"""`logstore explain`: where an append's time goes on a running cluster, and what bounds throughput.

Owns the arguments, and what is said where there is no answer.
"""

from __future__ import annotations

import sys

import click

from logstore.cli.exit_status import ExitStatus
from logstore.cli.explain.explain_tables import show
from logstore.cli.explain.explanation import Explanation, explain_readings
from logstore.cli.explain.readings import Readings, gather
from logstore.cli.options import NumberRange, endpoint_option, json_option, timeout_option
from logstore.cli.output import Terminal, say, write_json
from logstore.cli.stdout_reader import before_exit_status
from logstore.client.client import connect
from transport.stamp_table import STAMPED_EVERY

# Processes publish what they cost once a second; 600 s of stamps are some 100 MB.
SECONDS = 5.0


@click.command()
@click.option(
    "--seconds",
    type=NumberRange(2.0, 600.0),
    default=SECONDS,
    show_default=True,
    help="how long to measure",
)
@endpoint_option
@timeout_option
@json_option
def explain(seconds: float, endpoints: str, timeout_s: float, json_path: str | None) -> None:
    """Where an append's time goes, which stage bounds throughput now, and which wake-ups are paid.

    The replicas are asked for their counters, and for the times at which entries passed each of
    their stages: one in eleven is stamped, whether somebody asks or not. Nothing is measured of the
    way between a producer and the leader.

    \b
    share        of the time of all sampled appends in all
    decides      of how many appends this replica made the majority
    busy         a process: it is not parked, so that a writer is busy while
                 it waits for a flush; a flush: one is under way
    turns        runs of a process' loop, a second
    wakes        wake-ups of a process, a second: by its bell, by a socket, by
                 a timer; empty: nothing had come (work of a timer is none)

    Times of two machines are never compared: what a follower took is measured there, and "network"
    is what the leader waited besides.

    A process publishes what it costs once a second, so that its row is of the
    last seconds between two publications.

    Exit status 3 without a leader: then there is only what processes and disks do.
    """
    with connect(endpoints, timeout=timeout_s) as client:
        readings = gather(client, seconds)
    found = explain_readings(readings)
    _say_what_is_missing(found, readings)
    if json_path is not None:
        write_json(found, json_path)
    elif readings.replicas:
        with before_exit_status():
            show(found, Terminal())
    if not found.leader:
        sys.exit(ExitStatus.UNREACHABLE)


def _say_what_is_missing(found: Explanation, readings: Readings) -> None:
    for node, why in sorted(found.silent.items()):
        if node in readings.replicas:
            say(f"node {node} is measured until it fell silent: {why}")
        else:
            say(f"nothing is known of node {node}: {why}")
    if not readings.replicas:
        return
    if not found.leader:
        say("nobody leads, so there are no appends to explain: see `logstore status`")
    elif readings.is_leader_new:
        say("leadership changed meanwhile: ask again for figures of one leader")
    elif not found.sampled:
        say(f"no entry was sampled, one of {STAMPED_EVERY} is: ask under load, or for longer")
