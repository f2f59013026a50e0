"""Changes the members of the cluster in the virtual world, as `logstore member` does: reserves
places for machines that are no founders and starts them, promotes, replaces and removes members,
and asks again where an answer was lost.

Owns which change is asked for. Mostly a sensible one; where it is not, the cluster has to refuse
it. The machines say which removals leave a majority of whole disks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from actors.simulation.checkers.electorates import REPLACES
from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.world.client_host import MS_NS
from logstore.client.core.member_admin import (
    MemberInfo,
    Members,
    add_member,
    members,
    promote_member,
    remove_member,
    replace_member,
)
from logstore.client.core.steps import Steps
from logstore.client.endpoint import Endpoint
from logstore.errors import InvalidRequest

_ASK_EVERY_NS = (50 * MS_NS, 500 * MS_NS)  # the mean, drawn once
_RIGHT_AT_TIMES = ("choose another one", "has not joined yet", "is to replace node")
Change = Callable[[], Steps[None]]


class Machines(Protocol):
    """What an operator does besides asking."""

    @property
    def idle(self) -> list[int]:
        """Machines that no configuration has as a member, in force or not."""
        ...

    def place_of(self, node: int) -> Endpoint: ...

    def start(self, node: int) -> None:
        """Start the machine, on an empty disk if it was a member once."""
        ...

    def may_leave(self, node: int) -> bool:
        """Whether enough whole disks stay, also if all that was ever asked for comes late."""
        ...


class MemberOperator:
    """A subject."""

    def __init__(self, inquirer: Inquirer, machines: Machines) -> None:
        self._inquirer = inquirer
        self._machines = machines
        self._random = inquirer.host.random
        self.ask_every_ns = self._random.randrange(*_ASK_EVERY_NS)
        self._last: Change | None = None  # it was not answered yet
        self._is_from_committed = False  # it was drawn from members that a majority had

    def ask(self) -> Steps[None]:
        found = yield from members(self._inquirer.cluster())
        if not found.id:
            return
        last, self._last = self._last, None
        if last is not None and self._random.random() < 0.7:
            change: Change | None = last
        else:
            change, self._is_from_committed = self._draw(found), found.is_committed
        if change is None:
            return
        self._last = change
        try:
            yield from change()
        except InvalidRequest as error:
            yield from self._check_refused(error)
        self._last = None
        self._inquirer.witness.count("members changed")

    def _check_refused(self, error: InvalidRequest) -> Steps[None]:
        """An address may be taken: the leader gave it another number than was expected, for it knew
        of a change that was not known here. Another replica may be to have the voter's place: that
        was asked for before, and not answered. A learner may not have joined yet: it had in the log
        of a leader that is deposed, or another replica has its place now."""
        text = str(error)
        if "has not joined yet" in text and not self._is_from_committed:
            self._inquirer.witness.count("learner rolled back")
            return
        if not any(each in text for each in _RIGHT_AT_TIMES):
            raise error
        found = yield from members(self._inquirer.cluster())
        right = [f"{each.host}:{each.port} is that of node {each.number}" for each in found.members]
        absent = [each for each in found.members if each.role == "reserved"]
        right += [f"node {each.number} has not joined yet" for each in absent]
        right += [
            f"node {each.number} at {each.host}:{each.port} is to replace node "
            f"{label.removeprefix(REPLACES)} already"
            for each in found.members
            for label in each.labels
            if label.startswith(REPLACES)
        ]
        if not any(each in text for each in right):
            raise error
        self._inquirer.witness.count("change refused rightly")

    def _draw(self, found: Members) -> Change | None:
        learners = [each for each in found.members if each.role == "learner"]
        voters = [each for each in found.members if each.is_voter]
        idle = self._machines.idle
        for node in [each.number for each in found.members if each.role == "reserved"]:
            if self._random.random() < 0.5:
                self._machines.start(node)
        leaving = voters if self._random.random() < 0.6 else list(found.members)
        draws: list[Callable[[], Change | None]] = [lambda: self._remove(leaving)]
        if idle:
            following = max(each.number for each in found.members) + 1
            draws += [lambda: self._add(idle)] * 3
            draws += [lambda: self._replace_elsewhere(voters, following)] * (following in idle)
        if learners:
            draws += [lambda: self._promote(learners)] * 5
            draws += [lambda: self._replace(voters, learners)] * 2
        return self._random.choice(draws)()

    def _add(self, idle: list[int]) -> Change:
        node = self._random.choice(idle)
        place = self._machines.place_of(node)
        if self._random.random() < 0.3:
            self._machines.start(node)  # before there is a place for it
        labels = ("rack=1",) if self._random.random() < 0.4 else ()
        return lambda: add_member(
            self._inquirer.cluster(), node, place.host, place.port, labels, None
        )

    def _promote(self, learners: list[MemberInfo]) -> Change:
        node = self._random.choice(learners).number
        return lambda: promote_member(self._inquirer.cluster(), node, False, None)

    def _remove(self, members: list[MemberInfo]) -> Change | None:
        member = self._random.choice(members)
        if member.role not in ("learner", "reserved") and not self._may_leave(member):
            return None
        is_forced = self._random.random() < 0.1
        return lambda: remove_member(self._inquirer.cluster(), member.number, is_forced, None)

    def _replace(self, voters: list[MemberInfo], learners: list[MemberInfo]) -> Change | None:
        voter, learner = self._random.choice(voters), self._random.choice(learners)
        if not self._may_leave(voter):
            return None
        number, by = voter.number, learner.number
        return lambda: replace_member(self._inquirer.cluster(), number, by, False, None)

    def _replace_elsewhere(self, voters: list[MemberInfo], following: int) -> Change | None:
        """The leader chooses the number: the machine whose address it is has to bear that one."""
        voter = self._random.choice(voters)
        if not self._may_leave(voter):
            return None
        number, place = voter.number, self._machines.place_of(following)
        return lambda: replace_member(self._inquirer.cluster(), number, place, False, None)

    def _may_leave(self, member: MemberInfo) -> bool:
        return self._machines.may_leave(member.number)
