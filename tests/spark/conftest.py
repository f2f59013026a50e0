"""One Spark and one cluster for all tests of this folder: each takes seconds to start.

LOGSTORE_SPARK_MASTER=standalone runs all of them on a standalone master with two workers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import msgspec
import pytest
from pyspark.sql import SparkSession

import logstore
from logstore.cli.embedded import EmbeddedCluster, make_small_config
from logstore.config import Config
from logstore.settings import LimitSettings, StorageSettings
from logstore.spark import connections, register, start_session
from tests.spark.standalone import DRIVER_SETTINGS, StandaloneSpark

IS_STANDALONE = os.environ.get("LOGSTORE_SPARK_MASTER") == "standalone"
_LOCAL_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
TIMEOUT_S = 300  # the first query of a session starts half a dozen processes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
            item.add_marker(pytest.mark.slow)


def small_config() -> Config:
    """Segments that fill, and a batch_max that a test exceeds with a few rows."""
    return msgspec.structs.replace(
        make_small_config(3, Random()),
        storage=StorageSettings(segment="8MiB", segment_records=8_192),
        limits=LimitSettings(ring="24MiB", bulk_window="2MiB", batch_max="2MiB", group_max="1MiB"),
    )


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tmp_path_factory.mktemp("cluster"), small_config()) as running:
        running.start_all()
        running.wait_for_leader()
        yield running


@pytest.fixture(scope="session")
def log(cluster: EmbeddedCluster) -> Iterator[logstore.LogClient]:
    with logstore.connect(cluster.endpoints, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    with ExitStack() as stack:
        master, settings = "local[2,2]", _LOCAL_SETTINGS
        if IS_STANDALONE:
            running = stack.enter_context(StandaloneSpark(tmp_path_factory.mktemp("master")))
            master, settings = running.url, DRIVER_SETTINGS
        folders = {
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
        session = start_session(master=master, name="tests", settings=settings | folders)
        session.sparkContext.setLogLevel("ERROR")
        register(session)
        yield session
        session.stop()


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneSpark]:
    """A master and two workers beside `spark`, for one driver at a time."""
    with StandaloneSpark(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.fixture(scope="session", autouse=True)
def _closed_clients() -> Iterator[None]:
    """Readers that tests ask without Spark keep their clients in this process."""
    yield
    connections.close_all()
