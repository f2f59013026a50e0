"""The virtual network's faults: messages lost, doubled, overtaken; pairs cut, held back, healed."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.event_queue import MILLISECOND_NS, SECOND_NS
from tests.simulation.network_stage import (
    CONNECTED_NS,
    DELAY_NS,
    FRAME_MAX,
    NetworkStage,
    received,
    received_numbers,
    send_numbers,
)
from transport.link import Lane, try_send

MARK = 4
THERE, BACK = (2, 1), (1, 2)  # from the node that connects to the one that is bound, and back
NOTICED_MS = 4_001


@pytest.fixture
def stage() -> NetworkStage:
    return NetworkStage()


# --- lanes ---


def test_a_cut_of_one_lane_leaves_the_other_lane_of_the_same_pair_alone(
    stage: NetworkStage,
) -> None:
    router = stage.bind("router", endpoint="tcp://1:2")
    dealer = stage.connect("dealer", endpoint="tcp://1:2")
    push, pull = stage.push_and_pull()
    stage.network.cut([THERE, BACK], "drop", Lane.BULK)
    send_numbers(push, range(3))
    assert try_send(dealer, [b"beat"])
    stage.run(10)
    assert received_numbers(pull) == []
    assert router.oldest is not None
    stage.network.heal([THERE, BACK], Lane.BULK)
    stage.run(NOTICED_MS + 3_000)
    send_numbers(push, range(3))
    stage.run(10)
    assert received_numbers(pull) == [0, 1, 2]


# --- single messages ---


def test_as_many_messages_vanish_as_the_quality_says(stage: NetworkStage) -> None:
    """FAULTS N6."""
    push, pull = stage.push_and_pull(high_water_mark=1_000)
    stage.network.set_quality([THERE], None, 250, 0, 0)
    assert all(send_numbers(push, range(1_000)))
    stage.run(10)
    got = received_numbers(pull)
    assert got == sorted(got)
    assert 650 < len(got) < 850
    assert stage.counters.lost == 1_000 - len(got)


def test_duplicates_come_soon_or_up_to_ten_seconds_later(stage: NetworkStage) -> None:
    push, pull = stage.push_and_pull(high_water_mark=1_000)
    stage.network.set_quality([THERE], None, 0, 1_000, 0)
    send_numbers(push, range(200))
    stage.network.set_quality([THERE])
    stage.run(50)
    soon = received_numbers(pull)
    stage.run(10_100)
    late = received_numbers(pull)
    assert Counter(soon + late) == dict.fromkeys(range(200), 2)
    assert 60 < len(late) < 140
    assert stage.counters.duplicated == 200


def test_a_late_duplicate_is_lost_with_its_connection(stage: NetworkStage) -> None:
    push, pull = stage.push_and_pull(high_water_mark=1_000)
    stage.network.set_quality([THERE], None, 0, 1_000, 0)
    send_numbers(push, range(100))
    stage.run(50)
    assert len(received(pull)) > 100
    stage.network.disconnect([THERE])
    stage.run(20_000)
    assert received(pull) == []
    assert stage.counters.lost > 0


def test_a_message_out_of_order_is_overtaken_and_delays_no_other(stage: NetworkStage) -> None:
    push, pull = stage.push_and_pull()
    stage.network.set_quality([THERE], None, 0, 0, 1_000)
    send_numbers(push, [0])
    stage.network.set_quality([THERE])
    send_numbers(push, [1, 2, 3])
    stage.queue.run_for(DELAY_NS[1])
    assert received_numbers(pull) == [1, 2, 3]
    stage.run(201)
    assert received_numbers(pull) == [0]
    assert stage.counters.reordered == 1


def test_faults_of_one_direction_spare_the_answers(stage: NetworkStage) -> None:
    dealer, router = stage.dealer_and_router()
    stage.network.set_quality([THERE], None, 1_000, 0, 0)
    send_numbers(dealer, range(50))
    send_numbers(router, range(50), b"n2")
    stage.run(10)
    assert received(router) == []
    assert received_numbers(dealer) == list(range(50))


def test_a_lost_message_leaves_its_place_at_the_mark(stage: NetworkStage) -> None:
    push, _ = stage.push_and_pull(high_water_mark=1)
    stage.network.set_quality([THERE], None, 1_000, 0, 0)
    assert send_numbers(push, range(5)) == [True] * 5


def test_values_that_make_no_sense_are_refused(stage: NetworkStage) -> None:
    with pytest.raises(ValueError, match="not of 1,000"):
        stage.network.set_quality([THERE], None, 1_001, 0, 0)
    with pytest.raises(ValueError, match="a delay from 2 to 1"):
        stage.network.set_quality([THERE], (2, 1))
    with pytest.raises(ValueError, match="drops or holds"):
        stage.network.cut([THERE], "snip")


# --- cuts that drop ---


def test_a_cut_loses_what_travels_and_what_is_sent_and_is_noticed_later(
    stage: NetworkStage,
) -> None:
    push, pull = stage.push_and_pull()
    send_numbers(push, [1])
    stage.network.cut([THERE, BACK], "drop")
    assert send_numbers(push, [2, 3]) == [True, True]
    stage.run(199)
    assert send_numbers(push, [4]) == [True]
    stage.run(NOTICED_MS)
    assert send_numbers(push, [5]) == [False]
    stage.run(10_000)
    assert send_numbers(push, [6]) == [False]
    assert received(pull) == []
    assert stage.counters.lost == 4
    assert stage.counters.disconnected == 1
    stage.network.heal([THERE, BACK])
    stage.queue.run_for(2 * SECOND_NS + CONNECTED_NS)
    assert send_numbers(push, [7]) == [True]
    stage.run(5)
    assert received_numbers(pull) == [7]


def test_each_end_notices_a_cut_at_a_time_of_its_own(stage: NetworkStage) -> None:
    firsts = []
    for seed in range(20):
        stage = NetworkStage(seed)
        dealer, router = stage.dealer_and_router()
        stage.network.cut([THERE, BACK], "drop")
        cut_ns = stage.queue.now_ns
        noticed: dict[str, int] = {}
        while len(noticed) < 2:
            stage.run(10)
            for name, is_there in (
                ("dealer", try_send(dealer, [b"?"])),
                ("router", try_send(router, [b"n2", b"?"])),
            ):
                if not is_there:
                    noticed.setdefault(name, stage.queue.now_ns - cut_ns)
        assert all(
            200 * MILLISECOND_NS <= each <= 4_010 * MILLISECOND_NS for each in noticed.values()
        )
        firsts.append(min(noticed, key=lambda name: noticed[name]))
    assert set(firsts) == {"dealer", "router"}


def test_a_cut_that_is_healed_before_it_is_noticed_has_broken_the_connection(
    stage: NetworkStage,
) -> None:
    push, pull = stage.push_and_pull()
    stage.network.cut([THERE], "drop")
    stage.network.heal([THERE])
    assert send_numbers(push, [1]) == [True]
    stage.queue.run_for((NOTICED_MS + 50) * MILLISECOND_NS + CONNECTED_NS)
    assert send_numbers(push, [2]) == [True]
    stage.run(5)
    assert received_numbers(pull) == [2]
    assert stage.counters.disconnected == 1


@pytest.mark.parametrize(("cut", "is_there_cut"), [(THERE, True), (BACK, False)])
def test_a_one_way_cut_lets_the_other_direction_through_until_an_end_notices(
    stage: NetworkStage, cut: tuple[int, int], is_there_cut: bool
) -> None:
    """FAULTS N2, N3."""
    dealer, router = stage.dealer_and_router()
    send_numbers(dealer, [1])
    send_numbers(router, [1], b"n2")
    stage.network.cut([cut], "drop")
    send_numbers(dealer, [2])
    send_numbers(router, [2], b"n2")
    stage.run(190)
    deaf, hearing = (router, dealer) if is_there_cut else (dealer, router)
    assert received(deaf) == []
    assert received_numbers(hearing) == [1, 2]
    stage.run(NOTICED_MS)
    assert not try_send(dealer, [b"parted"])
    assert not try_send(router, [b"n2", b"parted"])
    stage.run(20_000)
    assert not try_send(dealer, [b"a connection needs both directions"])
    stage.network.heal([cut])
    stage.queue.run_for(2 * SECOND_NS + CONNECTED_NS)
    assert try_send(dealer, [b"healed"])


def test_an_end_that_has_noticed_a_cut_receives_no_more(stage: NetworkStage) -> None:
    cases = 0
    for seed in range(10):
        stage = NetworkStage(seed)
        dealer, router = stage.dealer_and_router()
        stage.network.cut([THERE], "drop")
        while try_send(dealer, [b"?"]):
            stage.run(10)
        received(dealer)
        cases += try_send(router, [b"n2", b"the router has not noticed yet"])
        stage.run(NOTICED_MS)
        assert received(dealer) == []
    assert cases > 0


def test_a_second_cut_of_a_pair_is_not_noticed_earlier(stage: NetworkStage) -> None:
    noticed = []
    for cuts in (1, 50):
        stage = NetworkStage()
        push, _ = stage.push_and_pull()
        for _ in range(cuts):
            stage.network.cut([THERE], "drop")
        while try_send(push, [b"?"]):
            stage.run(1)
        noticed.append(stage.queue.now_ns)
    assert noticed[0] == noticed[1]


def test_a_cut_touches_no_other_pair(stage: NetworkStage) -> None:
    push, pull = stage.push_and_pull()
    other = stage.connect("push", "3")
    stage.run(10)
    stage.network.cut([(2, 1), (1, 2), (2, 3), (3, 2)], "drop")
    for number in range(100):
        send_numbers(push, [1_000])
        assert send_numbers(other, [number]) == [True]
        stage.run(100)
    assert received_numbers(pull) == list(range(100))
    assert stage.counters.disconnected == 1


def test_no_connection_is_made_over_a_cut_pair(stage: NetworkStage) -> None:
    for mode in ("drop", "hold"):
        for pair in (THERE, BACK):
            stage = NetworkStage()
            stage.network.cut([pair], mode)
            stage.bind("pull")
            push = stage.connect("push")
            stage.run(5_000)
            assert not try_send(push, [b"cut"])
            stage.network.heal([pair])
            stage.queue.run_for(2 * SECOND_NS + CONNECTED_NS)
            assert try_send(push, [b"healed"])


# --- cuts that hold ---


def test_what_is_held_back_comes_in_order_after_the_healing(stage: NetworkStage) -> None:
    """FAULTS N11."""
    push, pull = stage.push_and_pull()
    stage.network.set_quality([THERE], (0, 20 * MILLISECOND_NS))
    send_numbers(push, range(10))
    stage.network.cut([THERE], "hold")
    for number in range(10, 50):
        assert send_numbers(push, [number]) == [True]
        stage.run(1)
    assert received(pull) == []
    stage.run(20_000)
    assert send_numbers(push, [50]) == [True]
    wakes = stage.process("1").wakes
    stage.network.heal([THERE])
    assert received_numbers(pull) == list(range(50))
    assert stage.process("1").wakes > wakes
    send_numbers(push, [51])
    stage.run(41)
    assert received_numbers(pull) == [50, 51]
    assert stage.counters.disconnected == stage.counters.lost == 0


def test_a_hold_is_one_way_and_breaks_nothing(stage: NetworkStage) -> None:
    dealer, router = stage.dealer_and_router()
    stage.network.cut([BACK], "hold")
    send_numbers(dealer, [1])
    send_numbers(router, [1], b"n2")
    stage.run(30_000)
    assert received_numbers(router) == [1]
    assert received(dealer) == []
    stage.network.heal([BACK])
    assert received_numbers(dealer) == [1]


def test_a_held_pair_fills_up_to_the_mark(stage: NetworkStage) -> None:
    push, pull = stage.push_and_pull(high_water_mark=MARK)
    stage.network.cut([THERE], "hold")
    assert send_numbers(push, range(10)) == [True] * 2 * MARK + [False] * 2
    stage.run(100)
    stage.network.heal([THERE])
    assert received_numbers(pull) == list(range(2 * MARK))


def test_messages_out_of_order_are_held_back_too(stage: NetworkStage) -> None:
    push, pull = stage.push_and_pull()
    stage.network.set_quality([THERE], None, 0, 0, 1_000)
    send_numbers(push, [0])
    stage.network.cut([THERE], "hold")
    stage.run(1_000)
    assert received(pull) == []
    stage.network.heal([THERE])
    assert received_numbers(pull) == [0]


def test_what_was_held_back_is_lost_when_the_hold_becomes_a_drop(stage: NetworkStage) -> None:
    push, pull = stage.push_and_pull()
    stage.network.cut([THERE], "hold")
    send_numbers(push, range(3))
    stage.run(100)
    stage.network.cut([THERE], "drop")
    stage.network.heal([THERE])
    stage.run(NOTICED_MS)
    assert received(pull) == []
    assert stage.counters.lost == 3


def test_held_back_messages_end_with_their_sender(stage: NetworkStage) -> None:
    push, pull = stage.push_and_pull()
    stage.network.cut([THERE], "hold")
    send_numbers(push, range(3))
    stage.run(100)
    push.close(linger=0)
    stage.network.heal([THERE])
    stage.run(100)
    assert received(pull) == []
    assert stage.counters.lost == 3


def test_a_frame_too_large_among_those_held_back_ends_the_connection(stage: NetworkStage) -> None:
    push, pull = stage.push_and_pull()
    stage.network.cut([THERE], "hold")
    for frame in (b"fits", bytes(FRAME_MAX + 1), b"lost with the connection"):
        assert try_send(push, [frame])
    stage.run(100)
    stage.network.heal([THERE])
    assert received(pull) == [[b"fits"]]
    assert stage.counters.lost == 2


# --- everything at once ---


def test_healing_all_ends_cuts_and_qualities(stage: NetworkStage) -> None:
    dealer, router = stage.dealer_and_router()
    stage.network.set_quality([THERE], (SECOND_NS, SECOND_NS), 1_000, 1_000, 1_000)
    stage.network.cut([THERE], "hold")
    stage.network.cut([BACK], "drop")
    stage.network.heal_all()
    stage.run(NOTICED_MS + 2_100)
    send_numbers(dealer, range(100))
    stage.queue.run_for(DELAY_NS[1])
    assert received_numbers(router) == list(range(100))
    send_numbers(router, range(100), b"n2")
    stage.queue.run_for(DELAY_NS[1])
    assert received_numbers(dealer) == list(range(100))
