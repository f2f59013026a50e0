"""Which endpoints a node may listen on before roles and encryption exist (SAFETY M5).

Owns the check. Must not know sockets. Invariant: an endpoint that anybody but this user on this
host can reach is refused, unless the operator sets `insecure`.
"""

from __future__ import annotations

import ipaddress
import os
from urllib.parse import urlsplit

from transport.errors import InsecureBind, LinkError

PORT_MAX = 65_535


def check_bind(endpoint: str, *, insecure: bool) -> None:
    """Refuse an endpoint that anybody but this user on this host could reach (SAFETY M5).

    Raises:
      InsecureBind: not loopback, or an ipc folder that others may enter.
      LinkError: not an endpoint of tcp or ipc.
    """
    scheme, separator, address = endpoint.partition("://")
    if not separator or scheme not in ("tcp", "ipc"):
        raise LinkError(f"cannot listen on {endpoint!r}: take tcp://HOST:PORT or ipc://PATH")
    check_port(endpoint)
    if insecure:
        return
    if scheme == "tcp":
        if not _is_loopback(endpoint):
            raise InsecureBind(
                f"{endpoint} can be reached by others, and nothing here is encrypted or "
                "authenticated: bind to 127.0.0.1, or set insecure = true if the network is trusted"
            )
        return
    folder = os.path.dirname(address) or "."
    try:
        mode = os.stat(folder).st_mode
    except OSError as error:
        raise LinkError(f"cannot listen on {endpoint}: {folder}: {error.strerror}") from error
    if mode & 0o077:
        raise InsecureBind(
            f"{endpoint}: others may enter {folder} (mode {mode & 0o777:o}): chmod it to 700"
        )


def check_port(endpoint: str) -> None:
    """Refuse a tcp port that does not exist; libzmq would silently take it modulo 65,536.

    Raises:
      LinkError: the port is missing or no number from 1 to 65535 (0 and * let the system choose).
    """
    if not endpoint.startswith("tcp://"):
        return
    port = endpoint.rpartition(":")[2]
    if port != "*" and not (port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
        raise LinkError(f"{endpoint!r}: a port is 1 to 65535, or * to let the system choose")


def _is_loopback(endpoint: str) -> bool:
    host = urlsplit(endpoint.replace(":*", ":0")).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
