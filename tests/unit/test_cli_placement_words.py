"""`logstore placement`: lists of CPUs, and the table of processes."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from logstore.cli import placement
from logstore.cli.cpu_list import cpu_words, parse_cpus
from logstore.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "cpus"), [("0", [0]), ("0-3,8", [0, 1, 2, 3, 8]), ("3, 1-2,2", [1, 2, 3])]
)
def test_a_list_of_cpus_is_what_linux_writes(text: str, cpus: list[int]) -> None:
    assert parse_cpus(text) == cpus


@pytest.mark.parametrize("text", ["", "a", "3-1", "1-", "-1", "0,", "0-999999", "1.5"])
def test_what_is_no_list_of_cpus_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="write one such as 0-3,8"):
        parse_cpus(text)


def test_cpus_are_written_shortest() -> None:
    assert cpu_words([8, 0, 1, 2, 3]) == "0-3,8"
    assert cpu_words([5]) == "5"
    assert cpu_words([]) == "none"


def test_names_are_whole_in_80_columns() -> None:
    now = {"cpus": [0, 1], "nice": 19, "io_threads": 1, "spin": False}
    actors = ["writer", "raft", "ingress", "egress", "replicator-2", "replicator-3"]
    processes = {name: {"pid": 123456, "now": now, "actors": [name]} for name in actors}
    processes["single"] = {"pid": 123456, "now": now, "actors": actors}
    out = StringIO()
    Console(width=80, file=out).print(placement._table_of([("1", processes)]))
    said = out.getvalue()
    assert "…" not in said
    assert said.count("replicator-2") == 3
