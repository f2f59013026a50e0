"""docs/tutorial.md as it stands: each block in order, on a cluster of its own ports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cluster.document_blocks import endpoints_of, ports_for, run_block
from tests.tidy.repository import text_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.long
def test_every_block_of_the_tutorial_runs_in_order(tmp_path: Path) -> None:
    blocks = re.findall(r"```(bash|python)\n(.*?)```", text_of(Path("docs/tutorial.md")), re.DOTALL)
    said = []
    with ports_for(tmp_path, "tutorial") as config:
        for language, block in blocks:
            text = block.replace("cluster up --dir", "cluster up --config ports.toml --dir")
            for port, endpoint in zip((7100, 7110, 7120), endpoints_of(config), strict=True):
                text = text.replace(f"127.0.0.1:{port}", endpoint)
            said.append(run_block(tmp_path, config, text, language))
    everything = "\n".join(said)
    for line in (
        "the first of them is LSN 4\n",
        "both or none, side by side: 1004 1005\n",
        "second 7 b'payload 3'\n",
        "1005 payloads, each once\n",
        "LSN 1006 to 1105\n",
        "100 came back\n",
        "400 appends, the next leader is node",
        "refused: the cursor archive holds",
    ):
        assert line in everything
