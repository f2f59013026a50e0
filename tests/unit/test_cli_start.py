"""How the command begins: `python -m logstore`, Ctrl-C while it is loaded, `-h`, its version."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

import logstore
from logstore import __main__ as start
from tests.unit.cli_stage import run


class _Interrupting(MetaPathFinder):
    """Ctrl-C while the command line is imported."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name == "logstore.cli.main":
            raise KeyboardInterrupt
        return None


def test_ctrl_c_while_a_command_is_loaded_is_a_status_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "logstore.cli.main")
    monkeypatch.setattr(sys, "meta_path", [_Interrupting(), *sys.meta_path])
    assert start.main() == 130


@pytest.mark.slow
def test_python_starts_the_command_by_the_name_of_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "logstore", "-h"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("Usage: logstore [OPTIONS] COMMAND")


def test_every_command_has_the_short_option_for_help(capfd: pytest.CaptureFixture[str]) -> None:
    for command in ((), ("status",), ("cursor", "set")):
        assert run(*command, "-h") == 0
        assert "Usage: logstore" in capfd.readouterr().out


def test_help_names_every_exit_status(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    said = " ".join(capfd.readouterr().out.split())
    assert "130 ended by Ctrl-C (SIGINT), 143 by SIGTERM" in said


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert logstore.__version__ == project["version"]
