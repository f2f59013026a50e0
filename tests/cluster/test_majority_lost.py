"""docs/runbooks/majority-lost.md as it stands: each block in order, on a cluster of its own ports
of which two folders are gone (SAFETY L8)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import logstore
from tests.cluster.document_blocks import endpoints_of, ports_for, run_block
from tests.tidy.repository import text_of

pytestmark = [pytest.mark.runbook("majority-lost"), pytest.mark.slow, pytest.mark.timeout(300)]
LINES = [b"line %d" % number for number in range(200)]


@pytest.mark.long
def test_every_block_of_the_runbook_runs_in_order(tmp_path: Path) -> None:
    with ports_for(tmp_path, "old") as config:
        endpoints = endpoints_of(config)
        run_block(tmp_path, config, "logstore cluster up --config ports.toml --dir old")
        with logstore.connect(endpoints, timeout=60) as log, log.producer() as producer:
            for lines in (LINES[:100], LINES[100:]):
                last = [producer.append(line) for line in lines][-1].result(60).last
                # what node 3 writes after this knows that it is committed
                assert log.admin.watermarks(replica=3, min_lsn=last).visible_lsn == last
        run_block(tmp_path, config, "logstore cluster down --dir old")
        for node in (1, 2):
            shutil.rmtree(tmp_path / "old" / f"node-{node}")
        text = text_of(Path("docs/runbooks/majority-lost.md")).replace(
            "127.0.0.1:7100", endpoints[0]
        )
        blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
        said = [run_block(tmp_path, config, block) for block in blocks]
        assert len(said) == 6
        assert "was gone" in said[0]
        assert "committed for certain: LSN 1 to " in said[1]
        assert "nothing is deleted" in said[2]
        assert "200 payloads of it" in said[4]
        assert "chains are equal up to LSN 200" in said[5]
        [aside] = (tmp_path / "old").glob("node-3.aside-*")
        assert (aside / "meta.a").exists()
        with logstore.connect(endpoints, timeout=60) as log:
            found = [payload for batch in log.read(1, 200) for payload in batch.payloads()]
            assert found == LINES
            with log.producer() as producer:
                assert producer.append(b"and on").result(60).first == 201
