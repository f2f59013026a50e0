"""How much of its answers may be under way to a client, and to all (SAFETY W6)."""

from __future__ import annotations

import pytest

from actors.egress.credit import BUSY_MAX_NS, AnswerCredit
from actors.topology import Counter


class Clients:
    """Answers that nobody has received, by client."""

    def __init__(self) -> None:
        self.under_way: dict[bytes, int] = {}
        self.asked = 0
        self.ended: list[bytes] = []
        self.slots = memoryview(bytearray(8 * len(Counter))).cast("Q")

    def asked_by(self, routing_id):
        """Known already."""

    def answered(self, routing_id, size_bytes):
        self.under_way[routing_id] = self.under_way.get(routing_id, 0) + size_bytes

    def unacknowledged_bytes(self, routing_id):
        self.asked += 1
        return self.under_way.get(routing_id, 0)

    def end_connection(self, routing_id):
        self.ended.append(routing_id)
        self.under_way.pop(routing_id)


@pytest.fixture
def clients():
    return Clients()


def credit_of(clients, *, total_max_bytes=250):
    return AnswerCredit(
        clients, clients.slots, per_client_bytes=100, total_max_bytes=total_max_bytes
    )


def serve(credit, client, size_bytes, now_ns=0) -> bool:
    if not credit.has_room(client, size_bytes, now_ns):
        return False
    credit.answered(client, size_bytes, now_ns)
    return True


def test_a_client_is_answered_again_when_what_it_got_has_arrived(clients):
    credit = credit_of(clients)
    assert [serve(credit, b"a", 40) for _ in range(3)] == [True, True, False]
    clients.under_way[b"a"] = 40
    assert serve(credit, b"a", 40)


def test_one_answer_is_made_whatever_its_size(clients):
    credit = credit_of(clients)
    assert serve(credit, b"a", 1_000)
    assert not serve(credit, b"a", 1)
    clients.under_way.clear()
    assert serve(credit, b"a", 1)


def test_all_clients_together_have_a_bound_and_the_slowest_is_left_for_the_others(clients):
    credit = credit_of(clients)
    assert all(serve(credit, client, 80) for client in (b"a", b"b", b"c"))
    assert not serve(credit, b"d", 80, 1)
    assert clients.ended == []
    assert not serve(credit, b"d", 80, BUSY_MAX_NS)
    assert clients.ended == [b"a"]
    assert serve(credit, b"d", 80, BUSY_MAX_NS + 1)
    assert sum(clients.under_way.values()) <= 250


def test_a_client_that_reads_is_never_the_slowest(clients):
    credit = credit_of(clients)
    serve(credit, b"a", 80)
    clients.under_way.clear()
    assert serve(credit, b"a", 80, BUSY_MAX_NS - 1)
    assert all(serve(credit, client, 80) for client in (b"b", b"c"))
    clients.under_way[b"a"] = 80
    assert not serve(credit, b"d", 80, BUSY_MAX_NS)
    assert clients.ended == [b"b"]
    assert clients.slots[Counter.EGRESS_CONNECTIONS_ENDED] == 1


def test_who_receives_without_a_break_is_not_slow_however_long_it_goes_on(clients):
    """A fast reader always has an answer under way; beside readers of nothing it was left first."""
    credit = credit_of(clients)
    serve(credit, b"fast", 40)
    assert all(serve(credit, client, 80, 1) for client in (b"a", b"b"))
    for step in range(1, 41):
        clients.under_way[b"fast"] = min(40, clients.under_way[b"fast"])
        assert serve(credit, b"fast", 40, step * BUSY_MAX_NS // 20)
    assert not serve(credit, b"d", 80, 2 * BUSY_MAX_NS)
    assert clients.ended == [b"a"]


def test_clients_that_are_gone_are_forgotten(clients):
    credit = credit_of(clients, total_max_bytes=1 << 40)
    for number in range(5_000):
        assert serve(credit, number.to_bytes(5, "big"), 80, number)
        clients.under_way.clear()
    assert len(credit._busy) < 3_000


def test_all_clients_are_looked_at_once_a_loop_however_many_wait(clients):
    credit = credit_of(clients, total_max_bytes=8_000)
    for number in range(100):
        assert serve(credit, number.to_bytes(5, "big"), 80)
    clients.asked = 0
    for number in range(100):
        assert not serve(credit, b"waiting" + number.to_bytes(5, "big"), 80, 1)
    assert clients.asked <= 200
