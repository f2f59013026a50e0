"""The table of promises: what says that each one is kept, and what looks whether it is.

Owns how the table is put together; all that is in it stands elsewhere:

- the promises in README.md, which invariants each is in `actors.simulation.checkers.invariant`;
- the checkers of an invariant: modules below `actors/simulation/checkers` that report it;
- its mutants: those whose first complaint at the last hunt (`make mutants`) was this invariant;
- the tests on real processes: those marked `@pytest.mark.promise("P1")`.

Run as `python -m tests.tidy.promises` (`make reference`) it writes `tests/PROMISES.md`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from actors.simulation.checkers.invariant import PROMISES, Invariant
from tests.mutants.catalogue import CATALOGUE
from tests.tidy.repository import ROOT, python_files, text_of, tree_of

TABLE = Path("tests/PROMISES.md")
README = Path("README.md")
HUNTED = Path("benchmarks/results/mutants.json")
CHECKERS = Path("actors/simulation/checkers")
# Where tests start real processes.
REAL = ("tests/cluster", "tests/contracts", "tests/faults", "tests/spark", "tests/stress")
_PROMISE = re.compile(r'^\| <a id="p\d"></a>(P\d) \| (.+) \|$', re.MULTILINE)
_INTRODUCTION = """\
# Promises

What says that a promise is kept, and what looks whether it is:

* an **invariant** says it precisely ([FAULTS.md](../FAULTS.md#section-2.1));
* **checkers** look for its violation at each step of each simulated seed
  ([actors/simulation/checkers](../actors/simulation/checkers/README.md));
* **mutants** are the product with one safety rule switched off; those counted here broke the
  invariant, and the simulator found them ([all mutants](../benchmarks/results/mutants.md));
* **tests on real processes** look at the promise where nothing is simulated: `pytest -m promise`.

This file is made by `make reference`.

| promise | invariants | checkers | mutants found | tests on real processes |
|---|---|---|---|---|
"""


class MarkedTest(NamedTuple):
    """`promises`: the numbers that it is marked with."""

    path: Path
    name: str
    promises: list[str]


def promises() -> dict[str, str]:
    """Text by number."""
    return dict(_PROMISE.findall(text_of(README)))


@cache
def checkers(invariant: Invariant) -> list[str]:
    """Modules that report it."""
    return [
        path.stem
        for path in python_files()
        if CHECKERS in path.parents and path.stem != "invariant"
        if any(_is_member(node, invariant) for node in ast.walk(tree_of(path)))
    ]


def _is_member(node: ast.AST, invariant: Invariant) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="Invariant"), attr=name):
            return name == invariant.name
        case _:
            return False


def found_mutants(invariant: Invariant) -> list[str]:
    """Mutants of the catalogue that broke it first."""
    known = {each.name for each in CATALOGUE}
    said = f"{invariant}: "
    return [name for name, caught in _hunted().items() if caught.startswith(said) and name in known]


def not_hunted() -> list[str]:
    """Mutants that are newer than the last hunt."""
    hunted = _hunted()
    return [each.name for each in CATALOGUE if not each.unreachable and each.name not in hunted]


def _hunted() -> dict[str, str]:
    """What complained of each mutant, "" if nothing did."""
    return {row["name"]: row["caught"] for row in json.loads(text_of(HUNTED))["rows"]}


@cache
def marked_tests() -> tuple[MarkedTest, ...]:
    """All that are marked with a promise, wherever they are."""
    paths = (path for path in python_files() if path.parts[0] == "tests")
    return tuple(found for path in paths for found in _marked_in(path))


def _marked_in(path: Path) -> Iterator[MarkedTest]:
    for node in ast.walk(tree_of(path)) if "mark.promise(" in text_of(path) else ():
        if isinstance(node, ast.FunctionDef):
            marks = [mark for each in node.decorator_list for mark in _promises_of(each)]
            if marks:
                yield MarkedTest(path, node.name, marks)


def _promises_of(decorator: ast.expr) -> list[str]:
    match decorator:
        case ast.Call(func=ast.Attribute(attr="promise"), args=args):
            return [ast.literal_eval(each) for each in args]
        case _:
            return []


def render() -> str:
    """The whole text of `tests/PROMISES.md`."""
    rows = [_row(number, text) for number, text in promises().items()]
    promised = {each for several in PROMISES.values() for each in several}
    lists = [_mutants_of(each) for each in Invariant if each in promised]
    text = [_INTRODUCTION + "\n".join(rows), "", "## Mutants found, by invariant", ""]
    text += ["| invariant | mutants |", "|---|---|", *lists, ""]
    if waiting := not_hunted():
        text += [f"Not hunted yet: {', '.join(waiting)}.", ""]
    return "\n".join(text)


def _row(number: str, text: str) -> str:
    invariants = PROMISES[number]
    looking = sorted({name for each in invariants for name in checkers(each)})
    cells = [
        f"[{number}](../README.md#{number.lower()}) {text}",
        ", ".join(f"[{each}](../FAULTS.md#{each.lower()})" for each in invariants),
        ", ".join(f"`{name}`" for name in looking),
        ", ".join(f"{len(found_mutants(each))} by {each}" for each in invariants),
        ", ".join(_link_to(each) for each in marked_tests() if number in each.promises),
    ]
    return f"| {' | '.join(cells)} |"


def _link_to(test: MarkedTest) -> str:
    words = test.name.removeprefix("test_").replace("_", " ")
    return f"[{words}]({test.path.relative_to(TABLE.parent)})"


def _mutants_of(invariant: Invariant) -> str:
    link = f"[{invariant}](../FAULTS.md#{invariant.lower()})"
    return f"| {link} | {', '.join(found_mutants(invariant))} |"


def write() -> None:
    """Make the table anew, of the files as they are now."""
    text_of.cache_clear()
    (ROOT / TABLE).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    write()
