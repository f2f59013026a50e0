"""Real namespaces and links: what is shaped is shaped, replicas run there, nothing stays behind."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.bare_stream import measure_stream
from benchmarks.namespaces import BURST_BYTES, why_not
from benchmarks.saturate import Settings
from benchmarks.shaped_cluster import shaped_cluster
from benchmarks.shaped_network import CLIENT, ShapedNetwork
from logstore.cli.embedded import poll_until

pytestmark = pytest.mark.slow
# So low that any machine carries far more where nothing is shaped.
BYTES_PER_S = 4_000_000
FAR_MORE_MB_PER_S = 12.0
FRAME_BYTES = 1 << 16
SECONDS = 0.5
END_TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def _possible() -> None:
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture
def network(_possible: None) -> Iterator[ShapedNetwork]:
    with ShapedNetwork((1, 2)) as network:
        yield network


def stream_mb_per_s(network: ShapedNetwork, one: int, other: int) -> float:
    return measure_stream(network, one, other, frame_bytes=FRAME_BYTES, seconds=SECONDS).mb_per_s


@pytest.mark.parametrize(("one", "other"), [(1, 2), (2, 1)])
def test_a_shaped_stream_carries_its_rate_and_no_more(
    network: ShapedNetwork, one: int, other: int
) -> None:
    """Whatever was counted has passed the link since the beginning, which bounds it on a machine of
    any speed."""
    network.shape(BYTES_PER_S)
    began_s = time.monotonic()
    row = measure_stream(network, one, other, frame_bytes=FRAME_BYTES, seconds=SECONDS)
    passed_s = time.monotonic() - began_s
    assert 0 < row.mb_per_s * row.seconds * 1e6 <= BYTES_PER_S * passed_s + BURST_BYTES


def test_the_clients_links_and_unshaped_ones_carry_far_more(network: ShapedNetwork) -> None:
    network.shape(BYTES_PER_S)
    assert stream_mb_per_s(network, CLIENT, 1) > FAR_MORE_MB_PER_S
    network.unshape()
    assert stream_mb_per_s(network, 1, 2) > FAR_MORE_MB_PER_S


@pytest.mark.long
@pytest.mark.usefixtures("_possible")
def test_replicas_are_each_in_their_namespace_and_nothing_stays_behind(tmp_path: Path) -> None:
    machine = what_the_machine_shows()
    with shaped_cluster(tmp_path, print) as cluster:
        cluster.network.shape(BYTES_PER_S)
        namespaces = cluster.network.namespaces()
        assert len({*namespaces.values(), os.stat("/proc/self/ns/net").st_ino}) == 5
        assert what_the_machine_shows() == machine
        for node in cluster.cluster.nodes:
            processes = cluster.cluster.processes(node).values()
            assert {os.stat(f"/proc/{pid}/ns/net").st_ino for pid in processes} == {
                namespaces[node]
            }
        (row, samples), _ = cluster.load(Settings(1_024, 1, 0.5, SECONDS))
        assert samples
        assert row.payloads_per_s > 0
    assert what_the_machine_shows() == machine
    # A killed process has its namespace until its last thread has ended.
    assert poll_until(lambda: not set(namespaces.values()) & namespaces_in_use(), END_TIMEOUT_S)
    assert not list(tmp_path.iterdir())


def what_the_machine_shows() -> list[str]:
    """The named namespaces, and the links of this one."""
    return [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for command in (["ip", "netns", "list"], ["ip", "-brief", "link"])
    ]


def namespaces_in_use() -> set[int]:
    """Of any process, or of a descriptor of this one."""
    paths = [*Path("/proc").glob("[0-9]*/ns/net"), *Path("/proc/self/fd").iterdir()]
    found = set()
    for path in paths:
        try:
            found.add(path.stat().st_ino)
        except OSError:  # it has ended
            continue
    return found
