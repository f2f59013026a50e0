"""Finds hosts that this machine cannot resolve, to explain why no replica answers.

libzmq looks names up in its own thread, and does not report a name that does not exist.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable


def unknown_hosts(hosts: Iterable[str]) -> list[str]:
    """The hosts without an IPv4 address, each with the resolver's reason.

    Looks them up, which may take as long as the resolver waits for its servers.
    """
    found = []
    for host in dict.fromkeys(hosts):
        try:
            # As bytes: text would go through IDNA, which refuses some names in its own way.
            socket.getaddrinfo(host.encode(), None, socket.AF_INET, socket.SOCK_STREAM)
        except socket.gaierror as error:
            found.append(f"{host} ({error.strerror})")
    return found
