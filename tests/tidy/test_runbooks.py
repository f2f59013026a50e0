"""No runbook goes unread: each is run by a test that is marked with its name, and is in README's
table by what an operator sees."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.repository import python_files, text_of, tracked, tree_of

FOLDER = Path("docs/runbooks")
# Of a row: what an operator sees, and the link.
ROW = re.compile(r"^\| [^|]+ \| \[[^\]|]+\]\(docs/runbooks/([a-z-]+)\.md\) \|$", re.MULTILINE)


def runbooks() -> list[str]:
    return [path.stem for path in tracked() if path.parent == FOLDER]


def marks_in(path: Path) -> Iterator[str]:
    """The names in `pytest.mark.runbook("NAME")`."""
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(attr="mark"), attr="runbook"), args=[name]
            ):
                yield ast.literal_eval(name)


def test_every_runbook_is_run_by_a_test_that_is_marked_with_it() -> None:
    assert len(runbooks()) >= 3
    paths = [path for path in python_files() if path.parts[0] == "tests"]
    marked = {path: list(marks_in(path)) for path in paths if "mark.runbook(" in text_of(path)}
    assert sorted(name for names in marked.values() for name in names) == sorted(runbooks())
    for path, names in marked.items():
        # it reads the very file
        assert all(f"{name}.md" in text_of(path) for name in names), path


def test_make_runbooks_runs_them_wherever_they_are() -> None:
    recipe = text_of(Path("Makefile")).partition("\nrunbooks:")[2].partition("\n\n")[0]
    assert " -m runbook " in recipe
    folders = {
        path.parent.as_posix()
        for path in python_files()
        if path.parts[0] == "tests" and any(marks_in(path))
    }
    assert folders <= set(re.findall(r"tests/\w+", recipe))


def test_the_table_in_the_readme_has_every_runbook_once() -> None:
    assert sorted(ROW.findall(text_of(Path("README.md")))) == sorted(runbooks())
