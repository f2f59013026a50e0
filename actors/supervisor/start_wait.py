"""Whom a replica waits for that does not get ready after its start: one line of its log (pure).

Counters do not say which nodes answer, so the line names all others; `logstore status` knows.
"""

from __future__ import annotations

from logstore.config import Config
from logstore.model import NodeId

PATIENCE_NS = 5_000_000_000


class StartWait:
    """Of the replica of `node`, from the first look on."""

    def __init__(self, config: Config, node: NodeId) -> None:
        others = [each for each in config.nodes if each.node != node]
        self._others = ", ".join(f"node {each.node} at {each.host}:{each.port}" for each in others)
        self._forms = "every node runs"
        if not config.cluster.auto_init:
            self._forms += " and `logstore init` was called"
        self._due_ns = 0
        self._is_over = not others

    def look(self, *, is_ready: bool, now_ns: int) -> str:
        """What to log now: once, or never where the replica is ready in time; else empty."""
        self._due_ns = self._due_ns or now_ns + PATIENCE_NS
        if is_ready:
            self._is_over = True
        if self._is_over or now_ns < self._due_ns:
            return ""
        self._is_over = True
        return (
            f"not ready yet: a new log is formed once {self._forms}, and one that exists goes on "
            f"once a majority does. Looking for {self._others}; `logstore status` says who answers"
        )
