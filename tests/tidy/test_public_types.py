"""The types of every public name are known to a type checker that reads the installed package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

import logstore
from logstore import aio, spark
from tests.tidy.repository import PACKAGES, ROOT


def public_names() -> set[str]:
    """Where each public name is defined. Spark's are not loaded: that needs Spark."""
    of_aio = {name: getattr(aio, name).__module__ for name in aio.__all__}
    homes = (logstore._HOME, of_aio, spark._HOME)
    return {f"{module}.{name}" for home in homes for name, module in home.items()}


@pytest.mark.slow
def test_the_type_of_every_public_name_is_known(tmp_path: Path) -> None:
    for package in PACKAGES:
        if package != "benchmarks":
            shutil.copytree(ROOT / package, tmp_path / package)
    path = os.pathsep.join([str(tmp_path), sysconfig.get_paths()["purelib"]])
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--verifytypes", "logstore", "--ignoreexternal",
         "--outputjson"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, check=False,
    )  # fmt: skip
    symbols = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    public = public_names()
    # This environment has no Spark: bases of it are not known here.
    of_spark = set() if find_spec("pyspark") else {
        "Type of metaclass unknown", "Type of base class unknown"
    }  # fmt: skip
    unknown = {}
    for symbol in symbols:
        parts = symbol["name"].split(".")
        owner = next(
            (name for name in (".".join(parts[:end]) for end in range(len(parts), 1, -1))
             if name in public),
            None,
        )  # fmt: skip
        is_private = any(part.startswith("_") and not part.startswith("__") for part in parts)
        if owner and not is_private and not symbol["isTypeKnown"]:
            words = {each["message"] for each in symbol["diagnostics"]} - of_spark
            if words:
                unknown[symbol["name"]] = sorted(words)
    assert not unknown, json.dumps(unknown, indent=1)
    assert len(public & {symbol["name"] for symbol in symbols}) == len(public)
