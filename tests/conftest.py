"""Settings of the whole suite: Hypothesis profiles, who runs beside whom, what tests say.

Fixtures live beside what uses them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from importlib.util import find_spec

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

# Each starts processes by the dozen, and mostly waits.
ON_REAL_PROCESSES = frozenset({"cluster", "contracts", "faults", "stress"})
CLUSTERS_BESIDE_OTHERS = 2
SAID = "said"

# Derandomised in CI, so that a red run there is red everywhere; a developer's runs explore.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100)
settings.register_profile("dev", deadline=None, max_examples=50)
settings.register_profile("deep", deadline=None, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

# A script's background job ignores SIGINT, what runs under nohup SIGHUP, and so would every process
# that a test starts and sends these signals to.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)

# Spark is in an environment of its own: `make test-spark`. Elsewhere its tests are not collected.
collect_ignore = [] if find_spec("pyspark") else ["spark"]


class FewClustersAtATime(LoadScopeScheduling):
    """A file of tests on real processes is one piece of work, every other test is one by itself.
    While there are both, one process does the others, so that the files, which mostly wait, end
    with them."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0] if _is_on_real_processes(nodeid) else nodeid

    def _assign_work_unit(self, node: WorkerController) -> None:
        clusters = sum(
            any(
                _is_on_real_processes(scope) and self._pending_of({scope: unit})
                for scope, unit in units.items()
            )
            for other, units in self.assigned_work.items()
            if other is not node
        )
        is_turn_of_clusters = clusters < CLUSTERS_BESIDE_OTHERS
        for scope in self.workqueue:
            if _is_on_real_processes(scope) == is_turn_of_clusters:
                self.workqueue.move_to_end(scope, last=False)
                break
        super()._assign_work_unit(node)


def _is_on_real_processes(scope: str) -> bool:
    return scope.split("/")[1] in ON_REAL_PROCESSES


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FewClustersAtATime:
    """`pytest -n 3`, which is what `make test` is."""
    return FewClustersAtATime(config, log)


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
