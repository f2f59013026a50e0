"""The options of each kind of socket, a replica's and a client's (SAFETY M5).

Pure: constants and tables. There are two kinds of lanes, for a measured reason (libzmq 4.3.5,
2026-11-20): a socket whose queue is full stops reading, so it answers no heartbeat and lets the TCP
window close. A PULL left unread with heartbeats of 200 ms / 1 s was disconnected every 1.2 s, with
TCP_MAXRT 3 s every 3.6 s; each time the sender's queue was lost and one more full queue piled up at
the receiver. So heartbeats and TCP_MAXRT are for lanes that are always read. Lanes that
back-pressure may leave unread have TCP keepalive, which a closed window does not trip
(test_a_lane_under_back_pressure_stays_connected).

| socket | always read | keepalive | reconnects after |
|---|---|---|---|
| a replica's ROUTER, DEALER of a control lane | heartbeats, TCP_MAXRT | – | 50 to 200 ms |
| a replica's other sockets | – | yes | 50 to 200 ms |
| a client's DEALER | heartbeats, TCP_MAXRT | yes | 50 to 500 ms |
| a client's PUSH, SUB | – | yes | 50 to 500 ms |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import zmq

Options: TypeAlias = Mapping[int, int]

# Messages queued per connection and direction. 256 x 1 KiB keep a 250 MB/s stream going between two
# polls of 1 ms; a dishonest peer makes the receiver hold 256 x message_size_max. A client's bytes
# are bounded by its producer's window and by one fetch in flight.
HIGH_WATER_MARK = 256
# Messages that a subscriber may send before they are read. With more room, libzmq's XPUB goes on
# taking subscriptions for as long as they come: a second of them froze its owner for 11 s and cost
# 3.8 GB (1 KB topics, libzmq 4.3.5, 2026-11-22); with 4, 4 ms and 2 MB (60 B topics).
SUBSCRIPTIONS_AHEAD = 4
# A client's user waits until the client notices that a replica is gone.
CLIENT_HEARTBEAT_MS = 200
CLIENT_HEARTBEAT_TIMEOUT_MS = 1_000
# Replicas have Raft's heartbeats to go by; these end connections to hosts that are gone, within the
# 3 s of TCP_MAXRT. Every 200 ms they were most of what an idle cluster did (2026-11-26).
REPLICA_HEARTBEAT_MS = 1_000
REPLICA_HEARTBEAT_TIMEOUT_MS = 1_500
PEER_SILENCE_MS = 2_500
HANDSHAKE_MS = 2_000
CONNECT_MS = 2_000  # a SYN into a partition is given up; the system's own limit is two minutes
RECONNECT_MIN_MS = 50
# A replica that was started again follows once its peers have reconnected. 2 s before 2026-11-24;
# what is tried in vain on a dead replica's ports, 10 times a second, is a refused SYN.
RECONNECT_MAX_MS = 200
# A client's user waits, and a client has few replicas to connect to.
CLIENT_RECONNECT_MAX_MS = 500
TCP_RETRANSMIT_MAX_MS = 3_000
KEEPALIVE_IDLE_S = KEEPALIVE_INTERVAL_S = 1
KEEPALIVE_PROBES = 3

CLIENT_HEARTBEATS: Options = {
    zmq.HEARTBEAT_IVL: CLIENT_HEARTBEAT_MS,
    zmq.HEARTBEAT_TIMEOUT: CLIENT_HEARTBEAT_TIMEOUT_MS,
    zmq.TCP_MAXRT: TCP_RETRANSMIT_MAX_MS,
}
KEEPALIVE: Options = {
    zmq.TCP_KEEPALIVE: 1,
    zmq.TCP_KEEPALIVE_IDLE: KEEPALIVE_IDLE_S,
    zmq.TCP_KEEPALIVE_INTVL: KEEPALIVE_INTERVAL_S,
    zmq.TCP_KEEPALIVE_CNT: KEEPALIVE_PROBES,
}
CONTROL_LANE: Options = {
    zmq.HEARTBEAT_IVL: REPLICA_HEARTBEAT_MS,
    zmq.HEARTBEAT_TIMEOUT: REPLICA_HEARTBEAT_TIMEOUT_MS,
    # the peer, too, gives up a connection on which it hears nothing
    zmq.HEARTBEAT_TTL: PEER_SILENCE_MS,
    zmq.TCP_MAXRT: TCP_RETRANSMIT_MAX_MS,
}
BULK_LANE = KEEPALIVE

# A peer that reconnects under its routing id takes the id over: the end of its old connection may
# not have been noticed yet. A send to an unknown or full peer is refused, not dropped.
_OF_KIND: Mapping[int, Options] = {
    zmq.ROUTER: {zmq.ROUTER_MANDATORY: 1, zmq.ROUTER_HANDOVER: 1},
    zmq.XPUB: {zmq.RCVHWM: SUBSCRIPTIONS_AHEAD, zmq.XPUB_VERBOSE: 1},
}


def of_replica(
    kind: int, lane: Options, *, message_size_max: int, high_water_mark: int
) -> dict[int, int]:
    """The options of a replica's socket of this kind; `lane`: CONTROL_LANE or BULK_LANE."""
    common = _of_both(kind, message_size_max=message_size_max, high_water_mark=high_water_mark)
    return {**common, **lane, **_OF_KIND.get(kind, {})}


def of_replica_connecting() -> dict[int, int]:
    """The options of a replica's socket that do not depend on where it connects."""
    return {
        zmq.CONNECT_TIMEOUT: CONNECT_MS,
        zmq.RECONNECT_IVL: RECONNECT_MIN_MS,
        zmq.RECONNECT_IVL_MAX: RECONNECT_MAX_MS,
    }


def of_client(kind: int, *, message_size_max: int, high_water_mark: int) -> dict[int, int]:
    """The options of a client's socket of this kind."""
    common = _of_both(kind, message_size_max=message_size_max, high_water_mark=high_water_mark)
    reconnect: Options = {
        zmq.RECONNECT_IVL: RECONNECT_MIN_MS,
        zmq.RECONNECT_IVL_MAX: CLIENT_RECONNECT_MAX_MS,
    }
    heartbeats: Options = CLIENT_HEARTBEATS if kind == zmq.DEALER else {}
    return {**common, **reconnect, **KEEPALIVE, **heartbeats}


def _of_both(kind: int, *, message_size_max: int, high_water_mark: int) -> dict[int, int]:
    return {
        zmq.LINGER: 0,
        zmq.SNDHWM: high_water_mark,
        zmq.RCVHWM: high_water_mark,
        zmq.MAXMSGSIZE: message_size_max,
        zmq.HANDSHAKE_IVL: HANDSHAKE_MS,
        # A SUB sends only its subscriptions. With IMMEDIATE they would leave only when its owner
        # calls into the socket after the connection was made.
        zmq.IMMEDIATE: int(kind != zmq.SUB),
    }
