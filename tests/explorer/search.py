"""Breadth first through every state within the bound.

Owns the visited states and the way back from each. A state is the numbers of three local states, of
the ledger, and the set of messages in flight. Three reductions, all sound for what is checked:

* Subsumption. Messages may be left lying, so a state with more of them in flight can do all that
  one with fewer can, replicas and ledger being equal. Only the largest sets are kept.
* Symmetry. Of the six states that differ by the numbers of the replicas only, one is kept.
* Messages that cannot matter any more are forgotten (`wire`).

The way to a violation is the shortest one: a state is dropped only for one that was reached in as
few steps or fewer.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from logstore.model import Term
from tests.explorer.bound import REPLICAS, Bound
from tests.explorer.events import Happening, Heard, TermSeen
from tests.explorer.local_states import Facts, LocalStates
from tests.explorer.promises import Broken, Ledger, after
from tests.explorer.symmetry import RENUMBERINGS, Nodes, images, mirror_event
from tests.explorer.wire import Wire


class Violation(msgspec.Struct, frozen=True):
    """A broken promise and the shortest way there: (replica, event) from the first state on."""

    text: str
    path: list[tuple[int, Happening]]


class Outcome(msgspec.Struct, frozen=True):
    """What an exploration came to. `is_exhausted`: no state within the bound was left out."""

    bound: Bound
    states: int
    transitions: int
    depth: int
    local_states: int
    core_steps: int
    messages: int
    cut: int
    is_exhausted: bool
    violation: Violation | None


class _Move(NamedTuple):
    """A local step, seen from one replica of the ring. `cause` numbers (replica, event)."""

    cause: int
    state: int
    posted: int
    fault: str | None
    is_cut: bool
    is_watched: bool  # it changes something that promises are about


class _Open(NamedTuple):
    """A state whose successors are not known yet."""

    number: int
    nodes: Nodes
    ledger: int
    flying: int


class Explorer:
    """One exploration: `run` it once."""

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self.local = LocalStates(bound)
        self.wire = Wire(bound.terms)
        self.states = self.transitions = self.depth = self.cut = 0
        self.violation: Violation | None = None
        self._ledgers = [Ledger((0,) * bound.terms)]
        self._ledger_numbers = {self._ledgers[0]: 0}
        self._checked: dict[tuple[int, int, tuple[Facts, ...]], int | Broken] = {}
        self._causes_known: list[tuple[int, Happening]] = []
        self._deliveries: list[dict[int, _Move]] = []  # for each message: by local state
        self._own_moves: dict[tuple[int, int], tuple[_Move, ...]] = {}
        self._idle: tuple[dict[int, int], ...] = ({}, {}, {})
        self._seen: dict[tuple[Nodes, int], list[int]] = {}
        self._parents = array("I")
        self._causes = array("I")
        self._turns = array("B")  # the renumbering between a state's parent and it
        self._turned_ledgers: dict[tuple[int, int], int] = {}
        self._mirrored = self.local.mirrored
        self._mattering_of = 0
        self._mattering_known: tuple[dict[int, int], ...] = ({}, {}, {})

    def run(self, is_out_of_time: Callable[[], bool]) -> Outcome:
        """Explore until nothing is left, a promise is broken, or time is up."""
        level = [self._found(0, 0, (0, 0, 0), 0, 0)]
        is_exhausted = False
        while not self._is_broken():
            level = [each for each in level if each.flying in self._seen[each[1:3]]]
            if not level:
                is_exhausted = True
                break
            following: list[_Open] = []
            for at, each in enumerate(level):
                if at % 256 == 0 and is_out_of_time():
                    return self._outcome(is_exhausted=False)
                self._expand(each, following)
                if self._is_broken():
                    break
            level = following
            self.depth += bool(level)
        return self._outcome(is_exhausted=is_exhausted)

    def _is_broken(self) -> bool:
        return self.violation is not None

    # --- one state ---

    def _expand(self, state: _Open, following: list[_Open]) -> None:
        """Every successor of `state`. Hot."""
        wire, nodes, flying = self.wire, state.nodes, state.flying
        table = self.local.states
        for replica, local in enumerate(nodes):
            for move in self._moves_of(replica, local):
                self._follow(state, replica, move, following)
            newest = max(table[each].ear.durable_term for each in nodes)
            for term in range(table[local].facts.term + 1, newest + 1):
                self._follow(state, replica, self._term_seen(replica, local, term), following)
            idle = self._idle[replica]
            bits = flying & wire.to_replica[replica] & ~idle.get(local, 0)
            while bits:
                bit = bits & -bits
                bits ^= bit
                number = bit.bit_length() - 1
                move = self._delivery(number, local)
                if move.state == local and not move.posted and move.fault is None:
                    idle[local] = idle.get(local, 0) | bit
                else:
                    self._follow(state, replica, move, following)

    def _follow(self, state: _Open, replica: int, move: _Move, following: list[_Open]) -> None:
        """Go where `move` leads, unless a state that can do as much was there before. Hot."""
        self.transitions += 1
        if move.fault is not None:
            self._fail(move.fault, state.number, move.cause)
            return
        if move.is_cut:
            self.cut += 1
            return
        one, two, three = nodes = _with(state.nodes, replica, move.state)
        ledger = state.ledger
        if move.is_watched:
            checked = self._check(ledger, nodes, replica)
            if isinstance(checked, Broken):
                self._fail(checked.text, state.number, move.cause)
                return
            ledger = checked
        to_first, to_second, to_third = self._mattering()
        try:
            flying = to_first[one] | to_second[two] | to_third[three]
        except KeyError:
            flying = self._learn_mattering(nodes)
        flying &= state.flying | move.posted
        mirrored = self._mirrored
        alike = images(nodes, (mirrored(one), mirrored(two), mirrored(three)))
        least = min(alike)
        if least != nodes:
            turn = alike.index(least)
            nodes, flying = least, self.wire.renumbered(flying, turn)
            ledger = self._renumbered_ledger(ledger, turn)
        else:
            turn = 0
        known = self._seen.get((nodes, ledger))
        if known is None:
            self._seen[nodes, ledger] = [flying]
        else:
            for each in known:
                if flying | each == each:
                    return
            known[:] = [each for each in known if flying | each != flying]
            known.append(flying)
        self._turns.append(turn)
        following.append(self._found(state.number, move.cause, nodes, ledger, flying))

    def _found(self, parent: int, cause: int, nodes: Nodes, ledger: int, flying: int) -> _Open:
        number = self.states
        self.states += 1
        self._parents.append(parent)
        self._causes.append(cause)
        if number == 0:
            self._turns.append(0)
            self._seen[nodes, ledger] = [flying]
        return _Open(number, nodes, ledger, flying)

    def _mattering(self) -> tuple[dict[int, int], ...]:
        """For each replica and local state, the messages to it that matter; until a new message
        comes up."""
        if self._mattering_of != len(self.wire.messages):
            self._mattering_of = len(self.wire.messages)
            for each in self._mattering_known:
                each.clear()
        return self._mattering_known

    def _learn_mattering(self, nodes: Nodes) -> int:
        flying = 0
        for replica, local in enumerate(nodes):
            bits = self.wire.mattering(replica, self.local.states[local].ear)
            self._mattering_known[replica][local] = bits
            flying |= bits
        return flying

    def _check(self, ledger: int, nodes: Nodes, changed: int) -> int | Broken:
        """The number of the ledger after `changed` did something, or what it broke."""
        facts = tuple(self.local.states[each].facts for each in nodes)
        key = (ledger, changed, facts)
        known = self._checked.get(key)
        if known is None:
            result = after(self._ledgers[ledger], facts, changed)
            known = result if isinstance(result, Broken) else self._ledger_number(result)
            self._checked[key] = known
        return known

    def _ledger_number(self, ledger: Ledger) -> int:
        number = self._ledger_numbers.setdefault(ledger, len(self._ledgers))
        if number == len(self._ledgers):
            self._ledgers.append(ledger)
        return number

    def _renumbered_ledger(self, ledger: int, turn: int) -> int:
        known = self._turned_ledgers.get((ledger, turn))
        if known is None:
            old, places = self._ledgers[ledger], RENUMBERINGS[turn].places
            leaders = tuple(each and places[each - 1] + 1 for each in old.leaders)
            known = self._ledger_number(old._replace(leaders=leaders))
            self._turned_ledgers[ledger, turn] = known
        return known

    # --- moves, worked out once ---

    def _moves_of(self, replica: int, local: int) -> tuple[_Move, ...]:
        key = (replica, local)
        known = self._own_moves.get(key)
        if known is None:
            events = self.local.states[local].events
            known = tuple(self._move(replica, local, event) for event in events)
            self._own_moves[key] = known
        return known

    def _term_seen(self, replica: int, local: int, term: int) -> _Move:
        key = (replica, -local * (self.bound.terms + 1) - term)
        known = self._own_moves.get(key)
        if known is None:
            known = (self._move(replica, local, TermSeen(Term(term))),)
            self._own_moves[key] = known
        return known[0]

    def _delivery(self, number: int, local: int) -> _Move:
        while number >= len(self._deliveries):
            self._deliveries.append({})
        known = self._deliveries[number].get(local)
        if known is None:
            sender, target, boot, message = self.wire.messages[number]
            event = Heard((sender - target) % REPLICAS, boot, message)
            known = self._deliveries[number][local] = self._move(target, local, event)
        return known

    def _move(self, replica: int, local: int, event: Happening) -> _Move:
        step = self.local.step(local, event)
        posted = 0
        for peer, boot, message in step.posted:
            posted |= self.wire.bit(replica, (replica + peer) % REPLICAS, boot, message)
        self._causes_known.append((replica, event))
        table = self.local.states
        return _Move(
            len(self._causes_known) - 1,
            step.state,
            posted,
            step.fault,
            table[step.state].is_cut,
            table[step.state].facts != table[local].facts,
        )

    # --- the end ---

    def _fail(self, text: str, state: int, cause: int) -> None:
        if self.violation is not None:
            return
        steps = [(cause, 0)]
        while state:
            steps.append((self._causes[state], self._turns[state]))
            state = self._parents[state]
        path = []
        names = [0, 1, 2]  # what the first state called the replicas, in the order of this one
        is_mirrored = False
        for at, turn in reversed(steps):
            replica, event = self._causes_known[at]
            path.append((names[replica], mirror_event(event) if is_mirrored else event))
            places = RENUMBERINGS[turn].places
            names = [names[places.index(place)] for place in range(REPLICAS)]
            is_mirrored ^= RENUMBERINGS[turn].is_mirror
        self.violation = Violation(text, path)

    def _outcome(self, *, is_exhausted: bool) -> Outcome:
        return Outcome(
            bound=self.bound,
            states=self.states,
            transitions=self.transitions,
            depth=self.depth,
            local_states=len(self.local.states),
            core_steps=self.local.steps_taken,
            messages=len(self.wire.messages),
            cut=self.cut,
            is_exhausted=is_exhausted and self.violation is None,
            violation=self.violation,
        )


def _with(nodes: Nodes, replica: int, local: int) -> Nodes:
    one, two, three = nodes
    if replica == 0:
        return (local, two, three)
    if replica == 1:
        return (one, local, three)
    return (one, two, local)
