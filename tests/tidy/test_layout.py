"""The tree as a whole: nothing unused, every package explained, every layer rule complete."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

from logstore.cli.main import COMMANDS
from logstore.cli.pipeline.pipeline import PIPELINES
from tests.tidy.repository import (
    PACKAGES,
    ROOT,
    module_name,
    python_files,
    text_of,
    tracked,
    tree_of,
)

# The virtual world and the fakes are there for tests; everything else is of use to the product.
FOR_TESTS = ("actors.simulation", "transport.inproc")
COUNTERPARTS = ("actors/simulation", "logstore/aio")
# One role in several packages, each with this name for it.
ROLES = {
    "actor.py",  # what an actor does in one turn; actors/actor.py: what any actor is
    "errors.py",  # of the product, and of transport, which imports nothing of it
}


def test_no_file_is_there_that_nothing_imports() -> None:
    """A module counts as used when another imports it or starts it by name (-m, scripts)."""
    by_product: set[str] = set()
    by_tests: set[str] = set()
    for path in python_files():
        (by_tests if path.parts[0] == "tests" else by_product).update(_uses(path))
    started = "\n".join(text_of(Path(name)) for name in ("Makefile", "pyproject.toml"))
    unused = [
        name
        for path in python_files()
        if path.parts[0] in PACKAGES
        and path.name not in ("__init__.py", "__main__.py")
        and not re.search(rf"\b{re.escape(name := module_name(path))}\b", started)
        and name not in by_product
        and not (name.startswith(FOR_TESTS) and name in by_tests)
    ]
    assert not unused


def _uses(path: Path) -> set[str]:
    """Dotted names that the file imports, or holds as a string that may be given to `-m`."""
    names: set[str] = set()
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Import():
                names.update(alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                names.add(module)
                names.update(f"{module}.{alias.name}" for alias in node.names)
            case ast.Constant(value=str(value)) if value.partition(".")[0] in PACKAGES:
                names.add(value)
    return names


def test_every_package_has_a_readme() -> None:
    packages = {path.parent for path in python_files() if path.name == "__init__.py"}
    files = set(tracked())
    missing = [str(each) for each in packages if each / "README.md" not in files]
    assert not sorted(missing)


def test_readmes_of_packages_name_no_file_that_is_gone() -> None:
    missing = []
    for path in tracked():
        if path.name != "README.md" or path.parts[0] not in PACKAGES:
            continue
        for name in re.findall(r"`([a-z_/]+\.py)`", text_of(path)):
            if not (ROOT / path.parent / name).is_file() and not (ROOT / name).is_file():
                missing.append(f"{path}: {name}")
    assert not missing


def test_no_two_modules_have_one_name() -> None:
    """So that a reader guesses the file from its name. A command's module is called as the command
    is typed, whatever does its work; in the simulator a part has the name of what it plays, and in
    `logstore.aio` that of what it is to threads.
    """
    commands = {*COMMANDS, *PIPELINES}
    named: dict[str, list[str]] = {}
    for path in python_files():
        is_command = path.is_relative_to("logstore/cli") and path.stem in commands
        if path.parts[0] in PACKAGES and not any(map(path.is_relative_to, COUNTERPARTS)):
            if not is_command and path.stem.strip("_") == path.stem:
                named.setdefault(path.name, []).append(str(path))
    assert {name for name, paths in named.items() if len(paths) > 1} == ROLES


def test_every_actor_is_in_the_independence_contract() -> None:
    settings = tomllib.loads(text_of(Path("pyproject.toml")))
    contracts = settings["tool"]["importlinter"]["contracts"]
    listed = {
        name for each in contracts if each["type"] == "independence" for name in each["modules"]
    }
    actors = {
        module_name(path)
        for path in python_files()
        if path.parts[0] == "actors" and path.name == "__init__.py" and len(path.parts) == 3
    }
    assert listed == actors - set(FOR_TESTS)


def test_test_modules_have_unique_names() -> None:
    names = [path.name for path in python_files() if path.name.startswith("test_")]
    assert sorted({name for name in names if names.count(name) > 1}) == []
