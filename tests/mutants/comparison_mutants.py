"""Mutants of appends that expect an LSN (SAFETY E11)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutant

COMPARISONS = "actors.ingress.comparisons:Comparisons"
CONVERSATIONS = "actors.ingress.conversations:Conversations"
MACHINE = "logstore.client.core.producer_machine:ProducerMachine"

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "comparison-ignores-the-tail",
        "SAFETY E11",
        f"{COMPARISONS}._why_refused",
        "    end_lsn = self._admission.proposals.end_lsn\n",
        "    end_lsn = self._admission.proposals._next_lsn\n",
        "a batch is compared with what raft has accepted, not with what comes before it",
    ),
    mutant(
        "comparison-below-its-level",
        "SAFETY E11, S11",
        f"{COMPARISONS}._why_refused",
        "if self._admission.level < EXPECTED_LSN_LEVEL:",
        "if self._admission.level < 0:",
        "a batch that expects an LSN is taken in a log whose next leader may not know the form",
    ),
    mutant(
        "known-sequence-is-compared",
        "SAFETY E1, E11",
        f"{COMPARISONS}.take",
        "if known is not None or session is None:",
        "if isinstance(known, Refused) or session is None:",
        "a retry of a batch that is stored is refused, since the log has gone on",
        unreachable="the world's producers ask SessionState first, as E9 says, and send again what"
        " the log does not have; copies of what was sent have its attempt or an older round, and"
        " are not compared (`test_ingress_comparisons.py` shows it)",
    ),
    mutant(
        "refusal-told-before-its-commit",
        "SAFETY E11, FAULTS K14",
        f"{COMPARISONS}.release",
        "if seen is not None and not NO_INDEX < seen.index <= table.commit:",
        "if seen is not None and seen.index < NO_INDEX:",
        "a refusal rests on a tail that the next leader may discard",
    ),
    mutant(
        "refusal-without-a-quorum-round",
        "SAFETY E11, FAULTS K13",
        f"{COMPARISONS}.release",
        "if refusal.number > self._confirmed:",
        "if refusal.number > self._decided:",
        "a deposed leader refuses by a log that has gone on without it",
    ),
    mutant(
        "comparison-in-any-round",
        "SAFETY E11, FAULTS K14",
        f"{CONVERSATIONS}.is_open",
        " and newest.key == key",
        "",
        "a late copy of a refused batch is stored, once the log ends where it expects",
        unreachable="nine seeds with late copies in every round showed nothing: one of an older"
        " round must have an unused sequence and find the log end exactly where it expects"
        " (`test_ingress_comparisons.py` shows it)",
    ),
    mutant(
        "attempts-are-decided-again",
        "SAFETY E11, FAULTS K14",
        f"{CONVERSATIONS}.is_new",
        "if attempt <= newest.attempt:",
        "if attempt < 0:",
        "a copy of a refused batch is stored in its own round",
    ),
    mutant(
        "resent-without-its-expectation",
        "SAFETY E11",
        f"{MACHINE}._send",
        "if not connection.try_push(pack.batch, pack.expected_next_lsn):",
        "if not connection.try_push(pack.batch):",
        "a batch that is sent again after a change of leader is stored wherever the log ends",
    ),
)
