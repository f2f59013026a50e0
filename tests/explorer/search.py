"""Breadth-first search through every state within the bound.

Owns the visited states and the path back from each. A state is the numbers of three local states
and of the ledger, and the set of messages in flight. Three reductions, all sound for what is
checked:

* Subsumption. No message need be delivered, so with equal replicas and ledger a state with more
  messages in flight can do all that one with fewer can. Only the largest sets are kept.
* Symmetry. Of the six states that differ in the numbers of the replicas only, one is kept; where
  members change, of the two that differ in those of two replicas of one role.
* Messages that cannot have an effect any more are forgotten (`messages_in_flight`).

The path to a violation is a shortest one: a state is dropped only for one that was reached in no
more steps.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from logstore.model import Term
from tests.explorer.bound import REPLICAS, Bound
from tests.explorer.events import Delivery, Happening, TermSeen
from tests.explorer.local_states import Facts, LocalStates
from tests.explorer.messages_in_flight import MessagesInFlight
from tests.explorer.promises import Broken, Ledger, after, first_ledger
from tests.explorer.symmetry import EXCHANGE, RENUMBERINGS, Nodes, images, mirror_event


class Violation(msgspec.Struct, frozen=True):
    """A broken promise and the shortest path to it: (replica, event) from the first state on."""

    text: str
    path: list[tuple[int, Happening]]


class Outcome(msgspec.Struct, frozen=True):
    """The result of an exploration. `is_exhausted`: every state within the bound was visited."""

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
    """A local step of one replica of the ring. `cause`: the number of (replica, event)."""

    cause: int
    state: int
    sent: int
    fault: str | None
    is_cut: bool
    changes_facts: bool


class _Unexpanded(NamedTuple):
    """A state whose successors are not visited yet."""

    number: int
    nodes: Nodes
    ledger: int
    in_flight: int


class Explorer:
    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self.local = LocalStates(bound)
        self.messages = MessagesInFlight(bound.terms)
        self.states = self.transitions = self.depth = self.cut = 0
        self.violation: Violation | None = None
        self._ledgers = [first_ledger(bound.terms, self.local.states[0].facts)]
        self._ledger_numbers = {self._ledgers[0]: 0}
        self._checked: dict[tuple[int, int, tuple[Facts, ...]], int | Broken] = {}
        self._causes_known: list[tuple[int, Happening]] = []
        self._deliveries: list[dict[int, _Move]] = []  # for each message: by local state
        self._own_moves: dict[tuple[int, int], tuple[_Move, ...]] = {}
        self._idle: tuple[dict[int, int], ...] = ({}, {}, {})
        self._seen: dict[tuple[Nodes, int], list[int]] = {}
        self._parents = array("I")
        self._causes = array("I")
        self._renumberings = array("B")  # the renumbering between a state's parent and it
        self._renumbered_ledgers: dict[tuple[int, int], int] = {}
        self._mirrored = self.local.mirrored
        self._relevant_of = 0
        self._relevant_known: tuple[dict[int, int], ...] = ({}, {}, {})

    def run(self, is_out_of_time: Callable[[], bool]) -> Outcome:
        """Explore until no state is left, a promise is broken, or time is up."""
        level = [self._found(0, 0, self.local.first, 0, 0)]
        is_exhausted = False
        while not self._is_broken():
            level = [each for each in level if each.in_flight in self._seen[each[1:3]]]
            if not level:
                is_exhausted = True
                break
            following: list[_Unexpanded] = []
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

    def _expand(self, state: _Unexpanded, following: list[_Unexpanded]) -> None:
        """Visit every successor of `state`. Hot."""
        wire, nodes, in_flight = self.messages, state.nodes, state.in_flight
        table = self.local.states
        for replica, local in enumerate(nodes):
            for move in self._moves_of(replica, local):
                self._follow(state, replica, move, following)
            newest = max(table[each].receiver_terms.durable_term for each in nodes)
            for term in range(table[local].facts.term + 1, newest + 1):
                self._follow(state, replica, self._term_seen(replica, local, term), following)
            idle = self._idle[replica]
            bits = in_flight & wire.to_replica[replica] & ~idle.get(local, 0)
            while bits:
                bit = bits & -bits
                bits ^= bit
                number = bit.bit_length() - 1
                move = self._delivery(number, local)
                if move.state == local and not move.sent and move.fault is None:
                    idle[local] = idle.get(local, 0) | bit
                else:
                    self._follow(state, replica, move, following)

    def _follow(
        self, state: _Unexpanded, replica: int, move: _Move, following: list[_Unexpanded]
    ) -> None:
        """Visit the successor by `move`, unless a visited state can do as much. Hot."""
        self.transitions += 1
        if move.fault is not None:
            self._fail(move.fault, state.number, move.cause)
            return
        if move.is_cut:
            self.cut += 1
            return
        one, two, three = nodes = _with(state.nodes, replica, move.state)
        ledger = state.ledger
        if move.changes_facts:
            checked = self._check(ledger, nodes, replica)
            if isinstance(checked, Broken):
                self._fail(checked.text, state.number, move.cause)
                return
            ledger = checked
        to_first, to_second, to_third = self._relevant()
        try:
            in_flight = to_first[one] | to_second[two] | to_third[three]
        except KeyError:
            in_flight = self._learn_relevant(nodes)
        in_flight &= state.in_flight | move.sent
        alike = self._alike(nodes)
        least = min(alike)
        if least != nodes:
            renumbering = alike.index(least) if len(alike) > 2 else EXCHANGE
            nodes, in_flight = least, self.messages.renumbered(in_flight, renumbering)
            ledger = self._renumbered_ledger(ledger, renumbering)
        else:
            renumbering = 0
        known = self._seen.get((nodes, ledger))
        if known is None:
            self._seen[nodes, ledger] = [in_flight]
        else:
            for each in known:
                if in_flight | each == each:
                    return
            known[:] = [each for each in known if in_flight | each != in_flight]
            known.append(in_flight)
        self._renumberings.append(renumbering)
        following.append(self._found(state.number, move.cause, nodes, ledger, in_flight))

    def _alike(self, nodes: Nodes) -> tuple[Nodes, ...]:
        """`nodes` under each renumbering under which no CONFIG changes, itself first. Hot."""
        one, two, three = nodes
        mirrored, bound = self._mirrored, self.bound
        if not bound.changes:
            return images(nodes, (mirrored(one), mirrored(two), mirrored(three)))
        if not bound.are_two_alike:
            return (nodes,)
        return (nodes, (mirrored(two), mirrored(one), mirrored(three)))

    def _found(
        self, parent: int, cause: int, nodes: Nodes, ledger: int, in_flight: int
    ) -> _Unexpanded:
        number = self.states
        self.states += 1
        self._parents.append(parent)
        self._causes.append(cause)
        if number == 0:
            self._renumberings.append(0)
            self._seen[nodes, ledger] = [in_flight]
        return _Unexpanded(number, nodes, ledger, in_flight)

    def _relevant(self) -> tuple[dict[int, int], ...]:
        """For each replica and local state, the relevant messages to it; cleared when there is a
        new message."""
        if self._relevant_of != len(self.messages.messages):
            self._relevant_of = len(self.messages.messages)
            for each in self._relevant_known:
                each.clear()
        return self._relevant_known

    def _learn_relevant(self, nodes: Nodes) -> int:
        in_flight = 0
        for replica, local in enumerate(nodes):
            bits = self.messages.relevant(replica, self.local.states[local].receiver_terms)
            self._relevant_known[replica][local] = bits
            in_flight |= bits
        return in_flight

    def _check(self, ledger: int, nodes: Nodes, changed: int) -> int | Broken:
        """The number of the ledger after `changed` did a step, or what it broke."""
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

    def _renumbered_ledger(self, ledger: int, renumbering: int) -> int:
        known = self._renumbered_ledgers.get((ledger, renumbering))
        if known is None:
            old, places = self._ledgers[ledger], RENUMBERINGS[renumbering].places
            leaders = tuple(each and places[each - 1] + 1 for each in old.leaders)
            known = self._ledger_number(old._replace(leaders=leaders))
            self._renumbered_ledgers[ledger, renumbering] = known
        return known

    # --- moves, each computed once ---

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
            sender, target, boot, message = self.messages.messages[number]
            event = Delivery((sender - target) % REPLICAS, boot, message)
            known = self._deliveries[number][local] = self._move(target, local, event)
        return known

    def _move(self, replica: int, local: int, event: Happening) -> _Move:
        step = self.local.step(local, event)
        sent = 0
        for peer, boot, message in step.sent:
            sent |= self.messages.bit(replica, (replica + peer) % REPLICAS, boot, message)
        self._causes_known.append((replica, event))
        table = self.local.states
        return _Move(
            len(self._causes_known) - 1,
            step.state,
            sent,
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
            steps.append((self._causes[state], self._renumberings[state]))
            state = self._parents[state]
        path = []
        names = [0, 1, 2]  # the numbers of the first state, in the order of this one
        is_mirrored = False
        for at, renumbering in reversed(steps):
            replica, event = self._causes_known[at]
            path.append((names[replica], mirror_event(event) if is_mirrored else event))
            places = RENUMBERINGS[renumbering].places
            names = [names[places.index(place)] for place in range(REPLICAS)]
            is_mirrored ^= RENUMBERINGS[renumbering].is_mirror
        self.violation = Violation(text, path)

    def _outcome(self, *, is_exhausted: bool) -> Outcome:
        return Outcome(
            bound=self.bound,
            states=self.states,
            transitions=self.transitions,
            depth=self.depth,
            local_states=len(self.local.states),
            core_steps=self.local.steps_taken,
            messages=len(self.messages.messages),
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
