"""A mutant as data: the product with one safety rule switched off."""

from __future__ import annotations

import msgspec

from actors.simulation.faults.script import FaultClass


class Edit(msgspec.Struct, frozen=True):
    """Another text in one function of the product.

    `target` is "module:function" or "module:Class.method". `old` occurs exactly once in the
    function's dedented source; its lines keep their indentation below the `def`.
    """

    target: str
    old: str
    new: str


class Constant(msgspec.Struct, frozen=True):
    """Another value of a module's constant, read at each use. `target`: "module:NAME"."""

    target: str
    value: int


Change = Edit | Constant


class Mutant(msgspec.Struct, frozen=True):
    """One rule switched off; `note` says how.

    `rule` cites its number, "SAFETY F1" or "FAULTS R6"; several are joined by ", ". `unreachable`
    says why no simulated run can tell the mutant from the product; "": it must be found.
    `classes` of fault are on in every seed of its hunt, besides those that the seed drew.
    """

    name: str
    rule: str
    note: str
    changes: tuple[Change, ...]
    unreachable: str = ""
    classes: tuple[FaultClass, ...] = ()


def mutant(
    name: str, rule: str, target: str, old: str, new: str, note: str, *more: Change,
    unreachable: str = "",
) -> Mutant:  # fmt: skip
    """A mutant of one text in one function, and of `more` where the product has the rule twice."""
    return Mutant(name, rule, note, (Edit(target, old, new), *more), unreachable)
