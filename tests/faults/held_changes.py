"""Replicas whose changes of the members stop at a step while a file says so: a test strikes there.

They also take a SESSION snapshot every 64 KiB, as those of `frequent_snapshots`: their log can be
trimmed after moments.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logstore.cli.embedded import poll_until
from tests.faults.frequent_snapshots import EVERY_BYTES
from tests.faults.patched_processes import patched

REACHED_TIMEOUT_S = 60.0
# The leader has taken the request, and not offered its CONFIG; the joint CONFIG is committed, and
# the one that it leads to is not offered.
TAKEN, JOINT = "taken", "joint"

_SITE = """
import os
from logstore import limits

limits.SNAPSHOT_EVERY_BYTES = {every_bytes}

from logstore.raft import membership

offer, on_committed = membership._offer, membership._on_committed


def is_held(step):
    path = os.path.join({folder!r}, step)
    if not os.path.exists(path):
        return False
    with open(path + ".reached", "wb"):
        return True


def held_offer(state, change):
    if not is_held({taken!r}):
        offer(state, change)


def held_on_committed(state, leading, in_force):
    if not membership.is_joint(in_force) or not is_held({joint!r}):
        on_committed(state, leading, in_force)


membership._offer, membership._on_committed = held_offer, held_on_committed
"""


class HeldChanges:
    """The files, in a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def at(self, step: str) -> Iterator[None]:
        """Each leader stops there meanwhile."""
        self._reached(step).unlink(missing_ok=True)
        (self._folder / step).touch()
        try:
            yield
        finally:
            (self._folder / step).unlink()

    def wait(self, step: str) -> None:
        """Until a leader has stopped there."""
        assert poll_until(self._reached(step).exists, REACHED_TIMEOUT_S), f"no change is {step}"

    def _reached(self, step: str) -> Path:
        return self._folder / f"{step}.reached"


@contextmanager
def held_changes(folder: Path) -> Iterator[HeldChanges]:
    """For replicas that are started meanwhile. `folder`: of the test."""
    own = folder / "held"
    own.mkdir()
    site = _SITE.format(every_bytes=EVERY_BYTES, folder=str(own), taken=TAKEN, joint=JOINT)
    with patched("held-site", site, folder):
        yield HeldChanges(own)
