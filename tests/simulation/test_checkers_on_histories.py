"""Hand-broken histories: each is caught by its checker, and its unbroken twin by none."""

from __future__ import annotations

import sys

import pytest

from actors.simulation.checkers.catalogue import CHECKERS
from actors.simulation.checkers.invariant import NOT_BUILT, Findings, Invariant
from tests.simulation.histories.ack_level_histories import ACK_LEVELS
from tests.simulation.histories.answer_histories import ANSWERS
from tests.simulation.histories.bell_histories import BELLS
from tests.simulation.histories.case import History
from tests.simulation.histories.client_histories import CLIENTS
from tests.simulation.histories.configuration_histories import CONFIGURATIONS
from tests.simulation.histories.cursor_histories import CURSORS
from tests.simulation.histories.damage_histories import DAMAGE
from tests.simulation.histories.disk_histories import DISKS
from tests.simulation.histories.expected_lsn_histories import EXPECTED_LSNS
from tests.simulation.histories.install_histories import INSTALLS
from tests.simulation.histories.level_histories import LEVELS
from tests.simulation.histories.log_start_histories import LOG_STARTS
from tests.simulation.histories.lookup_histories import LOOKUPS
from tests.simulation.histories.promise_histories import PROMISES
from tests.simulation.histories.replica_histories import REPLICAS
from tests.simulation.histories.retention_histories import RETENTION
from tests.simulation.histories.ring_histories import RINGS
from tests.simulation.histories.session_histories import SESSIONS
from tests.simulation.histories.session_list_histories import SESSION_LISTS
from tests.simulation.histories.stage import Stage
from tests.simulation.histories.stall_histories import STALLS
from tests.simulation.histories.survey_histories import SURVEYS
from tests.simulation.histories.term_histories import TERMS
from tests.simulation.histories.unread_histories import UNREAD

HISTORIES = [
    history
    for each in (
        CLIENTS,
        EXPECTED_LSNS,
        ANSWERS,
        REPLICAS,
        RINGS,
        BELLS,
        PROMISES,
        STALLS,
        TERMS,
        DISKS,
        DAMAGE,
        SESSIONS,
        CURSORS,
        LEVELS,
        LOG_STARTS,
        INSTALLS,
        RETENTION,
        LOOKUPS,
        SESSION_LISTS,
        SURVEYS,
        UNREAD,
        ACK_LEVELS,
        CONFIGURATIONS,
    )
    for history in each.histories
]


def by_name(history: History) -> str:
    return history.name


@pytest.mark.parametrize("history", HISTORIES, ids=by_name)
def test_a_broken_history_is_caught_by_the_checker_it_is_made_for(history: History) -> None:
    stage = Stage()
    history.story(stage, True)
    assert stage.ledger.violations
    first = stage.ledger.violations[0]
    assert (first.invariant, history.says in first.text) == (history.invariant, True), first


@pytest.mark.parametrize("history", HISTORIES, ids=by_name)
def test_its_unbroken_twin_passes(history: History) -> None:
    stage = Stage()
    history.story(stage, False)
    assert stage.ledger.violations == []


@pytest.mark.long
def test_every_checker_finds_what_is_wrong_in_some_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report, found = Findings.report, set()

    def note(self: Findings, invariant: Invariant, text: str) -> None:
        found.add(sys._getframe(1).f_globals["__name__"])
        report(self, invariant, text)

    monkeypatch.setattr(Findings, "report", note)
    for history in HISTORIES:
        history.story(Stage(), True)
    assert {each.__module__ for each in CHECKERS} <= found


def test_every_invariant_that_can_be_broken_has_a_broken_history() -> None:
    broken = {history.invariant for history in HISTORIES}
    assert broken == {each.value for each in Invariant if each not in NOT_BUILT}
    assert len({history.name for history in HISTORIES}) == len(HISTORIES) >= 40
