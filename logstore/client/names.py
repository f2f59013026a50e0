"""Which hosts of a list does this machine not know? Asked where nobody answers, to say why.

libzmq looks a name up in its own thread and says nothing of a name that there is not.
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
