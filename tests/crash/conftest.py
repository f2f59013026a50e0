"""The crash enumerator: every call boundary of a scenario, every bounded choice of survivors."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import LogStoreError
from tests.crash.crash_states import crash_states
from tests.crash.storage_trial import Promises, StorageTrial, look

STATES_AT_ONE_POINT_MAX = 200


class CrashEnumerator:
    """Collects the distinct (disk, promises) that power cuts may leave, and what is wrong with
    them."""

    def __init__(self) -> None:
        self.states: list[tuple[SimulatedDisk, Promises]] = []
        self._seen: set[object] = set()
        self._random = Random(20260101)

    @staticmethod
    def new_disk() -> SimulatedDisk:
        return SimulatedDisk()

    def watch(self, trial: StorageTrial, *, states_max: int = STATES_AT_ONE_POINT_MAX) -> None:
        """From now on every call of the trial that changes the disk is a crash point."""

        def on_call(what: str, path: str) -> None:
            self.collect(trial, states_max=states_max)

        trial.disk.on_call = on_call

    def collect(self, trial: StorageTrial, *, states_max: int = STATES_AT_ONE_POINT_MAX) -> None:
        promises = trial.promises()
        self.collect_from(trial.disk, promises, states_max=states_max)

    def collect_from(self, disk: SimulatedDisk, promises: Promises, *, states_max: int) -> None:
        promised = (
            frozenset(promises.acknowledged.items()), promises.truncated, promises.term,
            promises.vote, promises.start, promises.next_start, promises.dropped,
            promises.has_config,
        )  # fmt: skip
        for state in crash_states(disk, states_max=states_max, random=self._random):
            key = (state.fingerprint(), promised)
            if key not in self._seen:
                self._seen.add(key)
                self.states.append((state, promises))

    def run(self, scenario: Callable[[StorageTrial], None]) -> None:
        """A log from its first entry on, every call of the scenario a crash point."""
        trial = StorageTrial(self.new_disk())
        trial.create_log()
        self.watch(trial)
        scenario(trial)
        self.collect(trial)

    def run_life(
        self,
        disk: SimulatedDisk,
        promises: Promises,
        *,
        life: int,
        go_on: Callable[[StorageTrial], None] | None = None,
    ) -> None:
        """Recovery of `disk`, and what follows, every call of both a crash point."""

        def on_call(trial: StorageTrial) -> None:
            self.collect(trial)

        trial = StorageTrial(disk, life=life, promises=promises, on_call=on_call)
        if go_on is not None:
            go_on(trial)
        self.collect(trial)

    def sample(self, count: int) -> list[tuple[SimulatedDisk, Promises]]:
        """`count` of the states, evenly over the scenario; all if there are fewer."""
        step = max(1, len(self.states) // count)
        return self.states[::step]

    def check(self) -> None:
        """Every state recovers to a log that keeps all promises and raises no alarm."""
        for state, promises in self.states:
            fault = broken_promise(state, promises)
            assert fault is None, fault

    def faults(self) -> list[str]:
        """What is broken in any state: for tests that break something."""
        found = [broken_promise(state, promises) for state, promises in self.states]
        return [fault for fault in found if fault is not None]


def broken_promise(disk: SimulatedDisk, promises: Promises) -> str | None:
    """What a recovery of this crash state breaks, or None. No medium failed, so no entry is
    faulty."""
    try:
        found = look(disk.copy())
    except LogStoreError as error:
        return f"recovery stopped: {error}"
    if found.faulty:
        return f"false alarm: {found.recovered.faulty}"
    for index, chain in promises.acknowledged.items():
        if found.kept.get(index) != chain:
            return f"acknowledged entry {index} is lost; kept {sorted(found.kept)}"
    back = promises.truncated & set(found.kept.items())
    if back:
        return f"truncated entries came back: {sorted(back)}"
    if found.recovered.persisted != found.recovered.last.header.index:
        return f"persisted {found.recovered.persisted} of {found.recovered.last.header.index}"
    start = found.recovered.start.index
    if start not in (promises.start, promises.next_start):
        return f"log start {start}, answered was {promises.start}"
    if start == promises.next_start and (back := promises.dropped & set(found.kept.items())):
        return f"entries of a log that was dropped came back: {sorted(back)}"
    meta = found.recovered
    if promises.has_config and not meta.meta.meta.has_config:
        return "META forgot that the log has had a CONFIG"
    allowed = {(promises.term, promises.vote), (promises.next_term, promises.next_vote)}
    raised = meta.term > promises.term and meta.vote == 0
    if not raised and (meta.term, meta.vote) not in allowed:
        return f"answered term and vote {allowed}, found {(meta.term, meta.vote)}"
    return None


@pytest.fixture
def enumerator() -> CrashEnumerator:
    return CrashEnumerator()
