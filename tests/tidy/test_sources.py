"""Every source file: sizes, docstrings, and words that must not be in it."""

from __future__ import annotations

import ast
import re

from tests.tidy.repository import PACKAGES, python_files, text_of, tracked, tree_of

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 500
# Split, so that this file does not find itself.
HOSTS = (
    "pypi\\." + "org", "python" + "hosted", "npmjs\\." + "org", "debian\\." + "org",
    "ubuntu\\." + "com", "repo\\." + "maven", "crates\\." + "io", "proxy\\." + "golang",
)  # fmt: skip
MACHINE_PATHS = (
    "/wo" + "rk/",
    "/ro" + "ot/",
    "/fa" + "rm/",
    r"\.\./sha" + "red",
    "/opt/wh" + "eels",
)
FORBIDDEN = {
    "an address of a package registry (name packages, not hosts)": "|".join(HOSTS),
    "a path of one machine": "|".join(MACHINE_PATHS),
    "something left half": r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b",
}


def test_functions_have_at_most_70_lines() -> None:
    found = [
        f"{path}:{node.lineno} {node.name}"
        for path in python_files()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert not found


def test_modules_have_at_most_500_lines() -> None:
    sizes = {path: text_of(path).count("\n") for path in python_files()}
    assert not {str(path): size for path, size in sizes.items() if size > MODULE_LINES_MAX}


def test_every_module_begins_with_a_docstring() -> None:
    assert not [str(path) for path in python_files() if not ast.get_docstring(tree_of(path))]


def test_modules_of_the_product_postpone_annotations() -> None:
    found = [
        str(path)
        for path in python_files()
        if path.parts[0] in PACKAGES
        and path.name != "__init__.py"
        and "from __future__ import annotations" not in text_of(path)
    ]
    assert not found


def test_no_file_holds_what_must_not_be_committed() -> None:
    found = [
        f"{path}:{text_of(path)[: match.start()].count(chr(10)) + 1}: {title}"
        for title, pattern in FORBIDDEN.items()
        for path in tracked()
        for match in re.finditer(pattern, text_of(path))
    ]
    assert not found


def test_nothing_packs_into_memory_that_others_read() -> None:
    """SAFETY M4: struct zeroes the field first, and a reader sees that zero."""
    pattern = "pack_" + "into("
    assert not [str(path) for path in python_files() if pattern in text_of(path)]


def test_init_files_hold_documentation_and_re_exports_only() -> None:
    found = [
        f"{path}:{node.lineno}"
        for path in python_files()
        if path.name == "__init__.py"
        for node in tree_of(path).body
        if not _is_documentation_or_export(node)
    ]
    assert not found


def _is_documentation_or_export(node: ast.stmt) -> bool:
    """Re-exports may be lazy: a table of names and the module's `__getattr__` and `__dir__`."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())) | ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(targets=[ast.Name(id="__all__" | "__version__" | "_HOME")]):
            return True
        case ast.FunctionDef(name="__getattr__" | "__dir__"):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body, orelse=[]):
            return all(isinstance(each, ast.Import | ast.ImportFrom) for each in body)
        case _:
            return False
