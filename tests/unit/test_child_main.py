"""What ends a child process is said in one line, and its status says whether to start it again."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from actors import child_main
from actors.child import EXIT_REFUSED
from logstore.errors import FolderRefused
from transport.errors import PortInUse


@pytest.mark.parametrize(
    ("error", "status"), [(PortInUse("port 7101 in use"), 1), (FolderRefused("no"), EXIT_REFUSED)]
)
def test_a_child_that_cannot_work_says_why_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    status: int,
) -> None:
    """A port may be free at the next start, a folder is not another one then."""

    def fail(_: Any) -> None:
        raise error

    monkeypatch.setattr(child_main, "_run_actors", fail)
    spec: Any = None
    with pytest.raises(SystemExit) as ending:
        child_main.run_child(spec)
    assert ending.value.code == status
    assert caplog.record_tuples == [("root", logging.CRITICAL, str(error))]
