"""What the wheel has for Spark, and what an import of it costs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.tidy.repository import ROOT

HEAVY = ("zmq", "numpy", "pyarrow", "pandas")


def run_python(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_the_module_that_spark_looks_for_at_its_top_level(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        source = (ROOT / "logstore" / "spark" / "pyspark_logstore.py").read_bytes()
        assert archive.read("pyspark_logstore.py") == source
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA")))
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {
        "actors", "logstore", "pyspark_logstore.py", "transport",
    }  # fmt: skip
    assert b"Provides-Extra: spark" in metadata


def test_the_editable_install_has_it_too(tmp_path: Path) -> None:
    code = "import pyspark_logstore; print(pyspark_logstore.DefaultSource.name())"
    assert run_python(code, tmp_path) == "logstore\n"


def test_an_import_loads_neither_sockets_nor_arrow(tmp_path: Path) -> None:
    """Spark imports it whenever it looks for data sources, in any session, for any of them."""
    code = f"import sys, pyspark_logstore; print([x for x in {HEAVY!r} if x in sys.modules])"
    assert run_python(code, tmp_path) == "[]\n"
