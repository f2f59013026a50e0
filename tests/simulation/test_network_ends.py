"""The virtual network: connections that end, sockets that close, processes that die (FAULTS N8)."""

from __future__ import annotations

import pytest
import zmq

from tests.simulation.event_queue import MILLISECOND_NS, SECOND_NS
from tests.simulation.network_stage import (
    CONNECTED_NS,
    DELAY_NS,
    NetworkStage,
    received,
    received_numbers,
    send_numbers,
)
from transport.link import try_receive, try_send

THERE, BACK = (2, 1), (1, 2)  # from the node that connects to the one that is bound, and back
NOTICED_MS = 4_001


@pytest.fixture
def stage() -> NetworkStage:
    return NetworkStage()


@pytest.mark.parametrize("pair", [THERE, BACK])
def test_a_disconnection_loses_what_is_under_way_and_both_ends_connect_again(
    stage: NetworkStage, pair: tuple[int, int]
) -> None:
    """FAULTS N8: ZeroMQ loses the queue with the connection."""
    dealer, router = stage.dealer_and_router()
    send_numbers(dealer, [0])
    stage.run(5)
    send_numbers(dealer, range(1, 5))
    send_numbers(router, range(1, 5), b"n2")
    stage.network.disconnect([pair])
    assert not try_send(dealer, [b"parted"])
    assert not try_send(router, [b"n2", b"parted"])
    stage.queue.run_for(50 * MILLISECOND_NS + CONNECTED_NS)
    send_numbers(dealer, [5])
    send_numbers(router, [5], b"n2")
    stage.run(5)
    assert received_numbers(router) == [0, 5]  # what had arrived stays
    assert received_numbers(dealer) == [5]
    assert stage.counters.lost == 8
    assert stage.counters.disconnected == 1


def test_a_disconnection_loses_a_queue_that_was_held_back(stage: NetworkStage) -> None:
    push, pull = stage.push_and_pull()
    stage.network.cut([THERE], "hold")
    send_numbers(push, range(100))
    stage.run(1_000)
    stage.network.disconnect([THERE])
    stage.network.heal([THERE])
    stage.run(1_000)
    assert received(pull) == []
    assert stage.counters.lost == 100
    assert send_numbers(push, [100]) == [True]


def test_a_disconnection_ends_a_broken_connection_before_an_end_notices_the_cut(
    stage: NetworkStage,
) -> None:
    push, _ = stage.push_and_pull()
    stage.network.cut([THERE, BACK], "drop")
    assert send_numbers(push, [1]) == [True]
    stage.network.disconnect([THERE])
    assert send_numbers(push, [2]) == [False]
    assert stage.counters.disconnected == 1


def test_a_listener_that_dies_is_noticed_after_a_delay_and_found_when_it_is_back(
    stage: NetworkStage,
) -> None:
    dealer, router = stage.dealer_and_router()
    send_numbers(router, [1], b"n2")
    send_numbers(dealer, [1])
    stage.network.close_owner(stage.process("1"))
    assert send_numbers(dealer, [2]) == [True]  # accepted and lost
    stage.queue.run_for(DELAY_NS[1])
    assert send_numbers(dealer, [3]) == [False]
    assert received(dealer) == []
    again = stage.bind("router", "1.again")
    stage.queue.run_for(50 * MILLISECOND_NS + CONNECTED_NS)
    send_numbers(dealer, [4])
    stage.run(5)
    assert received(again) == [[b"n2", b"4"]]
    assert not router.is_readable


def test_a_peer_that_dies_is_forgotten_after_a_delay_but_not_what_had_arrived(
    stage: NetworkStage,
) -> None:
    dealer, router = stage.dealer_and_router()
    send_numbers(dealer, [1])
    stage.run(5)
    send_numbers(dealer, [2])
    stage.network.close_owner(stage.process("2"))
    assert send_numbers(router, [1], b"n2") == [True]
    stage.queue.run_for(DELAY_NS[1])
    assert send_numbers(router, [2], b"n2") == [False]
    assert received(router) == [[b"n2", b"1"]]
    stage.run(10_000)
    assert stage.network.counters.disconnected == 1
    with pytest.raises(zmq.ZMQError):
        try_send(dealer, [b"dead"])


def test_a_death_during_a_cut_is_noticed_late(stage: NetworkStage) -> None:
    push, _ = stage.push_and_pull()
    stage.network.cut([BACK], "hold")
    stage.network.close_owner(stage.process("1"))
    stage.run(199)
    assert send_numbers(push, [1]) == [True]
    stage.run(NOTICED_MS)
    assert send_numbers(push, [2]) == [False]


def test_a_death_takes_all_sockets_of_its_owner_and_no_others(stage: NetworkStage) -> None:
    pulls = {
        name: stage.bind("pull", name, f"tcp://1:{number}")
        for number, name in enumerate(("1.dying", "1.living"))
    }
    dying = [stage.connect("push", "1.dying", "tcp://1:1"), pulls["1.dying"]]
    push = stage.connect("push", "2", "tcp://1:1")
    stage.run(10)
    stage.network.close_owner(stage.process("1.dying"))
    assert [socket.is_closed for socket in dying] == [True, True]
    assert send_numbers(push, [1]) == [True]
    stage.run(5)
    assert received_numbers(pulls["1.living"]) == [1]
    stage.network.close_owner(stage.process("1.dying"))
    assert stage.counters.disconnected == 1


def test_what_is_unread_at_a_death_is_lost(stage: NetworkStage) -> None:
    push, pull = stage.push_and_pull()
    send_numbers(push, range(3))
    stage.run(5)
    pull.close(linger=0)
    pull.close(linger=0)
    assert not pull.is_readable
    assert stage.counters.lost == 3


def test_a_socket_closed_while_it_connects_never_does(stage: NetworkStage) -> None:
    stage.network.set_default_delay([THERE, BACK], (SECOND_NS, SECOND_NS))
    publisher = stage.bind("xpub")
    for closing_ms in (0, 500):
        subscriber = stage.connect("sub", topics=[b"t"])
        stage.run(closing_ms)
        subscriber.close(linger=0)
    stage.run(10_000)
    assert try_receive(publisher) is None


def test_neither_waiting_nor_lingering_is_played(stage: NetworkStage) -> None:
    pull = stage.bind("pull")
    assert pull.fileno() == -1
    with pytest.raises(ValueError, match="DONTWAIT"):
        pull.recv()
    with pytest.raises(ValueError, match="linger"):
        pull.close(linger=None)
    with pytest.raises(ValueError, match="RCVMORE only"):
        pull.getsockopt(zmq.LINGER)
    with pytest.raises(zmq.Again):
        pull.recv(zmq.DONTWAIT)
