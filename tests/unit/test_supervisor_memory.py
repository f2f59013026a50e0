"""Shared memory of a replica: asked for whole, given back whole (SAFETY M3, M4)."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from actors import topology
from actors.supervisor import regions as regions_module
from actors.supervisor.regions import ReplicaRegions, shared_memory_bytes
from actors.supervisor.running_replica import RunningReplica
from actors.supervisor.sampler import ProcessSampler
from logstore.cli.exit_status import ExitStatus
from logstore.config import parse_config
from logstore.limits import COMMAND_RING_BYTES, MIB
from tests.unit.supervisor_stage import CONFIG, NODE, be_child, make_keeper
from tests.unit.test_supervisor_processes import Stage
from transport.command_ring import command_region_bytes
from transport.errors import RegionUnavailable
from transport.layout import CONTROL_BYTES
from transport.shm import SHARED_MEMORY_FOLDER

CONFIGURED = parse_config(CONFIG)
# One incarnation fits, and half of the next one.
TMPFS_BYTES = shared_memory_bytes(CONFIGURED, NODE) * 3 // 2


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
    placement = make_keeper(tmp_path)
    before, opened = mapped_bytes(), descriptors()
    replica = RunningReplica(
        CONFIGURED, NODE, str(tmp_path), incarnation=1, run_child=be_child, placement=placement
    )
    sampler: ProcessSampler | None = ProcessSampler(replica.station)
    assert mapped_bytes() - before > 16 * MIB
    assert sampler is not None
    sampler = None
    replica.close()
    assert mapped_bytes() == before
    assert descriptors() == opened
    placement.close()


def test_the_rings_of_a_spare_replicator_take_memory_once_it_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SAFETY M4: before it is touched."""

    def taken_bytes(spare: str) -> int:
        rings = (regions.rings[name] for name in topology.rings_of_spare(spare))
        return sum(os.fstat(fd).st_blocks * 512 for fd in rings)

    regions = ReplicaRegions(CONFIGURED, NODE, incarnation=1)
    own = {*regions.rings.values(), regions.payload, regions.stamps}
    taken = sum(os.fstat(fd).st_blocks * 512 for fd in own)
    assert taken == shared_memory_bytes(CONFIGURED, NODE)
    assert taken_bytes("spare-1") == 2 * CONTROL_BYTES
    regions.allocate("spare-1")
    regions.allocate("spare-1")
    assert taken_bytes("spare-1") == 2 * command_region_bytes(COMMAND_RING_BYTES)
    assert taken_bytes("spare-2") == 2 * CONTROL_BYTES

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(RegionUnavailable, match="no room"):
        regions.allocate("spare-2")
    regions.close()


def test_too_little_shared_memory_is_said_before_any_of_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed = shared_memory_bytes(CONFIGURED, NODE)
    monkeypatch.setattr(regions_module, "room_bytes", lambda _folder: needed)  # but no counters
    opened = descriptors()
    with pytest.raises(
        RegionUnavailable, match=r"/dev/shm has [0-9.]+ MiB .*node 1 needs 1[0-9.]+"
    ):
        ReplicaRegions(CONFIGURED, NODE, incarnation=1)
    assert descriptors() == opened


@pytest.mark.parametrize(
    "failing", ["create_payload_ring", "create_nameless_counters", "create_stamp_table"]
)
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


@pytest.mark.parametrize(
    "made", [0, 3, 12, 13]
)  # 11 rings of commands, of payloads, counters, stamps
def test_where_somebody_was_faster_the_need_is_told_and_no_name_was_ever_there(
    made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocate, sizes = os.posix_fallocate, list[int]()

    def allocate_some(fd: int, offset: int, size_bytes: int) -> None:
        assert os.listdir(folder) == []
        if len(sizes) == made:
            raise OSError(errno.ENOSPC, "No space left on device")
        sizes.append(size_bytes)
        allocate(fd, offset, size_bytes)

    monkeypatch.setattr(os, "posix_fallocate", allocate_some)
    opened = descriptors()
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY_FOLDER) as folder:
        with pytest.raises(RegionUnavailable, match=r"node 1 needs 1[0-9.]+ MiB .* has no room"):
            ReplicaRegions(CONFIGURED, NODE, incarnation=1, folder=folder)
        assert os.listdir(folder) == []
    assert len(sizes) == made
    assert descriptors() == opened


def test_a_link_for_which_the_folder_has_no_inode_is_left_out_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The replica runs without: only `logstore` commands on this machine read them."""

    def refuse(source: object, target: object, *_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "symlink", refuse)
    replica_regions = ReplicaRegions(CONFIGURED, NODE, incarnation=1)
    replica_regions.publish_counters(tmp_path)
    replica_regions.close()
    make_keeper(tmp_path).close()
    assert not {"counters", "placement"} & set(os.listdir(tmp_path))
    assert len(caplog.messages) == 2
    assert all("No space left on device" in each for each in caplog.messages)


@pytest.fixture
def small_shm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is started has a small /dev/shm of its own, in a mount namespace."""
    script = f'mount -t tmpfs -o size={TMPFS_BYTES} tmpfs {SHARED_MEMORY_FOLDER} && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh"]
    if os.geteuid() or subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("a small /dev/shm needs root and unshare(1)")
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda args, **rest: popen([*command, *args], **rest))


@pytest.mark.slow
def test_a_restart_takes_no_shared_memory_twice(tmp_path: Path, small_shm: None) -> None:
    stage = Stage(tmp_path)
    try:
        before = stage.wait_started()
        os.kill(before["raft"][0], signal.SIGKILL)
        after = stage.wait_started()
        assert after["raft"][1] == before["raft"][1] + 1
        stage.process.send_signal(signal.SIGTERM)
        status, log = stage.finish()
    finally:
        stage.close()
    assert status == 0, log


@pytest.mark.slow
def test_serve_names_too_little_shared_memory_in_one_line(tmp_path: Path, small_shm: None) -> None:
    path = tmp_path / "config.toml"
    path.write_text(CONFIG.replace("16MiB", "64MiB"))
    serve = [sys.executable, "-m", "logstore.cli.main", "serve", "--config", str(path)]
    with subprocess.Popen(
        [*serve, "--node", "1", "--dir", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == ExitStatus.USAGE, errors
    starting, error = errors.splitlines()
    assert "starting in mode" in starting
    assert re.fullmatch(r"error: .*/dev/shm.* enlarge that tmpfs.*", error), errors
