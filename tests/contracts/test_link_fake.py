"""What only the fake link can show on command: wires that are cut (SAFETY M5)."""

from __future__ import annotations

import pytest
import zmq

from transport.inproc import FakeNetwork
from transport.link import try_receive, try_send

ENDPOINT = "tcp://127.0.0.1:1"


def test_a_cut_wire_loses_what_is_queued_and_refuses_more() -> None:
    network = FakeNetwork()
    pull = network.bind(zmq.PULL, ENDPOINT)
    push = network.connect(zmq.PUSH, ENDPOINT)
    assert try_send(push, [b"in flight"])
    network.cut(ENDPOINT)
    assert try_receive(pull) is None
    assert not try_send(push, [b"refused"])
    network.heal(ENDPOINT)
    assert try_send(push, [b"after"])
    assert try_receive(pull) == [b"after"]


def test_subscriptions_are_told_anew_after_a_cut() -> None:
    network = FakeNetwork()
    publisher = network.bind(zmq.XPUB, ENDPOINT, welcome=b"t:welcome")
    other = network.connect(zmq.SUB, ENDPOINT, topics=[b"t"])
    assert try_receive(publisher) == [b"\1t"]
    assert try_receive(other) == [b"t:welcome"]
    network.cut(ENDPOINT)
    assert try_receive(publisher) == [b"\0t"]
    network.heal(ENDPOINT)
    assert try_receive(publisher) == [b"\1t"]
    assert try_receive(other) == [b"t:welcome"]


def test_a_listener_that_closes_takes_its_connections_along() -> None:
    network = FakeNetwork()
    router = network.bind(zmq.ROUTER, ENDPOINT)
    dealer = network.connect(zmq.DEALER, ENDPOINT, routing_id=b"n1")
    router.close(linger=0)
    assert not try_send(dealer, [b"refused"])
    again = network.bind(zmq.ROUTER, ENDPOINT)
    assert try_send(dealer, [b"hello"])
    assert try_receive(again) == [b"n1", b"hello"]


def test_the_fake_plays_neither_waiting_nor_lingering() -> None:
    network = FakeNetwork()
    pull = network.bind(zmq.PULL, ENDPOINT)
    assert pull.fileno() == -1
    with pytest.raises(ValueError, match="DONTWAIT"):
        pull.recv()
    with pytest.raises(ValueError, match="linger"):
        pull.close(linger=None)
