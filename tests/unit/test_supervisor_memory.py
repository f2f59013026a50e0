"""Shared memory of a replica: asked for whole, given back whole (SAFETY M3, M4)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actors.supervisor import regions as regions_module
from actors.supervisor.regions import ReplicaRegions, shared_memory_bytes
from actors.supervisor.replica import Replica
from actors.supervisor.sampler import ProcessSampler
from logstore.config import parse_config
from logstore.limits import MIB
from tests.unit.supervisor_stage import CONFIG, NODE
from transport.errors import RegionUnavailable

CONFIGURED = parse_config(CONFIG)


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def mapped_bytes() -> int:
    """Of shared memory, by this process."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    spans = [line.split()[0].split("-") for line in lines if "/dev/shm" in line]
    return sum(int(end, 16) - int(start, 16) for start, end in spans)


def test_a_replica_that_is_closed_gives_back_all_that_its_supervisor_has_mapped(
    tmp_path: Path,
) -> None:
    """While somebody still has the object, as the supervisor's loop does."""
    before, opened = mapped_bytes(), descriptors()
    replica = Replica(CONFIGURED, NODE, str(tmp_path), incarnation=1, child_command=())
    sampler: ProcessSampler | None = ProcessSampler(replica.station)
    assert mapped_bytes() - before > 16 * MIB
    assert sampler is not None
    sampler = None
    replica.close()
    assert mapped_bytes() == before
    assert descriptors() == opened


def test_too_little_shared_memory_is_said_before_any_of_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed = shared_memory_bytes(CONFIGURED, NODE)
    monkeypatch.setattr(regions_module, "room_bytes", lambda _folder: needed)  # but no counters
    opened = descriptors()
    with pytest.raises(
        RegionUnavailable, match=r"/dev/shm has [0-9.]+ MiB .*node 1 needs 2[0-9.]+"
    ):
        ReplicaRegions(CONFIGURED, NODE, incarnation=1)
    assert descriptors() == opened


@pytest.mark.parametrize("failing", ["create_payload_ring", "create_nameless_counters"])
def test_what_fails_half_way_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_args: object, **_options: object) -> int:
        raise RegionUnavailable("somebody else was faster")

    monkeypatch.setattr(regions_module, failing, fail)
    opened, before = descriptors(), mapped_bytes()
    with pytest.raises(RegionUnavailable):
        ReplicaRegions(CONFIGURED, NODE, incarnation=1)
    assert descriptors() == opened
    assert mapped_bytes() == before


def test_a_tmpfs_without_a_bound_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions_module, "room_bytes", lambda _folder: None)
    ReplicaRegions(CONFIGURED, NODE, incarnation=1).close()
