"""When a process looks at what its connections cost (SAFETY W6)."""

from __future__ import annotations

import pytest

from actors import guard as guard_module
from actors.guard import GROWTH_BYTES, LOOK_COST_NS, ConnectionGuard, CounterSlots, Guarded
from transport import link
from transport.link import Lane
from transport.listening import Connection
from transport.tcp_state import TcpState

LOOP_NS = 25_000_000
LOOPS = 40
CONNECTIONS = 4_096


class Looked(Connection):
    """One that counts how often somebody looks at it."""

    __slots__ = ()
    looks = 0

    def _state(self) -> TcpState | None:
        Looked.looks += 1
        return TcpState(0, 0, is_sending=False)


@pytest.mark.parametrize("connections", [10, CONNECTIONS])
def test_memory_that_comes_and_goes_with_each_batch_takes_a_quarter_of_the_time_at_most(
    monkeypatch, connections
):
    memory = [0]
    monkeypatch.setattr(guard_module, "private_bytes", lambda: memory[0])
    monkeypatch.setattr(Looked, "looks", 0)
    socket = link.router_bind("tcp://127.0.0.1:*", lane=Lane.BULK, message_size_max=4_096)
    try:
        guard = ConnectionGuard(
            [Guarded("test", socket, 4_096, 1 << 20)],
            memoryview(bytearray(64)).cast("Q"),
            CounterSlots(0, 1, 2, 3),
            memory_max_bytes=1 << 30,
        )
        guard.connections_max = CONNECTIONS
        for fd in range(connections):
            socket.account.connections[fd] = Looked(fd, 1, accepted_ns=0)
        for loop in range(LOOPS):
            memory[0] = loop % 2 * 2 * GROWTH_BYTES
            guard.do_work(loop * LOOP_NS)
    finally:
        socket.account.connections.clear()
        socket.close()
    assert Looked.looks >= (LOOPS // 8 if connections == CONNECTIONS else LOOPS // 2) * connections
    assert Looked.looks * LOOK_COST_NS <= LOOPS * LOOP_NS // 4
