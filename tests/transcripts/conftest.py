"""`pytest tests/transcripts --rewrite` writes what the code says now; the diff is for review."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="rewrite the transcripts' expected effects"
    )
