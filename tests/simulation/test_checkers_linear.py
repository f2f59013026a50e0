"""The fast append checker says what a search through all orders says."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from actors.simulation.checkers.linear import NEVER_NS, Append, TailRead, find_fault
from tests.simulation.brute_force import Call, is_linearizable

HISTORIES = 100_000
OPERATIONS_MAX = 6
MOMENTS = 12
SEED = 20_261_121


class Drawn:
    """One small history: calls, and the appends that the log holds in the end, in order."""

    def __init__(self, calls: list[Call], final: list[int]) -> None:
        self.calls = calls
        self.final = final


def draw(random: Random) -> Drawn:
    """A true history: calls at random times, each taking effect at a random moment within."""
    drawn: list[tuple[float, Call]] = []
    for name in range(random.randint(2, OPERATIONS_MAX)):
        invoked_ns = random.randrange(MOMENTS)
        returned_ns = random.randint(invoked_ns, MOMENTS)
        effect = invoked_ns + random.random() * (returned_ns - invoked_ns)
        count = random.choice((0, 1, 1, 2, 3))
        if count and random.random() < 0.25:  # no answer came; perhaps it took effect, late
            effect = invoked_ns + random.random() * MOMENTS
            effect = effect if random.random() < 0.6 else NEVER_NS
            returned_ns = NEVER_NS
        drawn.append((effect, Call(name, count, invoked_ns, returned_ns, None)))
    drawn.sort(key=lambda each: each[0])
    calls, final, end_lsn = [], [], 0
    for effect, call in drawn:
        is_answered = call.returned_ns != NEVER_NS
        if effect != NEVER_NS and call.count:
            final.append(call.name)
            calls.append(replace(call, answer=end_lsn + 1 if is_answered else None))
            end_lsn += call.count
        else:
            calls.append(replace(call, answer=end_lsn if is_answered else None))
    return Drawn(sorted(calls, key=lambda call: call.name), final)


def spoil(history: Drawn, random: Random) -> None:
    """Perhaps make it a lie: another order in the log, another answer, another time."""
    calls, final = history.calls, history.final
    place = random.randrange(len(calls))
    call = calls[place]
    match random.randrange(4):
        case 0 if len(final) > 1:
            at = random.randrange(len(final) - 1)
            final[at], final[at + 1] = final[at + 1], final[at]
            answer_by_log(history)
        case 1 if call.count == 0:
            assert call.answer is not None
            calls[place] = replace(call, answer=max(call.answer + random.choice((-2, -1, 1, 2)), 0))
        case 2:
            moved_ns = random.randint(-4, 4)
            length_ns = call.returned_ns - call.invoked_ns
            invoked_ns = max(call.invoked_ns + moved_ns, 0)
            returned_ns = NEVER_NS if call.returned_ns == NEVER_NS else invoked_ns + length_ns
            calls[place] = replace(call, invoked_ns=invoked_ns, returned_ns=returned_ns)
        case _:
            if call.returned_ns != NEVER_NS:
                calls[place] = replace(call, returned_ns=call.invoked_ns)


def answer_by_log(history: Drawn) -> None:
    """Give every answered append the LSN it has in the log as it is now."""
    first_lsn = 1
    for name in history.final:
        call = history.calls[name]
        if call.answer is not None:
            history.calls[name] = replace(call, answer=first_lsn)
        first_lsn += call.count


def fast(history: Drawn) -> bool:
    """The fast checker on the same history; the answers of its appends are the log's (I1)."""
    appends, first_lsn = [], 1
    for name in history.final:
        call = history.calls[name]
        last_lsn = first_lsn + call.count - 1
        appends.append(Append(first_lsn, last_lsn, call.invoked_ns, call.returned_ns))
        first_lsn = last_lsn + 1
    reads = [
        TailRead(call.answer, call.invoked_ns, call.returned_ns)
        for call in history.calls
        if call.count == 0 and call.answer is not None
    ]
    return find_fault(appends, reads) is None


@pytest.mark.long
@pytest.mark.slow
def test_the_fast_checker_agrees_with_the_search_on_a_hundred_thousand_histories() -> None:
    random = Random(SEED)
    verdicts = {True: 0, False: 0}
    for number in range(HISTORIES):
        history = draw(random)
        if number % 3:
            spoil(history, random)
        verdict = is_linearizable(tuple(history.calls), tuple(history.final))
        assert fast(history) == verdict, (number, history.calls, history.final)
        assert verdict or number % 3  # a true history is one
        verdicts[verdict] += 1
    assert min(verdicts.values()) > HISTORIES // 10


def test_the_search_refuses_what_is_plainly_wrong() -> None:
    first, second = Call(0, 1, 0, 1, 1), Call(1, 1, 2, 3, 2)
    assert is_linearizable((first, second), (0, 1))
    late = replace(first, answer=2), replace(second, answer=1)
    assert not is_linearizable(late, (1, 0))
    assert not is_linearizable((first, second), (0,))


def test_an_unknown_append_may_take_effect_long_after_everything() -> None:
    unknown = Append(2, 2, 0, NEVER_NS)
    assert find_fault([Append(1, 1, 50, 60), unknown]) is None
    assert find_fault([Append(1, 1, 0, NEVER_NS), Append(2, 2, 50, 60)]) is None


def test_equal_times_are_no_order() -> None:
    assert find_fault([Append(1, 1, 5, 9), Append(2, 2, 0, 5)]) is None
    assert find_fault([Append(1, 1, 6, 9), Append(2, 2, 0, 5)]) is not None
