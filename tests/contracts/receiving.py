"""Receiving as a loop does it: a socket is asked after its descriptor was polled."""

from __future__ import annotations

from typing import Any

from transport import link
from transport.link import Poller
from transport.link_socket import LinkSocket


def poll_and_receive(socket: Any) -> list[bytes] | None:
    _poll(socket)
    return link.try_receive(socket)


def poll_and_receive_views(socket: Any) -> list[memoryview] | None:
    _poll(socket)
    return link.try_receive_views(socket)


def _poll(socket: Any) -> None:
    if isinstance(socket, LinkSocket):
        Poller().wait([socket], 0)
