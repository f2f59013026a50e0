"""The virtual network: connections, order, marks, names, what is refused (SAFETY M5; FAULTS Z1,
Z2, Z3, Z5)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
import zmq

from tests.simulation.event_queue import MILLISECOND_NS, SECOND_NS
from tests.simulation.network_stage import (
    CONNECTED_NS,
    DELAY_NS,
    ENDPOINT,
    FRAME_MAX,
    NetworkStage,
    received,
    received_numbers,
    send_numbers,
)
from transport.errors import LinkError, PortInUse
from transport.link import try_receive, try_receive_views, try_send

MARK = 4


@pytest.fixture
def stage() -> NetworkStage:
    return NetworkStage()


# --- connecting ---


def test_connecting_takes_a_round_trip(stage: NetworkStage) -> None:
    stage.network.set_default_delay([(2, 1)], (3_000, 3_000))
    stage.network.set_default_delay([(1, 2)], (40_000, 40_000))
    stage.bind("pull")
    push = stage.connect("push")
    stage.queue.run_for(42_999)
    assert not try_send(push, [b"early"])
    stage.queue.run_for(1)
    assert try_send(push, [b"now"])


def test_a_listener_that_comes_late_is_found_by_attempts_at_most_200_ms_apart(
    stage: NetworkStage,
) -> None:
    attempts: list[int] = []
    stage.network.set_default_delay([(2, 1), (1, 2)], (0, 0))
    push = stage.connect("push")
    at = stage.queue.at

    def watch(at_ns: int, action: Callable[..., None], *args: Any) -> None:
        attempts.append(at_ns - stage.queue.now_ns)
        at(at_ns, action, *args)

    stage.queue.at = watch  # type: ignore[method-assign]
    stage.run(8_000)
    waits = [wait // MILLISECOND_NS for wait in attempts if wait]
    assert waits[:3] == [50, 100, 200]
    assert set(waits[3:]) == {200}
    assert sum(waits) > 8_000 - 200
    stage.bind("pull")
    stage.run(2_000)
    assert try_send(push, [b"now"])


def test_a_connection_that_ended_is_sought_every_50_ms_again(stage: NetworkStage) -> None:
    push = stage.connect("push")
    stage.run(10_000)
    stage.bind("pull")
    stage.run(2_100)
    assert try_send(push, [b"connected"])
    stage.network.disconnect([(1, 2)])
    assert not try_send(push, [b"parted"])
    stage.queue.run_for(50 * MILLISECOND_NS + CONNECTED_NS)
    assert try_send(push, [b"connected again"])


def test_sockets_of_kinds_that_do_not_match_never_connect(stage: NetworkStage) -> None:
    stage.bind("router")
    push = stage.connect("push")
    stage.run(10_000)
    assert not try_send(push, [b"to a router"])


def test_no_connection_is_a_refusal_with_the_error_of_zeromq(stage: NetworkStage) -> None:
    push = stage.connect("push")
    with pytest.raises(zmq.Again) as again:
        push.send(b"message", zmq.DONTWAIT)
    assert again.value.errno == errno.EAGAIN
    router = stage.bind("router")
    with pytest.raises(zmq.ZMQError) as unreachable:
        router.send(b"nobody", zmq.DONTWAIT | zmq.SNDMORE)
    assert unreachable.value.errno == errno.EHOSTUNREACH
    assert stage.counters.refused == 2
    assert stage.counters.messages == 0


def test_a_closed_socket_is_an_error_not_a_refusal(stage: NetworkStage) -> None:
    push, _ = stage.push_and_pull()
    push.close(linger=0)
    with pytest.raises(zmq.ZMQError) as closed:
        push.send(b"message", zmq.DONTWAIT)
    assert closed.value.errno == errno.ENOTSOCK
    with pytest.raises(zmq.ZMQError):
        push.may_receive()
    with pytest.raises(zmq.ZMQError):
        push.recv(zmq.DONTWAIT)


def test_a_socket_that_only_receives_cannot_send(stage: NetworkStage) -> None:
    _, pull = stage.push_and_pull()
    subscriber = stage.connect("sub", topics=[b""])
    for socket in (pull, subscriber):
        with pytest.raises(zmq.ZMQError) as unsupported:
            socket.send(b"message", zmq.DONTWAIT)
        assert unsupported.value.errno == errno.ENOTSUP


def test_a_port_is_in_use_while_its_holder_lives(stage: NetworkStage) -> None:
    stage.bind("pull")
    with pytest.raises(PortInUse, match="in use"):
        stage.bind("router", "1.second")
    stage.network.close_owner(stage.process("1"))
    assert stage.bind("router", "1.second").endpoint == ENDPOINT


def test_a_port_of_another_node_cannot_be_had(stage: NetworkStage) -> None:
    with pytest.raises(LinkError, match="not of node 2"):
        stage.bind("pull", "2")


# --- order, time, marks ---


def test_messages_of_a_connection_stay_in_order_whatever_their_delays(stage: NetworkStage) -> None:
    dealer, router = stage.dealer_and_router()
    stage.network.set_quality([(1, 2), (2, 1)], (0, 50 * MILLISECOND_NS))
    for number in range(100):
        send_numbers(dealer, [2 * number, 2 * number + 1])
        send_numbers(router, [number], b"n2")
        stage.run(0.3)
    stage.run(60)
    assert received_numbers(router) == list(range(200))
    assert received_numbers(dealer) == list(range(100))


def test_a_fast_message_waits_for_a_slow_one_and_does_not_hurry_it(stage: NetworkStage) -> None:
    push, pull = stage.push_and_pull()
    stage.network.set_quality([(2, 1)], (SECOND_NS, SECOND_NS))
    send_numbers(push, [1])
    stage.network.set_quality([(2, 1)])
    send_numbers(push, [2])
    stage.run(999)
    assert received(pull) == []
    stage.run(1)
    assert received_numbers(pull) == [1, 2]


def test_connections_overtake_each_other(stage: NetworkStage) -> None:
    """FAULTS N7."""
    stage.network.set_quality([(2, 1)], (0, 50 * MILLISECOND_NS))
    pull = stage.bind("pull")
    pushes = [stage.connect("push") for _ in range(20)]
    stage.run(100)
    for number, push in enumerate(pushes):
        send_numbers(push, [number])
    stage.run(60)
    got = received_numbers(pull)
    assert sorted(got) == list(range(20))
    assert got != sorted(got)


def test_a_message_takes_the_delay_from_its_senders_own_moment_and_wakes_the_receiver(
    stage: NetworkStage,
) -> None:
    push, pull = stage.push_and_pull()
    stage.network.set_quality([(2, 1)], (700, 700))
    stage.process("2").busy_ns = 300
    wakes = stage.process("1").wakes
    send_numbers(push, [1])
    stage.queue.run_for(999)
    assert not pull.is_readable
    assert stage.process("1").wakes == wakes
    stage.queue.run_for(1)
    assert pull.is_readable
    assert stage.process("1").wakes == wakes + 1
    assert received_numbers(pull) == [1]


def test_each_direction_of_each_pair_has_its_own_delay(stage: NetworkStage) -> None:
    dealer, router = stage.dealer_and_router()
    stage.network.set_quality([(2, 1)], (SECOND_NS, SECOND_NS))
    send_numbers(dealer, [1])
    send_numbers(router, [2], b"n2")
    stage.queue.run_for(DELAY_NS[1])
    assert received_numbers(dealer) == [2]
    assert not router.is_readable
    stage.network.set_quality([(2, 1)])
    stage.run(1_000)
    assert received_numbers(router) == [1]


def test_at_twice_the_mark_sends_are_refused_until_messages_are_received(
    stage: NetworkStage,
) -> None:
    push, pull = stage.push_and_pull(high_water_mark=MARK)
    assert send_numbers(push, range(5)) == [True] * 5
    stage.run(5)  # arrived and unread counts, too
    assert send_numbers(push, range(5, 10)) == [True] * 3 + [False] * 2
    assert stage.counters.refused == 2
    assert try_receive(pull) == [b"0"]
    assert send_numbers(push, [8, 9]) == [True, False]
    stage.run(5)
    assert received_numbers(pull) == list(range(1, 9))


def test_a_message_of_many_frames_is_one_at_the_mark_and_arrives_whole(stage: NetworkStage) -> None:
    push, pull = stage.push_and_pull(high_water_mark=1)
    assert try_send(push, [b"1", b"", b"3"])
    assert try_send(push, [b"next"])
    assert not try_send(push, [b"refused", b"whole"])
    stage.run(5)
    views = try_receive_views(pull)
    assert views is not None
    assert [bytes(view) for view in views] == [b"1", b"", b"3"]
    assert received(pull) == [[b"next"]]


def test_a_lent_frame_may_be_overwritten_at_once(stage: NetworkStage) -> None:
    push, pull = stage.push_and_pull()
    memory = bytearray(b"aaaa")
    assert try_send(push, [memoryview(memory)])
    memory[:] = b"bbbb"
    stage.run(5)
    assert try_receive(pull) == [b"aaaa"]


def test_a_frame_above_the_limit_parts_its_sender_and_is_not_delivered(stage: NetworkStage) -> None:
    """SAFETY W6."""
    push, pull = stage.push_and_pull()
    assert try_send(push, [b"fits", bytes(FRAME_MAX)])
    assert try_send(push, [b"too large", bytes(FRAME_MAX + 1)])
    assert try_send(push, [b"lost with the connection"])
    stage.run(100)
    assert [frames[0] for frames in received(pull)] == [b"fits"]
    assert stage.counters.disconnected == 1
    assert try_send(push, [b"connected again"])


# --- names, subscriptions ---


def test_names_are_made_one_a_connection_and_never_twice(stage: NetworkStage) -> None:
    router = stage.bind("router")
    dealer = stage.connect("dealer")
    names = []
    for _ in range(3):
        stage.run(100)
        assert try_send(dealer, [b"hello"])
        stage.run(5)
        names += [frames[0] for frames in received(router)]
        stage.network.disconnect([(2, 1)])
    assert names == [b"\0\0\0\0\1", b"\0\0\0\0\2", b"\0\0\0\0\3"]


def test_a_new_connection_takes_its_name_over_from_an_older_one(stage: NetworkStage) -> None:
    """ROUTER_HANDOVER; the older one notices, connects again and takes it back."""
    old, router = stage.dealer_and_router()
    new = stage.connect("dealer", "2.second", routing_id=b"n2")
    send_numbers(router, [1], b"n2")
    stage.queue.run_for(CONNECTED_NS)
    assert received_numbers(old) == [1]
    send_numbers(router, [2], b"n2")
    stage.queue.run_for(DELAY_NS[1])
    assert received_numbers(new) == [2]
    assert not try_send(old, [b"has noticed"])
    stage.queue.run_for(50 * MILLISECOND_NS + CONNECTED_NS)
    assert try_send(old, [b"has come back"])
    send_numbers(router, [3], b"n2")
    stage.queue.run_for(DELAY_NS[1])
    assert received_numbers(old) == [3]
    assert received_numbers(new) == []


def test_a_subscription_reaches_the_publisher_a_delay_after_the_connection(
    stage: NetworkStage,
) -> None:
    stage.network.set_default_delay([(1, 2), (2, 1)], (1_000, 1_000))
    publisher = stage.bind("xpub")
    subscriber = stage.connect("sub", topics=[b"a", b"b"])
    stage.queue.run_for(2_999)
    assert not publisher.is_readable
    send_numbers(publisher, [1], b"a")
    stage.queue.run_for(1)
    assert received(publisher) == [[b"\1a"], [b"\1b"]]
    for topic in (b"a2", b"c", b"b"):
        send_numbers(publisher, [2], topic)
    stage.queue.run_for(1_000)
    assert received(subscriber) == [[b"a2", b"2"], [b"b", b"2"]]


def test_a_welcome_and_subscriptions_come_with_every_connection_however_lossy(
    stage: NetworkStage,
) -> None:
    """Otherwise a connection might never carry a message, which cannot happen with TCP."""
    stage.network.set_quality([(1, 2), (2, 1)], None, 1_000, 0, 0)
    publisher = stage.bind("xpub", welcome=b"t:welcome")
    subscriber = stage.connect("sub", topics=[b"t"])
    deaf = stage.connect("sub", topics=[b"u"])
    for _ in range(2):
        stage.run(100)
        assert sorted(received(publisher)) == [[b"\1t"], [b"\1u"]]
        assert received(subscriber) == [[b"t:welcome"]]
        assert received(deaf) == []
        stage.network.disconnect([(2, 1)])
        assert received(publisher) == [[b"\0t"], [b"\0u"]]


def test_a_publisher_drops_silently_at_the_mark_and_for_that_subscriber_only(
    stage: NetworkStage,
) -> None:
    publisher = stage.bind("xpub", high_water_mark=MARK)
    slow = stage.connect("sub", topics=[b""], high_water_mark=MARK)
    fast = stage.connect("sub", "3", topics=[b""], high_water_mark=MARK)
    stage.run(20)
    got: list[int] = []
    for number in range(20):
        assert send_numbers(publisher, [number]) == [True]
        stage.run(5)
        got += received_numbers(fast)
    assert got == list(range(20))
    assert received_numbers(slow) == list(range(2 * MARK))
    assert stage.counters.lost == 20 - 2 * MARK
    assert stage.counters.refused == 0
    assert stage.counters.messages == 20


def test_only_the_end_of_a_topics_last_subscription_is_reported(stage: NetworkStage) -> None:
    publisher = stage.bind("xpub")
    first, second = (stage.connect("sub", topics=[b"t"]) for _ in range(2))
    stage.run(20)
    assert received(publisher) == [[b"\1t"], [b"\1t"]]
    first.close(linger=0)
    stage.run(5)
    assert received(publisher) == []
    second.close(linger=0)
    stage.run(5)
    assert received(publisher) == [[b"\0t"]]


# --- observation ---


def test_every_accepted_message_is_seen_once_with_its_sender(stage: NetworkStage) -> None:
    seen: list[tuple[str, str, list[bytes]]] = []
    dealer, router = stage.dealer_and_router()
    stage.network.on_send = lambda owner, endpoint, frames: seen.append(
        (owner.name, endpoint, frames)
    )
    assert try_send(dealer, [b"question", b"?"])
    assert try_send(router, [b"n2", b"answer"])
    assert not try_send(router, [b"nobody", b"refused"])
    assert seen == [("2", ENDPOINT, [b"question", b"?"]), ("1", ENDPOINT, [b"n2", b"answer"])]
    assert stage.counters.messages == 2
    assert stage.counters.refused == 1


def history(seed: int) -> list[object]:
    """What is received when, on a network that does everything that it can do wrong."""
    stage = NetworkStage(seed)
    told: list[object] = []
    router = stage.bind("router")
    dealers = [stage.connect("dealer", f"{node}") for node in (0, 2, 3)]
    pairs = [(1, 2), (2, 1), (3, 1), (0, 1)]
    stage.network.set_quality(pairs, None, 100, 100, 100)
    for round_ in range(200):
        for dealer in dealers:
            told.append(send_numbers(dealer, [round_]))
        stage.run(7)
        told += [(stage.queue.now_ns, *frames) for frames in received(router)]
        if round_ % 40 == 20:
            stage.network.cut([(2, 1)], "drop")
            stage.network.cut([(1, 3)], "hold")
            stage.network.disconnect([(0, 1)])
        if round_ % 40 == 39:
            stage.network.heal([(2, 1), (1, 3)])
    return [*told, repr(stage.counters)]


def test_one_seed_is_one_history() -> None:
    assert history(1) == history(1)
    assert history(1) != history(2)
