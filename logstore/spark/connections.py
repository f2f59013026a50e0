"""Clients of the log, one for each process and cluster, kept until the process ends.

Spark forks its Python workers and uses them again: a client is made on first use, after the fork,
never at import and never as part of what is pickled. The end of the process closes them.

Threads of a driver share them, and no client is closed under a thread: one is only closed by the
last thread alive that has asked for it.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from weakref import WeakSet

import msgspec

from logstore.client.client import LogClient, connect
from logstore.client.core.operating import Watermarks
from logstore.errors import WrongCluster

# A worker serves one query at a time; a union of more clusters than this opens some anew. Threads
# that are alive may keep as many more, each.
CLIENTS_MAX = 16


class _Kept:
    """A client and the threads that have asked for it."""

    def __init__(self, client: LogClient) -> None:
        self.client = client
        self._threads: WeakSet[threading.Thread] = WeakSet()

    def use(self) -> None:
        self._threads.add(threading.current_thread())

    @property
    def is_this_threads_alone(self) -> bool:
        here = threading.current_thread()
        return not any(each.is_alive() and each is not here for each in self._threads)


_Key = tuple[int, str, float]

_clients: OrderedDict[_Key, _Kept] = OrderedDict()
# Held for the dictionary and while a client is made, which waits for no replica.
_lock = threading.Lock()


def _renew_lock() -> None:
    """Another thread of the process this one was forked from may have held it."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def client_of(endpoints: str, *, timeout_s: float) -> LogClient:
    """This process' client of the cluster at `endpoints`."""
    key = (os.getpid(), endpoints, timeout_s)
    with _lock:
        kept = _clients.get(key)
        if kept is None:
            kept = _clients[key] = _Kept(connect(endpoints, timeout=timeout_s))
        kept.use()
        _clients.move_to_end(key)
        oldest = _take_oldest()
    for each in oldest:
        each.close()
    return kept.client


def _take_oldest() -> list[LogClient]:
    """Those above CLIENTS_MAX that are to be closed, as far as nobody else may be using them."""
    found = []
    for key in list(_clients)[:-1]:
        if len(_clients) <= CLIENTS_MAX:
            break
        if key[0] != os.getpid():  # sockets of the process this one was forked from are not ours
            del _clients[key]
        elif _clients[key].is_this_threads_alone:
            found.append(_clients.pop(key).client)
    return found


def _forget(key: _Key, client: LogClient) -> None:
    """Another cluster answers this client: the next one takes it as it is."""
    with _lock:
        kept = _clients.get(key)
        if kept is None or kept.client is not client:
            return  # another thread was quicker
        del _clients[key]
    if kept.is_this_threads_alone:
        client.close()


class Connected(msgspec.Struct, frozen=True):
    """A client that has been answered.

    Attributes:
      cluster_id: in hexadecimal.
      shown: what the replica that answered serves.
    """

    client: LogClient
    cluster_id: str
    shown: Watermarks


def connected(endpoints: str, *, timeout_s: float) -> Connected:
    """This process' client, and proof that a replica answers.

    Raises:
      Unreachable: none answered in time.
      WrongCluster: the endpoints belong to different clusters.
    """
    client = client_of(endpoints, timeout_s=timeout_s)
    try:
        shown = client.admin.watermarks()
    except WrongCluster:
        # Another cluster than before may answer there by now.
        _forget((os.getpid(), endpoints, timeout_s), client)
        client = client_of(endpoints, timeout_s=timeout_s)
        shown = client.admin.watermarks()
    return Connected(client, client.cluster_id.hex(), shown)


def close_all() -> None:
    """For a process that goes on without Spark, like that of the tests."""
    with _lock:
        found = list(_clients.values())
        _clients.clear()
    for kept in found:
        kept.client.close()
