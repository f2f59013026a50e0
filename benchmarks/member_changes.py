"""Changes of the members, one after the other, in a process of its own.

The client of an operator shares no interpreter with the producers that it is measured beside.

    python -m benchmarks.member_changes JSON of ChangesSpec

Prints the span of each change as JSON: [asked, committed], in s of the monotonic clock, which is
one clock for all processes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import msgspec

import logstore

MODULE = "benchmarks.member_changes"
TIMEOUT_S = 120.0


class ChangesSpec(msgspec.Struct, frozen=True):
    """`learner` becomes a voter first, and leaves at the end; `changes` times a place is reserved
    and given up in between."""

    endpoints: list[str]
    learner: int
    changes: int


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1], type=ChangesSpec)
    spans: list[tuple[float, float]] = []
    with logstore.connect(spec.endpoints, timeout=TIMEOUT_S) as log:
        log.admin.members()
        for change in _changes(log, spec):
            began = time.monotonic()
            change()
            spans.append((began, time.monotonic()))
    sys.stdout.write(msgspec.json.encode(spans).decode())


def _changes(log: logstore.LogClient, spec: ChangesSpec) -> Iterator[Callable[[], None]]:
    place = spec.learner + 1
    yield lambda: log.admin.promote_member(spec.learner, timeout=TIMEOUT_S)
    for _ in range(spec.changes):
        yield lambda: log.admin.add_member(place, "127.0.0.1", 9)
        yield lambda: log.admin.remove_member(place)
    yield lambda: log.admin.remove_member(spec.learner, timeout=TIMEOUT_S)


if __name__ == "__main__":
    main()
