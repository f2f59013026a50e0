"""Apache Kafka: brokers that are controllers, too (KRaft), two topics with `acks=all`.

Owns how brokers, topics and client are configured, and in which ways Kafka takes the loads. Both
topics live in one cluster; one of them has `flush.messages=1`. The client is one JVM for all loads,
so that its compiler is warm.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.peers.line_process import LineProcess
from benchmarks.peers.loads import (
    AT_A_RATE,
    BATCHES,
    CACHED_IN_SYNC,
    FLUSHED_IN_SYNC,
    ONE_IN_FLIGHT,
    SINGLES,
    SMALL,
    SMALL_BATCHES,
    Load,
    Way,
)
from benchmarks.peers.peer import Peer, System
from benchmarks.peers.programs import BIN, INPUTS, filled, missing, said_version
from benchmarks.peers.servers import NODES, ServerCluster, free_ports
from logstore.errors import ConfigError, LogStoreError
from logstore.limits import KIB, MIB
from logstore.spark.java import JAVA_MIN, find_java

JARS, CLASSES = BIN / "kafka", BIN / "kafka-load"
FORMAT_TIMEOUT_S = 120.0
READY_TIMEOUT_S = 60.0
START_TIMEOUT_S = 120.0
IN_STEP_TIMEOUT_S = 120.0
CLUSTER_ID = "cGVlcnMtb24tb25lLWJveA"  # 16 bytes, as Kafka wants them
# Those of Kafka's own start script, but for the heap: half of it, for three on one machine.
BROKER_FLAGS = [
    "-Xms512m",
    "-Xmx512m",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]
CLIENT_FLAGS = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC"]
TOOL_FLAGS = ["-Xmx128m", "-XX:TieredStopAtLevel=1"]

LINGER_MS = 5  # as it ships
PLAIN, FLUSH = "plain", "flush"
TOPICS = {
    PLAIN: ("Kafka", CACHED_IN_SYNC),
    FLUSH: ("Kafka flush.messages=1", FLUSHED_IN_SYNC),
}


def open_kafka(folder: Path) -> Peer:
    """A cluster, its folders formatted, its client ready."""
    ports, controller_ports = free_ports(), free_ports()
    voters = ",".join(
        f"{node}@127.0.0.1:{port}" for node, port in zip(NODES, controller_ports, strict=True)
    )
    commands = {}
    for node, port, controller_port in zip(NODES, ports, controller_ports, strict=True):
        values = {
            "NODE": node,
            "PORT": port,
            "CONTROLLER_PORT": controller_port,
            "VOTERS": voters,
            "STORE": folder / f"store-{node}",
        }
        config = folder / f"node-{node}.properties"
        config.write_text(filled(INPUTS / "kafka" / "server.properties", values), encoding="utf-8")
        _format(folder, config)
        commands[node] = _java(BROKER_FLAGS, "kafka.Kafka", str(config))
    servers = ",".join(f"127.0.0.1:{port}" for port in ports)
    return ServerCluster(folder, commands, KafkaClient(servers, folder / "client.log"))


def _java(flags: list[str], *words: str) -> list[str]:
    log_settings = f"-Dlog4j2.configurationFile={INPUTS / 'kafka' / 'log4j2.properties'}"
    class_path = f"{CLASSES}:{JARS}/*"
    return [find_java(os.environ), *flags, log_settings, "-cp", class_path, *words]


def _format(folder: Path, config: Path) -> None:
    words = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)]
    try:
        subprocess.run(
            _java(TOOL_FLAGS, *words),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=FORMAT_TIMEOUT_S,
            check=True,
        )
    except subprocess.SubprocessError as error:
        said = f"{getattr(error, 'stdout', '')}{getattr(error, 'stderr', '')}"
        raise LogStoreError(f"Kafka did not format a folder; it wrote: {said}") from error


class KafkaClient:
    """See `Client`. Both topics are made with the first append, which goes to the plain one."""

    def __init__(self, servers: str, log: Path) -> None:
        self._servers = servers
        self._log = log
        self._probe: LineProcess | None = None
        self._process = self._begin(CLIENT_FLAGS)

    def wait_first_ack(self) -> int:
        first_ns = int(self._process.ask(f"first {PLAIN}", START_TIMEOUT_S))
        self._process.ask(f"first {FLUSH} flush.messages=1", START_TIMEOUT_S)
        return first_ns

    def begin_load(self, way: Way, seconds: float, samples: Path) -> LineProcess:
        topic, linger_ms, pack_bytes = way.arguments
        load = way.load
        words = [topic, load.payload_bytes, load.window_bytes, load.rate, seconds, samples]
        self._process.tell(" ".join(map(str, ["load", *words, linger_ms, pack_bytes])))
        return self._process

    def wait_in_step(self) -> int:
        """Of both topics; the node that leads the flushed one."""
        self._process.ask(f"leader {PLAIN}", IN_STEP_TIMEOUT_S)
        return int(self._process.ask(f"leader {FLUSH}", IN_STEP_TIMEOUT_S))

    def begin_probe(self) -> LineProcess:
        """A JVM of its own: the first one goes on answering who leads."""
        self._probe = self._begin(TOOL_FLAGS)
        self._probe.tell(f"probe {FLUSH}")
        return self._probe

    def close(self) -> None:
        self._process.close()
        if self._probe is not None:
            self._probe.close()

    def _begin(self, flags: list[str]) -> LineProcess:
        process = LineProcess(_java(flags, "KafkaLoad", self._servers), self._log)
        try:
            process.hear(READY_TIMEOUT_S)
        except LogStoreError:
            process.close()
            raise
        return process


def _ways() -> Iterator[Way]:
    """By `batch.size` and `linger.ms`."""
    packs: tuple[tuple[Load, int, int], ...] = (
        (SINGLES, 16 * KIB, LINGER_MS),
        (SINGLES, 16 * KIB, 0),
        (SINGLES, 64 * KIB, LINGER_MS),
        (SINGLES, MIB, LINGER_MS),
        (ONE_IN_FLIGHT, 16 * KIB, 0),
        (AT_A_RATE, 16 * KIB, LINGER_MS),
        (AT_A_RATE, 16 * KIB, 0),
        (BATCHES, 64 * KIB, LINGER_MS),
        (BATCHES, MIB, LINGER_MS),
        (SMALL, 16 * KIB, LINGER_MS),
        (SMALL, MIB, LINGER_MS),
        (SMALL_BATCHES, 64 * KIB, LINGER_MS),
        (SMALL_BATCHES, MIB, LINGER_MS),
    )
    for topic in TOPICS:
        for load, pack_bytes, linger_ms in packs:
            yield _way(topic, load, pack_bytes, linger_ms)


def _way(topic: str, load: Load, pack_bytes: int, linger_ms: int) -> Way:
    name, durability = TOPICS[topic]
    pack = f"{pack_bytes // KIB} KiB" if pack_bytes < MIB else f"{pack_bytes // MIB} MiB"
    linger = "" if linger_ms else ", linger 0"
    arguments = (topic, str(linger_ms), str(pack_bytes))
    return Way(f"{name}, {pack}{linger}", load, durability, arguments)


def _find_missing() -> str:
    if not (absent := missing("kafka", "kafka/.complete")):
        try:
            find_java(os.environ)
        except ConfigError:
            return f"Java {JAVA_MIN} or newer is wanted, in JAVA_HOME or PATH"
    return absent


def _versions() -> Mapping[str, str]:
    jar = next(JARS.glob("kafka-clients-*.jar"))
    return {
        "kafka": jar.stem.removeprefix("kafka-clients-"),
        "java": said_version(find_java(os.environ), "-version"),
    }


KAFKA = System(
    name="kafka",
    ways=tuple(_ways()),
    # Many small requests: what a broker's compiler has most to do with.
    warm_ups=tuple(_way(topic, SINGLES, 16 * KIB, LINGER_MS) for topic in TOPICS),
    durability=(CACHED_IN_SYNC, FLUSHED_IN_SYNC),  # the plain topic, and the one that flushes
    find_missing=_find_missing,
    versions=_versions,
    open=open_kafka,
)
