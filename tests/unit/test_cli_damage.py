"""What commands say of damage on a replica's disk, and what to do about it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import logstore
from logstore.cli.trouble import damage_words
from logstore.errors import CorruptData, ErrorCode
from logstore.format.client_messages import (
    ErrorReply,
    FetchRequest,
    StatusReply,
    StatusRequest,
    VerifyReply,
    VerifyRequest,
)
from tests.unit.cli_stage import kept_process_settings, run
from tests.unit.client_stage import Cluster

FAULTY = [{"first_lsn": 2, "last_lsn": 2, "reason": "bad CRC"}]
REMEDY = (
    "node 2: damaged: if `logstore verify` shows no damage of the others, stop it, `logstore reset "
    "--node 2`, and start it: see docs/runbooks/disk-lost.md\n"
)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Node 2 of two is damaged at LSN 2."""
    with kept_process_settings(), Cluster(nodes=2) as cluster:
        monkeypatch.setenv("LOGSTORE_ENDPOINT", cluster.endpoint)
        for node, role, faulty in ((1, "leader", []), (2, "follower", FAULTY)):
            replica = cluster.replicas[node]
            for _ in range(3):
                replica.append_to_log([b"x"])
            rows = json.dumps(faulty).encode()
            verified = VerifyReply(3, 3, 255, 3, 100, 3, rows)
            status = StatusReply(
                json.dumps({"role": role, "term": 1, "visible_lsn": 3, "faulty": faulty}).encode()
            )
            replica.on[VerifyRequest] = lambda _, verified=verified: verified
            replica.on[StatusRequest] = lambda _, status=status: status
        damage = ErrorReply(ErrorCode.CORRUPT_DATA, 0, 2, 2, b"1.data at byte 512: bad CRC")
        cluster.replicas[2].on[FetchRequest] = lambda _: damage
        yield cluster


def test_status_and_verify_say_what_to_do(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("status") == 0
    assert REMEDY in capfd.readouterr().err
    assert run("verify") == 5
    assert capfd.readouterr().err == REMEDY


def test_where_no_other_is_known_to_be_whole_no_folder_is_given_up() -> None:
    assert damage_words([], 3) == []
    for damaged, nodes in (([1], 1), ([1, 3], 3)):
        (words,) = damage_words(damaged, nodes)
        assert "keep every folder as it is" in words
        assert "logstore reset" not in words


@pytest.mark.parametrize(
    ("command", "option"),
    [(("consume", "--replica", "2"), "--replica"), (("digest", "--node", "2"), "--node")],
)
def test_damage_of_a_replica_that_was_named_leads_to_the_others(
    cluster: Cluster,
    capfd: pytest.CaptureFixture[str],
    command: tuple[str, ...],
    option: str,
) -> None:
    assert run(*command) == 5
    assert capfd.readouterr().err == (
        "error: node 2: the replica's disk is damaged: 1.data at byte 512: bad CRC; another "
        f"replica may have it whole: leave out {option}\n"
    )


def test_the_error_of_a_client_names_no_byte_that_is_not_known(cluster: Cluster) -> None:
    with logstore.connect(cluster.endpoint) as client, pytest.raises(CorruptData) as raised:
        list(client.read(1, 3, replica=2))
    assert str(raised.value) == "the replica's disk is damaged: 1.data at byte 512: bad CRC"
    assert (raised.value.first_lsn, raised.value.last_lsn) == (2, 2)
