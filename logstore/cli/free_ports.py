"""Free runs of loopback ports for clusters that run for a short time.

Owns how they are found. Processes that look at the same time each look in a section of their own,
as long as there are sections; of one section another program may still take a run between the look
and the use. Ports lie below the kernel's ephemeral range, so that no outgoing connection takes one.
"""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from pathlib import Path
from random import Random

from logstore.errors import Overloaded
from logstore.settings import PortOffset

PORT_MIN = 10_000
EPHEMERAL_DEFAULT = 32_768
# Every listener of a node, the produce port too, in a row.
RUN = len(PortOffset)
# Sections of the ports; of 22,768 ports each has 158 runs of 9.
SECTIONS = 16
# Each try looks at one random run: even with nine of ten taken, 200 tries find one.
TRIES_MAX = 200


def find_free_ports(count: int, random: Random, *, run: int = RUN) -> list[int]:
    """First ports of `count` free runs of `run` ports each, none overlapping.

    Raises:
      Overloaded: none was found; the machine is full of listeners.
    """
    found: list[int] = []
    ports = _ports_of_this_process(os.getpid())
    places = len(ports) // run
    for _ in range(TRIES_MAX * count):
        if len(found) == count:
            break
        first = ports.start + random.randrange(places) * run
        if first not in found and all(_is_free(first + n) for n in range(run)):
            found.append(first)
    if len(found) < count:
        raise Overloaded(f"no {count} free runs of {run} ports on 127.0.0.1")
    return found


def _ports_of_this_process(pid: int) -> range:
    """The ports of its section; all, if every section is another process'."""
    end = _ephemeral_start()
    section = _section(pid)
    if section is None:
        return range(PORT_MIN, end)
    size = (end - PORT_MIN) // SECTIONS
    return range(PORT_MIN + section[0] * size, PORT_MIN + (section[0] + 1) * size)


@lru_cache(maxsize=1)
def _section(pid: int) -> tuple[int, socket.socket] | None:
    """A section that no other process has. It is taken by the name of a socket in the kernel's
    abstract namespace (unix(7)), which goes with the process and leaves no file."""
    for turn in range(SECTIONS):
        number = (pid + turn) % SECTIONS
        taken = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            taken.bind(f"\0logstore ports {number}")
        except OSError:
            taken.close()
            continue
        return number, taken
    return None


def _ephemeral_start() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
        return max(PORT_MIN + SECTIONS * 8 * RUN, int(text.split()[0]))
    except (OSError, ValueError):
        return EPHEMERAL_DEFAULT


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
