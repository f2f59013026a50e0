"""Mutants of what a leader gives up by itself (SAFETY G1, G2)."""

from __future__ import annotations

from tests.mutants.mutant import mutant

RETENTION = "actors.ingress.retention:Retention"

MUTANTS = (
    mutant(
        "retention-of-what-a-cursor-holds",
        "SAFETY G1",
        f"{RETENTION}._look",
        "while count and held is not None and pairs[count - 1].first_lsn > held.lsn:",
        "while False:",
        "held cursors keep nothing",
    ),
    mutant(
        "retention-above-the-newest-snapshot",
        "SAFETY G1",
        f"{RETENTION}._look",
        "while count and pairs[count - 1].first_index > highest:",
        "while False:",
        "the only snapshot of the sessions goes with the segments that exceed a bound",
        unreachable="another snapshot is asked for first, and nothing is taken while it is due: a "
        "seed must lose it again and again; tests/unit/test_ingress_retention.py finds it",
    ),
    mutant(
        "retention-by-a-clock-that-was-set",
        "SAFETY G2",
        f"{RETENTION}._kept_now",
        "drift_ns = self._admission.clock_drift_ns",
        "drift_ns = 0",
        "payloads count as old that a wrong clock made so",
        unreachable="a leader's clock must be set by more than a minute in a seed that bounds the "
        "age, one in hundreds; the unit test finds it, and a history the checker",
    ),
    mutant(
        "retention-by-what-is-not-committed",
        "SAFETY G1, G2",
        f"{RETENTION}._look",
        "newest_index = Index(self._slots[Counter.VISIBLE_INDEX])",
        "newest_index = Index(self._slots[Counter.LAST_INDEX])",
        "age, bytes and payloads are counted up to an entry that may be truncated yet",
        unreachable="what is not committed yet must exceed a bound by itself: not in 45 seeds; "
        "tests/unit/test_ingress_retention.py shows it",
    ),
)
