"""Mutants of how a replica finds out that its folder is an older copy (SAFETY L7)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutant

L7 = "SAFETY L7"

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "amnesia-by-word-of-an-earlier-start",
        L7,
        "logstore.raft.seen_starts:is_forgotten",
        "seen.boot > own.boot",
        "seen.boot != own.boot",
        "a late answer to the start before takes a healthy replica out",
        unreachable="an answer must reach the connection of the next start: not in ten seeds; "
        "a unit test has it",
    ),
    mutant(
        "amnesia-of-a-log-that-ends-where-it-should",
        L7,
        "logstore.raft.amnesia:check",
        "acknowledged <= last_index",
        "acknowledged < last_index",
        "a replica that has just what it acknowledged is taken for one that lost it",
    ),
    mutant(
        "nonce-of-a-report",
        L7,
        "actors.raft.start_reports:StartReports.on_tick",
        "StartReport(self._own.nonce)",
        "StartReport(self._own.nonce + self._wait_ns)",
        "a replica takes its own report for one of another start",
    ),
    mutant(
        "starts-are-told-by-the-newest-report",
        L7,
        "logstore.raft.seen_starts:PeerStarts.learn",
        "start.boot <= known.boot",
        "start == known",
        "who was put back is told what it said itself",
        unreachable="no seed puts an older folder back; unit tests do",
    ),
)
