"""Free runs of loopback ports for clusters that run for a short time.

Owns how they are found. Another process may take a run between the look and the use; callers that
care start again. Ports lie below the kernel's ephemeral range, so that no outgoing connection
takes one.
"""

from __future__ import annotations

import socket
from pathlib import Path
from random import Random

from logstore.errors import Overloaded
from logstore.settings import PortOffset

PORT_MIN = 10_000
EPHEMERAL_DEFAULT = 32_768
# Every listener of a node, the produce port too, in a row.
RUN = len(PortOffset)
# Each try looks at one random run of 9 in about 2,500: even with nine of ten taken, 200 tries find
# one.
TRIES_MAX = 200


def find_free_ports(count: int, random: Random, *, run: int = RUN) -> list[int]:
    """First ports of `count` free runs of `run` ports each, none overlapping.

    Raises:
      Overloaded: none was found; the machine is full of listeners.
    """
    found: list[int] = []
    places = (_ephemeral_start() - PORT_MIN) // run
    for _ in range(TRIES_MAX * count):
        if len(found) == count:
            break
        first = PORT_MIN + random.randrange(places) * run
        if first not in found and all(_is_free(first + n) for n in range(run)):
            found.append(first)
    if len(found) < count:
        raise Overloaded(f"no {count} free runs of {run} ports on 127.0.0.1")
    return found


def _ephemeral_start() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
        return max(PORT_MIN + 8 * RUN, int(text.split()[0]))
    except (OSError, ValueError):
        return EPHEMERAL_DEFAULT


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
