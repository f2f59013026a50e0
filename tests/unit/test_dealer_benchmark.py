"""The DEALER's figures over those of PUSH, round by round."""

from __future__ import annotations

from benchmarks.dealer_appends import DealerRun, summarise


def test_each_round_is_a_pair_of_its_own() -> None:
    runs = [
        DealerRun("dealer", 0, 80.0, 2.0),
        DealerRun("push", 0, 100.0, 1.0),
        DealerRun("push", 1, 50.0, 4.0),
        DealerRun("dealer", 1, 30.0, 4.2),
    ]
    summary = summarise(runs)
    assert summary["push"]["payloads_per_s"] == {"median": 75.0, "low": 50.0, "high": 100.0}
    packed, p50 = summary["dealer over push"]["packed"], summary["dealer over push"]["p50"]
    assert (packed["measured"], packed["low"], packed["high"]) == (0.7, 0.6, 0.8)
    assert packed["is_reached"]
    assert (p50["measured"], p50["is_reached"]) == (1.525, False)
