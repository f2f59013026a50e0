"""docs/names.md: the examples of `logstore.spark` run as one program."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from logstore.cli.embedded import EmbeddedCluster
from tests.tidy.repository import text_of


def test_the_examples_of_spark_run_as_one_program(
    spark: SparkSession, cluster: EmbeddedCluster
) -> None:
    section = text_of(Path("docs/names.md")).partition("\n## logstore.spark\n")[2]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == section.count("\n### ")
    names: dict[str, Any] = {}
    for block in blocks:
        text = block.replace("127.0.0.1:7100", cluster.endpoints[0])
        exec(compile(text, "names.md", "exec"), names)
    assert names["session"] is spark, "a process has one session"
