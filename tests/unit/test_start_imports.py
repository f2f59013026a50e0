"""What a replica that starts imports: three that start together on two cores wait for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

# Each takes 10 to 150 ms. The first scrape of /metrics imports prometheus_client, the first batch
# of many payloads numpy.
FOREIGN = ("asyncio", "argparse", "click", "http", "numpy", "prometheus_client", "psutil", "rich")
SCRIPT = f"""
import sys
import crc32c  # whose command line takes argparse
known = set(sys.modules)
import logstore.cli.detached_replica
print(*(set({FOREIGN}) & (set(sys.modules) - known)))
print("actors.ingress.actor" in sys.modules)
"""


def test_a_replica_imports_every_actor_and_nothing_that_its_start_does_not_need() -> None:
    said = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    assert said.stdout.decode().splitlines() == ["", "True"]
