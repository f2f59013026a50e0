"""Data folders that a replica must not take: `serve` says why in a line, and its exit status tells
(SAFETY L3, M2).
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest

import logstore
from logstore.cli.embedded import LEADER_TIMEOUT_S, EmbeddedCluster, make_config, poll_until
from logstore.config import render_config
from logstore.config_layout import with_mode
from logstore.errors import Unreachable, UnsupportedVersion
from logstore.format.fields import seal
from logstore.format.meta import META_CONFIG_VERSION, Meta, unpack_meta
from logstore.model import NodeId
from logstore.storage.disk import RealDisk
from tests.cluster.one_cluster import run_cli
from tests.faults.damage import META_NAMES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(100)]
REFUSED = 4
# From a child that found it out: the supervisor does not try again (sysexits' EX_CONFIG).
NO_USE_IN_TRYING_AGAIN = 78
VERSION_AT = 4
# Six starts, one after the other, take less.
HANGS_S = 12.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """One replica that has been a voter."""
    with EmbeddedCluster(tmp_path_factory.mktemp("folders"), make_config(1, Random())) as started:
        started.start_all()
        started.wait_for_leader()
        yield started


@pytest.fixture(scope="module")
def formed(cluster: EmbeddedCluster) -> Path:
    """The folder of a replica that was stopped."""
    assert cluster.stop(1)
    return cluster.node_folder(1)


def _serve(folder: Path, config_folder: Path) -> tuple[int, str]:
    """`logstore serve` of node 1, on ports of its own: exit status and what it said."""
    config_path = config_folder / "other.toml"
    config_path.write_text(render_config(make_config(1, Random())), encoding="utf-8")
    done = run_cli(None, "serve", "--config", str(config_path), "--node", "1", "--dir", str(folder))
    return done.returncode, (done.stdout + done.stderr).decode()


@pytest.mark.long
def test_a_folder_in_use_is_refused(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """FAULTS P16."""
    status, said = _serve(cluster.node_folder(1), tmp_path)
    assert status == REFUSED
    assert "in use" in said
    assert cluster.is_running(1)
    assert cluster.wait_for_leader() == 1


def _as_of_another_node(image: bytes) -> bytes:
    return _changed(image, lambda meta: msgspec.structs.replace(meta, node=NodeId(2)))


def _as_of_another_cluster(image: bytes) -> bytes:
    return _changed(image, lambda meta: msgspec.structs.replace(meta, cluster_id=b"c" * 16))


def _as_of_another_replica(image: bytes) -> bytes:
    return _changed(image, lambda meta: msgspec.structs.replace(meta, replica_uuid=b"u" * 16))


def _as_of_a_newer_version(image: bytes) -> bytes:
    newer = bytearray(image[:-4])  # all but the CRC, which is right in the newer version too
    newer[VERSION_AT] = META_CONFIG_VERSION + 1
    sealed = seal(bytes(newer), b"")
    with pytest.raises(UnsupportedVersion):
        unpack_meta(sealed)
    return sealed


def _changed(image: bytes, change: Callable[[Meta], Meta]) -> bytes:
    return change(unpack_meta(image)).pack()


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_as_of_another_node, "is node 2's, this is node 1"),
        (_as_of_another_cluster, "two data folders were mixed"),
        (_as_of_another_replica, "must not be copied between nodes"),
        (_as_of_a_newer_version, "upgrade this side"),
    ],
)
def test_a_folder_that_is_not_ours_is_refused_and_left_as_it_is(
    formed: Path, tmp_path: Path, change: Callable[[bytes], bytes], reason: str
) -> None:
    """FAULTS O2, O3."""
    folder = tmp_path / "node-1"
    shutil.copytree(formed, folder, ignore=shutil.ignore_patterns("counters"))
    for name in META_NAMES:
        image = (folder / name).read_bytes()
        (folder / name).write_bytes(change(image))
    segments = {path.name: path.read_bytes() for path in folder.glob("*.raft")}
    assert segments

    status, said = _serve(folder, tmp_path)

    assert status == NO_USE_IN_TRYING_AGAIN, said
    assert reason in said
    assert "Traceback" not in said
    assert {path.name: path.read_bytes() for path in folder.glob("*.raft")} == segments


def test_p17_a_folder_whose_last_writer_hangs_is_waited_for_and_status_says_so(
    cluster: EmbeddedCluster, formed: Path
) -> None:
    """A live supervisor holds a lock of its own, so this one can only be an orphan's."""
    orphan = RealDisk()
    orphan.lock_folder(str(formed))
    cluster.start(1)
    with logstore.connect(cluster.endpoints, timeout=2) as log:

        def refusal() -> str | None:
            try:
                return str(log.admin.status()["nodes"][0].get("refusal", ""))
            except Unreachable:  # it has not come up yet
                return None

        assert poll_until(lambda: "in use" in (refusal() or ""), LEADER_TIMEOUT_S)
        orphan.unlock_folder(str(formed))
        assert cluster.wait_for_leader() == 1
        assert poll_until(lambda: refusal() == "", LEADER_TIMEOUT_S)
    assert cluster.counters(1)["replica_restarts"] == 0


def test_p17_a_writer_that_hangs_with_the_ports_of_its_process_is_waited_for(
    tmp_path: Path,
) -> None:
    """In mode `single` the process that hangs in the kernel has the sockets, too: 70 after six
    starts in some seconds."""
    config = with_mode(make_config(1, Random()), "single")
    with EmbeddedCluster(tmp_path, config) as cluster:
        folder = cluster.node_folder(1)
        orphan = RealDisk()
        orphan.make_folder(str(folder))
        orphan.lock_folder(str(folder))
        with socket.create_server(("127.0.0.1", config.nodes[0].port)):
            cluster.start(1)
            assert not poll_until(lambda: not cluster.is_running(1), HANGS_S)
        orphan.unlock_folder(str(folder))
        assert cluster.wait_for_leader() == 1
        assert cluster.counters(1)["replica_restarts"] == 1


def test_a_stranger_that_has_a_port_is_not_waited_for(tmp_path: Path) -> None:
    config = with_mode(make_config(1, Random()), "single")
    with (
        EmbeddedCluster(tmp_path, config) as cluster,
        socket.create_server(("127.0.0.1", config.nodes[0].port)),
    ):
        cluster.start(1)
        assert poll_until(lambda: not cluster.is_running(1), LEADER_TIMEOUT_S)
