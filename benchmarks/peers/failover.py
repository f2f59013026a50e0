"""How long appends wait when the leader is killed: one at a time, again and again, SIGKILL.

Owns the course of it: all nodes in step, a calm while, the kill, the first acknowledgement of an
append that was sent after the kill; then the dead node is started again.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from benchmarks.peers.line_process import LineProcess
from benchmarks.peers.peer import Peer
from logstore.client.clock import monotonic_ns, seconds_from_now
from logstore.errors import Unreachable

CALM_S = 1.0
# Until the probe has its first acknowledgement: it may be a virtual machine that starts.
PROBE_TIMEOUT_S = 60.0
FAILOVER_TIMEOUT_S = 60.0


class Failover(msgspec.Struct, frozen=True, tag="failover", tag_field="kind"):
    """One kill of the leader. `seconds`: from before the kill until the first acknowledgement of an
    append that was sent after it."""

    system: str
    durability: str
    kill: int
    leader: int
    seconds: float


def kill_leaders(peer: Peer, system: str, durability: str, kills: int) -> Iterator[Failover]:
    """Kill the leader so many times, at a cluster that runs. `durability`: of the probe's appends.

    Raises:
      LogStoreError: nothing was acknowledged within FAILOVER_TIMEOUT_S of a kill, or the nodes did
        not come in step again.
    """
    probe = peer.begin_probe()
    for number in range(1, kills + 1):
        leader = peer.wait_in_step()
        probe.hear(PROBE_TIMEOUT_S)
        if not probe.drain(CALM_S):
            raise Unreachable(f"nothing is acknowledged before kill {number}")
        before_ns = monotonic_ns()
        peer.kill(leader)
        acknowledged_ns = first_sent_after(probe, peer.killed_ns())
        seconds = round((acknowledged_ns - before_ns) / 1e9, 3)
        yield Failover(system, durability, number, leader, seconds)
        peer.start(leader)


def first_sent_after(probe: LineProcess, killed_ns: int) -> int:
    """When the first append that was sent after `killed_ns` was acknowledged; what is on its way at
    the kill may have been taken before it."""
    deadline_ns = seconds_from_now(FAILOVER_TIMEOUT_S)
    while (now_ns := monotonic_ns()) < deadline_ns:
        line = probe.hear((deadline_ns - now_ns) / 1e9)
        sent_ns, acknowledged_ns = map(int, line.split())
        if sent_ns > killed_ns:
            return acknowledged_ns
    raise Unreachable(f"nothing was acknowledged within {FAILOVER_TIMEOUT_S:g} s of the kill")
