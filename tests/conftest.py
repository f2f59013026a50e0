"""Settings of the whole suite: Hypothesis profiles, who runs beside whom, what tests say.

Fixtures live beside what uses them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`pytest -n 2 --dist loadgroup`: never two clusters at once."""
    for item in items:
        if not ON_REAL_PROCESSES.isdisjoint(Path(item.path).parts):
            item.add_marker(pytest.mark.xdist_group("processes"))


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
