"""docs/runbooks/rolling-upgrade.md as it stands: each block in order, under load, on a cluster of
its own ports. The newer version is this one with a made-up format level (SAFETY S11)."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import pytest

import logstore
from logstore.cli.embedded import poll_until
from tests.cluster.document_blocks import (
    CONFIG_NAME,
    endpoints_of,
    ports_for,
    run_block,
    run_step,
    steps_of,
)
from tests.faults.made_up_level import NEW, OLD, reading_levels
from tests.tidy.repository import text_of

pytestmark = [pytest.mark.runbook("rolling-upgrade"), pytest.mark.slow, pytest.mark.timeout(400)]
RUNBOOK = Path("docs/runbooks/rolling-upgrade.md")
APPEND_S = 60.0


class Appends:
    """One append after the other until it is told to stop; `error`: what one of them raised."""

    def __init__(self, endpoints: list[str]) -> None:
        self.endpoints = endpoints
        self.payloads: list[bytes] = []
        self.error: Exception | None = None
        self._stop = Event()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Appends:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with logstore.connect(self.endpoints, timeout=APPEND_S) as log, log.producer() as out:
                while not self._stop.wait(0.01):
                    payload = b"append %d" % len(self.payloads)
                    out.append(payload).result(APPEND_S)
                    self.payloads.append(payload)
        except Exception as error:  # the test looks at it
            self.error = error


@pytest.mark.long
def test_every_block_of_the_runbook_runs_in_order(tmp_path: Path) -> None:
    with ports_for(tmp_path, "log") as config:
        endpoints = endpoints_of(config)
        run_block(tmp_path, config, f"logstore cluster up --config {CONFIG_NAME} --dir log")
        with logstore.connect(endpoints, timeout=APPEND_S) as log:
            assert poll_until(lambda: log.admin.format_levels().level == OLD, APPEND_S)
            with Appends(endpoints) as appends:
                assert poll_until(lambda: len(appends.payloads) > 9, APPEND_S)
                with reading_levels(NEW, tmp_path):
                    steps = steps_of(text_of(RUNBOOK))
                    said = [run_step(tmp_path, config, step) for step in steps]
                seen = len(appends.payloads)
                assert poll_until(lambda: len(appends.payloads) > seen + 9, APPEND_S)
            assert len(said) == 11
            assert f"every replica reads level {NEW}" in said[-2]
            assert f"the log is at format level {NEW}\n" in said[-1]
            assert appends.error is None
            found = [
                bytes(each)
                for batch in log.read(1, len(appends.payloads))
                for each in batch.payloads()
            ]
            assert found == appends.payloads
