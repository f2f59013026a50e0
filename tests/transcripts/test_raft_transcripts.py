"""Every transcript beside this file says exactly what the core does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.transcript import run

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript_holds(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    now = run(text)
    if request.config.getoption("rewrite", default=False):
        path.write_text(now)
    else:
        assert now == text, "if this is meant: pytest tests/transcripts --rewrite, and review"
