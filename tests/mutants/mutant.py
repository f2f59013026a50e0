"""What a mutant is: the product with one safety rule switched off, as data.

Owns nothing but data. Must not know how a change is made, nor what finds it.
"""

from __future__ import annotations

import msgspec


class Edit(msgspec.Struct, frozen=True):
    """Another text in one function of the product.

    `target` is "module:function" or "module:Class.method". `old` stands exactly once in the
    function's source, dedented; its lines keep their indentation below the `def`.
    """

    target: str
    old: str
    new: str


class Constant(msgspec.Struct, frozen=True):
    """Another value of a module's name that is read when it is used. `target`: "module:NAME"."""

    target: str
    value: int


Change = Edit | Constant


class Mutant(msgspec.Struct, frozen=True):
    """One rule switched off. `note` says how, in a line.

    `rule` cites its number, "SAFETY F1" or "FAULTS R6"; several are joined by ", ". `unreachable`
    says why no run of the simulator can ever tell the mutant from the product; it is empty for
    those that must be found.
    """

    name: str
    rule: str
    note: str
    changes: tuple[Change, ...]
    unreachable: str = ""


def mutant(
    name: str, rule: str, target: str, old: str, new: str, note: str, *more: Change,
    unreachable: str = "",
) -> Mutant:  # fmt: skip
    """A mutant of one text in one function, and of `more` where the rule is kept twice."""
    return Mutant(name, rule, note, (Edit(target, old, new), *more), unreachable)
