"""Clients of the log, one a process and cluster, kept for the life of the process.

Spark forks its Python workers and uses them again: a client is made on first use, after the fork,
never at import and never as part of what is pickled. Nobody closes them: the process ends.
"""

from __future__ import annotations

import os
from collections import OrderedDict

import msgspec

from logstore.client.admin import Watermarks
from logstore.client.client import LogClient, connect
from logstore.errors import WrongCluster

# A worker serves one query at a time; a union of more clusters than this opens some anew.
CLIENTS_MAX = 16

_clients: OrderedDict[tuple[int, str, float], LogClient] = OrderedDict()


def client_of(endpoints: str, *, timeout_s: float) -> LogClient:
    """This process' client of the cluster at `endpoints`."""
    key = (os.getpid(), endpoints, timeout_s)
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = connect(endpoints, timeout=timeout_s)
        if len(_clients) > CLIENTS_MAX:
            (pid, _, _), oldest = _clients.popitem(last=False)
            if pid == key[0]:  # sockets of the process this one was forked from are not ours
                oldest.close()
    _clients.move_to_end(key)
    return client


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
        # Another cluster than before may answer there by now: a fresh client takes it as it is.
        del _clients[(os.getpid(), endpoints, timeout_s)]
        client.close()
        client = client_of(endpoints, timeout_s=timeout_s)
        shown = client.admin.watermarks()
    return Connected(client, client.cluster_id.hex(), shown)
