"""The raw port on real replicas: the README's lines append, and go on when the leader is killed."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

import logstore
from logstore.cli.embedded import poll_until
from logstore.cli.free_ports import find_free_ports
from logstore.config import Config
from tests.faults.quick_cluster import RECOVERY_TIMEOUT_S, QuickCluster, quick_cluster, quick_config
from tests.tidy.repository import text_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]


def with_raw_ports(config: Config, ports: list[int]) -> Config:
    nodes = [
        msgspec.structs.replace(node, raw_port=port)
        for node, port in zip(config.nodes, ports, strict=True)
    ]
    return msgspec.structs.replace(config, nodes=nodes)


def connected(ports: list[int]) -> Any:
    """The PUSH of the README's lines, connected to these ports; it has sent one payload."""
    section = text_of(Path("README.md")).partition("### Five lines from anywhere\n")[2]
    block = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {}
    exec(block[1].replace("7109, 7119, 7129", ", ".join(map(str, ports))), names)
    return names["push"]


def stored(cluster: QuickCluster) -> list[bytes]:
    with logstore.connect(cluster.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
        last = log.admin.commit_lsn()
        batches = log.read(1, last, min_lsn=last)
        return [payload for batch in batches for payload in batch.payloads()]


def test_any_push_appends_and_goes_on_at_the_next_leader(tmp_path: Path) -> None:
    config = quick_config()
    taken, count = {node.port for node in config.nodes}, len(config.nodes)
    ports = [port for port in find_free_ports(2 * count, Random()) if port not in taken][:count]
    with quick_cluster(tmp_path, with_raw_ports(config, ports)) as cluster:
        leader = cluster.wait_for_leader()
        push = connected(ports)
        try:
            push.sndtimeo = int(1_000 * RECOVERY_TIMEOUT_S)
            for number in range(1_000):
                push.send(b"%d" % number)
            before = [b"a payload", *(b"%d" % number for number in range(1_000))]
            assert poll_until(lambda: stored(cluster) == before, RECOVERY_TIMEOUT_S)
            cluster.kill(leader)
            cluster.wait_for_leader(RECOVERY_TIMEOUT_S, other_than=leader)
            numbers = itertools.count(1_000)

            def has_come_through() -> bool:
                """What is on its way when the leader changes is lost, and more is sent."""
                push.send(b"%d" % next(numbers))
                return len(stored(cluster)) > len(before)

            assert poll_until(has_come_through, RECOVERY_TIMEOUT_S)
        finally:
            push.close(linger=0)
        after = stored(cluster)[len(before) :]
        found = [int(payload) for payload in after]
        assert found == sorted(set(found)), "none is doubled or overtaken"
        assert found[0] >= 1_000
