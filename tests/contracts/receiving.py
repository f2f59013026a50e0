"""Receiving as a loop does it: a socket is asked after its descriptor was polled."""

from __future__ import annotations

from typing import Any

from transport import link
from transport.link_socket import LinkSocket
from transport.poller import Poller
from transport.ports import Watch


def poll_and_receive(socket: Any) -> list[bytes] | None:
    _poll(socket)
    return link.try_receive(socket)


def poll_and_receive_views(socket: Any) -> list[memoryview] | None:
    _poll(socket)
    return link.try_receive_views(socket)


def poll_and_look(watch: Watch) -> bool:
    _poll(watch.source)
    return watch.was_lost()


def _poll(socket: Any) -> None:
    if isinstance(socket, LinkSocket):
        Poller().wait([socket], 0)
