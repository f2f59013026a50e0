"""Settings: units, relations, and that each refusal names the key and the reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.config import (
    Config,
    PortOffset,
    limits_digest,
    load_config,
    parse_config,
    render_config,
)
from logstore.config_reference import render_reference
from logstore.errors import ConfigError, InvalidRequest
from logstore.units import parse_duration, parse_size

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
THREE = """
[cluster]
name = "test"
[[nodes]]
node = 1
port = 7100
[[nodes]]
node = 2
port = 7110
[[nodes]]
node = 3
port = 7120
"""


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.name)
def test_every_shipped_file_is_accepted_and_survives_rendering(path: Path) -> None:
    config = load_config(path)
    assert parse_config(render_config(config)) == config


def test_defaults_are_the_limits_of_the_product() -> None:
    config = parse_config(THREE)
    assert config.limits.batch_max_bytes == 4 << 20
    assert config.ring_bytes == (36 << 20) + (64 << 10)
    assert config.storage.segment_bytes == 256 << 20
    assert config.raft.heartbeat_ns == 200_000_000
    assert config.raft.election_timeout_ns == 1_000_000_000
    assert config.process.mode == "auto"


def test_by_default_everything_is_kept() -> None:
    retention = parse_config(THREE).retention
    assert (retention.age_ns, retention.size_bytes, retention.payloads) == (0, 0, 0)


def test_each_bound_of_retention_may_be_given_alone() -> None:
    kept = parse_config(THREE + '[retention]\nage = "7d"\n').retention
    assert (kept.age_ns, kept.size_bytes, kept.payloads) == (7 * 86_400 * 10**9, 0, 0)
    kept = parse_config(THREE + '[retention]\nbytes = "512MiB"\n').retention
    assert (kept.age_ns, kept.size_bytes, kept.payloads) == (0, 512 << 20, 0)
    kept = parse_config(THREE + "[retention]\npayloads = 1\n").retention
    assert (kept.age_ns, kept.size_bytes, kept.payloads) == (0, 0, 1)


def test_endpoints_are_the_port_plus_the_offset() -> None:
    config = parse_config(THREE)
    assert config.endpoint(2, PortOffset.CONTROL) == "tcp://127.0.0.1:7110"
    assert config.endpoint(3, PortOffset.PEER_BULK) == "tcp://127.0.0.1:7126"
    assert config.peer_ids(2) == [1, 3]


def config_at(*ports: int, hosts: Sequence[str] = (), process: str = "") -> Config:
    """A configuration of nodes 1, 2, … at these ports."""
    nodes = "".join(
        f'[[nodes]]\nnode = {number}\nport = {port}\nhost = "{host}"\n'
        for number, port, host in zip(
            range(1, len(ports) + 1), ports, hosts or ["127.0.0.1"] * len(ports), strict=True
        )
    )
    return parse_config(f'[cluster]\nname = "test"\ninsecure = true\n{nodes}[process]\n{process}\n')


def produce_ports(config: Config) -> list[int]:
    return [config.produce_port(node) for node in config.node_ids()]


def test_a_produce_port_follows_the_other_eight_of_its_node() -> None:
    assert produce_ports(config_at(7100, 7110, 7120)) == [7108, 7118, 7128]
    assert produce_ports(config_at(7100, 7109, 7118)) == [7108, 7117, 7126]
    assert produce_ports(config_at(7100, 7100, hosts=("10.0.0.1", "10.0.0.2"))) == [7108, 7108]
    config = config_at(7100, 7110)
    assert config.endpoint(2, PortOffset.PRODUCE) == "tcp://127.0.0.1:7118"


def test_nodes_that_are_eight_ports_apart_have_their_produce_ports_above_all_of_them() -> None:
    """Such configurations are older than the ninth port; two names may be of one machine."""
    assert produce_ports(config_at(7100, 7108, 7116)) == [7124, 7125, 7126]
    assert produce_ports(config_at(7116, 7108, 7200)) == [7208, 7209, 7210]
    assert produce_ports(config_at(7100, 7108, hosts=("localhost", "127.0.0.1"))) == [7116, 7117]


def test_where_no_port_is_left_above_no_node_has_a_produce_port() -> None:
    """A configuration that was valid before there was such a port stays so."""
    assert produce_ports(config_at(65_528)) == [0]
    assert produce_ports(config_at(65_527)) == [65_535]
    assert produce_ports(config_at(65_500, 65_528)) == [0, 0]
    assert produce_ports(config_at(65_518, 65_526)) == [65_534, 65_535]
    assert produce_ports(config_at(65_510, 65_518, 65_526)) == [0, 0, 0]


def test_a_produce_port_may_be_switched_off() -> None:
    assert produce_ports(config_at(7100, 7110, process="produce = false")) == [0, 0]


@pytest.mark.parametrize("apart", range(8, 20))
def test_no_port_of_a_node_is_one_of_another_node(apart: int) -> None:
    config = config_at(7100, 7100 + apart, 7100 + 2 * apart)
    ports = [config.port(node, offset) for node in config.node_ids() for offset in PortOffset]
    assert len({*ports}) == 3 * len(PortOffset)


def test_an_unknown_node_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidRequest, match="no node 7.*1, 2, 3"):
        parse_config(THREE).node(7)


def test_reference_is_current() -> None:
    text = (CONFIGS / "README.md").read_text(encoding="utf-8")
    assert text == render_reference(), "run `make reference`"


REFUSALS = {
    "unknown table": (THREE + "[rfat]\n", r"rfat: unknown key; the keys here are cluster, nodes"),
    "unknown key": (THREE + '[raft]\nheartbeet = "1s"\n', r"raft\.heartbeet: unknown key.*heartb"),
    "unknown node key": (THREE + "prot = 1\n", r"nodes\[.*\]\.prot: unknown key.*node, host, port"),
    "missing key": ("[cluster]\n[[nodes]]\nnode = 1\nport = 7100\n", r"cluster\.name: is missing"),
    "wrong type": (THREE + "[storage]\nsegment = 4\n", r"storage\.segment: Expected `str`"),
    "raw port of another listener": (
        THREE.replace("port = 7100", "port = 7100\nraw_port = 7113"),
        r"nodes\[0\]\.raw_port: 7113 is node 2's tail port: choose another one",
    ),
    "raw port of two nodes": (
        THREE.replace("port = 7100", "port = 7100\nraw_port = 7150").replace(
            "port = 7110", "port = 7110\nraw_port = 7150"
        ),
        r"nodes\[1\]\.raw_port: 7150 is node 1's: choose another one",
    ),
    "raw port that is none": (
        THREE.replace("port = 7100", "port = 7100\nraw_port = 70000"),
        r"nodes\[0\]\.raw_port: is 70000; it must be between 1 and 65535",
    ),
    "no unit": (THREE + '[raft]\nheartbeat = "100"\n', r"raft\.heartbeat: '100' has no unit; .*ms"),
    "bad unit": (THREE + '[limits]\nring = "64mb"\n', r"limits\.ring: '64mb' has the unknown unit"),
    "negative": (THREE + '[limits]\nring = "-1MiB"\n', r"limits\.ring: '-1MiB' is no quantity"),
    "bad choice": (
        THREE + '[raft]\nstream_mode = "fast"\n',
        r'stream_mode: Invalid .*; write one of "streaming", "paper"$',
    ),
    "not TOML": ("[cluster", r"is not TOML"),
    "no nodes": ("nodes = []\n[cluster]\nname = 'x'\n", r"nodes \(their number\): is 0"),
    "node twice": (THREE.replace("node = 3", "node = 1"), r"nodes\[2\]\.node: 1 is given twice"),
    "node 0": (THREE.replace("node = 3", "node = 0"), r"nodes\[2\]\.node: is 0; it must be betw"),
    "ports overlap": (THREE.replace("7110", "7107"), r"nodes\[1\]\.port: 7107 overlaps node 1's"),
    "port too high": (THREE.replace("7120", "65530"), r"nodes\[2\]\.port: is 65530"),
    "open to all": (THREE.replace("port = 7120", 'port = 7120\nhost = "10.0.0.1"'), r"insecure = "),
    "wildcard": (THREE.replace("port = 7120", 'port = 7120\nhost = "0.0.0.0"'), r"names no node"),
    "IPv6": (THREE.replace("port = 7120", 'port = 7120\nhost = "::1"'), r"::1 is IPv6"),
    "cluster name": (THREE.replace('"test"', '"a b"'), r"cluster\.name: is 'a b'"),
    "election": (THREE + '[raft]\nelection_timeout = "400ms"\n', r"election_timeout.*less than 5"),
    "heartbeat": (THREE + '[raft]\nheartbeat = "1ms"\n', r"raft\.heartbeat: is 1ms"),
    "batch wall": (
        THREE + '[limits]\nbatch_max = "17MiB"\n',
        r"limits\.batch_max: is 17MiB",
    ),
    "batch unquoted": (THREE + "[limits]\nbatch_max = 5\n", 'batch_max: .*a size such as "4MiB"'),
    "delay unquoted": (THREE + "[raft]\nheartbeat = 5\n", 'heartbeat: .*a duration such as "'),
    "quoted port": (
        THREE.replace("7120", '"7120"'),
        r"nodes\[.*\]\.port: Expected `int`, got `str`; write it without quotes$",
    ),
    "quoted choice": (
        THREE + '[process]\nmetrics = "true"\n',
        r"process\.metrics: Expected `bool`, got `str`; write it without quotes$",
    ),
    "bulk window": (
        THREE + '[limits]\nbatch_max = "16MiB"\n',
        r"is 8MiB, less than .*batch_max \(16MiB\).*raise limits\.bulk_window to at least 16MiB",
    ),
    "ring": (THREE + '[limits]\nring = "32MiB"\n', r"limits\.ring: is 32MiB; with 2 peers"),
    "ring step": (THREE + '[limits]\nring = "67108865 B"\n', r"limits\.ring.*multiple of 64KiB"),
    "segment": (THREE + '[storage]\nsegment = "1MiB"\n', r"storage\.segment: is 1MiB; .*16MiB"),
    "age": (THREE + '[retention]\nage = "999ms"\n', r"retention\.age: is 999ms; write 1s or more"),
    "old age": (THREE + '[retention]\nage = "99999999d"\n', r"is 99999999d; write 106751d or less"),
    "age of 293 years": (THREE + '[retention]\nage = "106752d"\n', r"write 106751d or less"),
    "too many kept bytes": (
        THREE + '[retention]\nbytes = "99999999TiB"\n',
        r"retention\.bytes: is 99999999TiB; write 8388607TiB or less",
    ),
    "age unquoted": (THREE + "[retention]\nage = 5\n", 'age: .*a duration such as "0s"'),
    "age no unit": (THREE + '[retention]\nage = "0"\n', r"retention\.age: '0' has no unit"),
    "kept bytes": (
        THREE + '[retention]\nbytes = "511MiB"\n',
        r"retention\.bytes: is 511MiB; whole segments of 256MiB .* at least 512MiB",
    ),
    "kept payloads": (THREE + "[retention]\npayloads = -1\n", r"retention\.payloads: is -1; write"),
    "client memory": (THREE + '[limits]\nclient_memory = "1MiB"\n', r"client_memory.*session_wind"),
    "cpu name": (THREE + "cpus = {disk = [1]}\n", r"nodes\[2\]\.cpus\.disk: no such process"),
    "cpu list": (THREE + "cpus = {raft = []}\n", r"nodes\[2\]\.cpus\.raft: is \[\]"),
    "own replicator": (THREE + "cpus = {replicator-3 = [0]}\n", r"replicator-3: no such process"),
    "spin alone": (THREE + '[process]\nspin = ["raft"]\n', r"process\.spin: 'raft' has no CPU"),
    "spin name": (THREE + '[process]\nspin = ["disk"]\n', r"process\.spin: no such process"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_setting_that_cannot_be_is_refused_with_key_and_reason(case: str) -> None:
    text, message = REFUSALS[case]
    with pytest.raises(ConfigError, match=message):
        parse_config(text)


def test_spinning_is_allowed_on_a_core_of_its_own() -> None:
    text = THREE.replace("port =", "cpus = {raft = [1], ingress = [0]}\nport =")
    assert parse_config(text + '[process]\nspin = ["raft"]\n').process.spin == ["raft"]


def test_the_ring_relation_counts_every_peer() -> None:
    """SAFETY W7: ring >= 4 x max(group_max, batch_max) + peers x bulk_window + message_max."""
    needed = 4 * (4 << 20) + 2 * (8 << 20) + (4 << 20) + (64 << 10)
    parse_config(THREE + f'[limits]\nring = "{needed} B"\n')
    with pytest.raises(ConfigError, match=r"limits\.ring"):
        parse_config(THREE + f'[limits]\nring = "{needed - (64 << 10)} B"\n')


def test_a_ring_is_what_is_granted_unless_the_file_says_more() -> None:
    assert parse_config(THREE).ring_bytes == parse_config(THREE).ring_bytes_min
    two_nodes = THREE.rpartition("[[nodes]]")[0]
    assert parse_config(two_nodes).ring_bytes == parse_config(THREE).ring_bytes - (8 << 20)
    larger = parse_config(THREE + '[limits]\nbatch_max = "8MiB"\nring = "auto"\n')
    assert larger.ring_bytes == parse_config(THREE).ring_bytes + 5 * (4 << 20)
    assert parse_config(THREE + '[limits]\nring = "64MiB"\n').ring_bytes == 64 << 20


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read"):
        load_config(tmp_path / "absent.toml")
    bad = tmp_path / "bad.toml"
    bad.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"bad\.toml: cannot be read"):
        load_config(bad)
    bad.write_text(THREE.replace("7110", "7107"))
    with pytest.raises(ConfigError, match=r"bad\.toml: nodes\[1\]\.port"):
        load_config(bad)


def test_quantities_are_exact() -> None:
    assert parse_size("1.5 GB", key="k") == 1_500_000_000
    assert parse_size("0.5KiB", key="k") == 512
    assert parse_duration("0.1ms", key="k") == 100_000
    assert parse_duration("2 min", key="k") == 120_000_000_000
    with pytest.raises(ConfigError, match=r"k: '0\.3B' is no whole number of B"):
        parse_size("0.3B", key="k")


@given(st.text(max_size=20))
def test_any_text_is_a_size_or_a_config_error(text: str) -> None:
    try:
        assert parse_size(text, key="k") >= 0
    except ConfigError as error:
        assert str(error).startswith("k: ")


@given(st.text(max_size=200))
def test_any_text_is_a_config_or_a_config_error(text: str) -> None:
    try:
        assert isinstance(parse_config(text), Config)
    except ConfigError as error:
        assert str(error)


def test_limits_have_one_digest_however_they_are_written() -> None:
    as_shipped = limits_digest(parse_config(THREE))
    assert as_shipped == limits_digest(parse_config(THREE + '[limits]\nbatch_max = "4096KiB"\n'))
    lower = limits_digest(parse_config(THREE + '[limits]\nbatch_max = "1MiB"\n'))
    assert 0 not in (as_shipped, lower)
    assert as_shipped != lower
    one_more = THREE + "[[nodes]]\nnode = 4\nport = 7130\n"
    assert parse_config(one_more).ring_bytes > parse_config(THREE).ring_bytes
    assert as_shipped == limits_digest(parse_config(one_more))  # a replica that joined has it
    assert as_shipped != limits_digest(parse_config(THREE + '[limits]\nring = "256MiB"\n'))
