"""Switches a mutant on and off in a running interpreter.

Owns how code is exchanged. Must not know any mutant. A function object keeps its identity and gets
another `__code__`, so that every module that imported it by name runs the change, and the product
needs no switches. `super()`, closures and private names keep working, because the text is compiled
inside a class and a function of the same names; any other case is refused with `PatchRefused`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tests.mutants.mutant import Change, Constant, Edit, Mutant

_FUTURE_ANNOTATIONS = 0x1000000


class PatchRefused(Exception):
    """A change does not fit the product's present code."""


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Run the body with `mutant` in place of the product.

    Raises:
      PatchRefused: the mutant does not fit; nothing is changed.
    """
    with ExitStack() as undo:
        for change in prepared(mutant.changes):
            undo.callback(change())
        yield


def prepared(changes: Sequence[Change]) -> list[Callable[[], Callable[[], None]]]:
    """Functions that each make a change and return the function that undoes it.

    Raises:
      PatchRefused: a change does not fit.
    """
    edits: dict[str, list[Edit]] = {}
    acts: list[Callable[[], Callable[[], None]]] = []
    for change in changes:
        if isinstance(change, Constant):
            acts.append(_constant_act(change))
        else:
            edits.setdefault(change.target, []).append(change)
    acts += [_code_act(target, each) for target, each in edits.items()]
    return acts


def function_of(target: str) -> FunctionType:
    """The function object of "module:function" or "module:Class.method".

    Raises:
      PatchRefused: there is none.
    """
    owner, name = _owner_of(target)
    found = vars(owner).get(name)
    if isinstance(found, property):
        found = found.fget
    found = inspect.unwrap(getattr(found, "__func__", found)) if found is not None else None
    if not isinstance(found, FunctionType):
        raise PatchRefused(f"{target}: there is no such function")
    return found


def source_of(function: FunctionType) -> str:
    """The function's text in its file, dedented."""
    return textwrap.dedent(inspect.getsource(function))


def compiled(function: FunctionType, source: str) -> CodeType:
    """The code of `source` in the place of `function`.

    Raises:
      PatchRefused: the signature or the closure differs.
    """
    original = function.__code__
    node = ast.parse(source).body[0]
    if not isinstance(node, ast.FunctionDef):
        raise PatchRefused(f"{function.__qualname__}: only plain functions are changed")
    node.decorator_list = []
    ast.increment_lineno(node, original.co_firstlineno - 1)
    module = ast.fix_missing_locations(ast.Module([_enclosed(function, node)], []))
    flags = original.co_flags & _FUTURE_ANNOTATIONS
    whole = compile(module, original.co_filename, "exec", flags=flags, dont_inherit=True)
    code = _find(whole, node.name)
    _check_fits(function, code)
    return code.replace(co_qualname=original.co_qualname)


def _owner_of(target: str) -> tuple[ModuleType | type, str]:
    module_name, _, path = target.partition(":")
    *classes, name = path.split(".")
    owner: Any = importlib.import_module(module_name)
    for each in classes:
        owner = getattr(owner, each, None)
        if not isinstance(owner, type):
            raise PatchRefused(f"{target}: there is no class {each}")
    return owner, name


def _constant_act(constant: Constant) -> Callable[[], Callable[[], None]]:
    owner, name = _owner_of(constant.target)
    if not isinstance(vars(owner).get(name), int):
        raise PatchRefused(f"{constant.target}: there is no such number")
    before = vars(owner)[name]

    def act() -> Callable[[], None]:
        setattr(owner, name, constant.value)
        return lambda: setattr(owner, name, before)

    return act


def _code_act(target: str, edits: list[Edit]) -> Callable[[], Callable[[], None]]:
    function = function_of(target)
    source = changed = source_of(function)
    for edit in edits:
        found = source.count(edit.old)
        if found != 1:
            raise PatchRefused(f"{target}: {edit.old!r} stands there {found} times, not once")
        changed = changed.replace(edit.old, edit.new)
    before, after = function.__code__, compiled(function, changed)

    def act() -> Callable[[], None]:
        function.__code__ = after
        return lambda: setattr(function, "__code__", before)

    return act


def _enclosed(function: FunctionType, node: ast.FunctionDef) -> ast.stmt:
    """`node` in a class, for `super()` and private names, and the class in a function with the
    names that `node` closes over as parameters."""
    parts = function.__qualname__.split(".")
    inner: ast.stmt = node
    if len(parts) > 1 and parts[-2] != "<locals>":
        inner = ast.ClassDef(name=parts[-2], bases=[], keywords=[], body=[node], decorator_list=[])
    closed_over = [name for name in function.__code__.co_freevars if name != "__class__"]
    parameters = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(arg=name) for name in closed_over],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )
    return ast.FunctionDef(name="enclosing", args=parameters, body=[inner], decorator_list=[])


def _find(code: CodeType, name: str) -> CodeType:
    """The outermost code object `name` inside `code`."""
    level = [code]
    while level:
        nested = [each for outer in level for each in outer.co_consts if isinstance(each, CodeType)]
        for each in nested:
            if each.co_name == name:
                return each
        level = nested
    raise PatchRefused(f"{name} was compiled away")


def _check_fits(function: FunctionType, code: CodeType) -> None:
    original, name = function.__code__, function.__qualname__
    if code.co_freevars != original.co_freevars:
        raise PatchRefused(
            f"{name} closes over {original.co_freevars}, its changed text over {code.co_freevars}"
        )
    signature = (code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount)
    wanted = (original.co_argcount, original.co_kwonlyargcount, original.co_posonlyargcount)
    arguments = sum(signature[:2])
    names_differ = code.co_varnames[:arguments] != original.co_varnames[:arguments]
    if signature != wanted or names_differ:
        raise PatchRefused(f"{name}: the changed text has other parameters")
