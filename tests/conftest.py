"""Settings of the whole suite: Hypothesis profiles, who runs beside whom, what tests say.

Fixtures live beside what uses them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# Each starts processes by the dozen, and mostly waits: one at a time, beside all the others.
ON_REAL_PROCESSES = frozenset({"cluster", "contracts", "faults", "stress"})
SAID = "said"

# Derandomised in CI, so that a red run there is red everywhere; a developer's runs explore.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100)
settings.register_profile("dev", deadline=None, max_examples=50)
settings.register_profile("deep", deadline=None, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

# Spark is in an environment of its own: `make test-spark`. Elsewhere its tests are not collected.
collect_ignore = [] if find_spec("pyspark") else ["spark"]


class OneClusterAtATime(LoadScopeScheduling):
    """Tests on real processes are one piece of work; every other test is one by itself."""

    def _split_scope(self, nodeid: str) -> str:
        return "processes" if nodeid.split("/")[1] in ON_REAL_PROCESSES else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneClusterAtATime:
    """`pytest -n 2`, which is what `make test` is."""
    return OneClusterAtATime(config, log)


@pytest.fixture
def say(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Words for whoever reads the run's last lines, from whichever process."""

    def record(text: str) -> None:
        record_property(SAID, text)

    return record


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                for name, text in report.user_properties:
                    if name == SAID:
                        terminalreporter.write_line(f"{report.nodeid}: {text}")
