"""What a query failed with, as its user reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def failure_of(action: Callable[[], Any]) -> str:
    """The message of what `action` raises; Spark adds Python's traceback to it."""
    with pytest.raises(Exception, match=r"\S") as caught:
        action()
    return str(caught.value)
