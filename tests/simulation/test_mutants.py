"""Mutants: each fits the product as it is, changes it, and leaves no trace when it is undone."""

from __future__ import annotations

import builtins
import dis
import re
from collections.abc import Iterator
from types import CodeType
from typing import Any

import pytest

from tests.mutants.catalogue import CATALOGUE, mutant_named
from tests.mutants.mutant import Constant, Edit, Mutant, mutant
from tests.mutants.patch import (
    PatchRefused,
    applied,
    compiled,
    function_of,
    source_of,
)
from tests.tidy.citations import ROWS as FAULTS
from tests.tidy.citations import RULE_LETTERS, built
from tests.tidy.citations import RULES as SAFETY

# --- the exchange of code ---


class Parent:
    def greet(self) -> str:
        return "parent"


class Child(Parent):
    __hidden = "private"

    def greet(self) -> str:
        return super().greet() + " and child"

    def hidden(self) -> str:
        return "found " + self.__hidden

    @property
    def age(self) -> int:
        return 7

    @staticmethod
    def kind() -> str:
        return "static"


def greeter(word: str) -> Any:
    def greet() -> str:
        return word + " closed over"

    return greet


closed_over = greeter("a word")
LIMIT = 4


def below_limit(number: int) -> bool:
    return number < LIMIT


def of(target: str, old: str, new: str) -> Mutant:
    return mutant("a-test", "SAFETY F1", f"{__name__}:{target}", old, new, "for this test")


def test_super_goes_on_working_in_changed_code() -> None:
    with applied(of("Child.greet", '" and child"', '" and changed"')):
        assert Child().greet() == "parent and changed"
    assert Child().greet() == "parent and child"


def test_private_names_go_on_working_in_changed_code() -> None:
    with applied(of("Child.hidden", '"found "', '"changed "')):
        assert Child().hidden() == "changed private"
    assert Child().hidden() == "found private"


def test_properties_and_static_methods_can_be_changed() -> None:
    with applied(of("Child.age", "7", "8")), applied(of("Child.kind", '"static"', '"changed"')):
        assert (Child().age, Child.kind()) == (8, "changed")
    assert (Child().age, Child.kind()) == (7, "static")


def test_a_closure_keeps_what_it_closes_over() -> None:
    with applied(of("closed_over", "closed over", "changed")):
        assert closed_over() == "a word changed"
    assert closed_over() == "a word closed over"


def test_a_change_that_closes_over_other_names_is_refused() -> None:
    with (
        pytest.raises(PatchRefused, match="closes over"),
        applied(of("closed_over", 'word + " closed over"', '"nothing"')),
    ):
        pytest.fail("applied")
    assert closed_over() == "a word closed over"


def test_a_change_of_parameters_is_refused() -> None:
    with (
        pytest.raises(PatchRefused, match="parameters"),
        applied(of("below_limit", "number: int", "other: int")),
    ):
        pytest.fail("applied")


@pytest.mark.parametrize("old", ["e", "not there at all"])
def test_a_text_that_does_not_stand_there_exactly_once_is_refused(old: str) -> None:
    with pytest.raises(PatchRefused, match="not once"), applied(of("Parent.greet", old, "x")):
        pytest.fail("applied")


def test_whoever_imported_a_function_by_name_runs_the_change() -> None:
    held = below_limit
    with applied(of("below_limit", "<", ">=")):
        assert held(4)
    assert not held(4)


def test_a_number_is_changed_where_it_is_read() -> None:
    change = Constant(f"{__name__}:LIMIT", 5)
    with applied(Mutant("a-test", "SAFETY F1", "for this test", (change,))):
        assert below_limit(4)
    assert not below_limit(4)


def test_nothing_is_changed_when_one_of_several_changes_does_not_fit() -> None:
    good = Edit(f"{__name__}:below_limit", "<", ">=")
    bad = Edit(f"{__name__}:Parent.greet", "not there", "x")
    with (
        pytest.raises(PatchRefused),
        applied(Mutant("a-test", "SAFETY F1", "for this test", (good, bad))),
    ):
        pytest.fail("applied")
    assert below_limit(3)


def test_lines_of_changed_code_are_those_of_the_file() -> None:
    function = function_of(f"{__name__}:Child.age")
    same = compiled(function, source_of(function))
    assert [line for _, _, line in same.co_lines() if line][-1] == [
        line for _, _, line in function.__code__.co_lines() if line
    ][-1]


# --- the catalogue ---

# Every rule of SAFETY.md and every trap of FAULTS sections 1.4 and 4 has a mutant, but for what the
# documents list as not built and what is in WITHOUT_MUTANT.
TRAPS = ("FAULTS D21", "FAULTS O3")  # of section 4, beside those that are rows R
WITHOUT_MUTANT = {
    "SAFETY M5": "the options of real sockets: the world's network has their rules built in",
    "SAFETY S1": "a format: golden bytes hold it",
    "SAFETY L6": "a replica that goes on is lost again: unit tests show who stays up and says why",
    "SAFETY L8": "a command on a stopped folder, which no seed runs: crash states judge it",
    "SAFETY G7": "a follower that log start passes gets another Install: later, not wrong",
}
RULES = (
    *(f"SAFETY {each.anchor.upper()}" for each in built(SAFETY, RULE_LETTERS)),
    *(f"FAULTS {each.anchor.upper()}" for each in built(FAULTS, "R")),
    *TRAPS,
    "SAFETY section 4",
)
CITATION = re.compile(r"(SAFETY ([A-Z][0-9]+A?|section [0-9])|FAULTS [A-Z][0-9]+)")

each_mutant = pytest.mark.parametrize("mutant", CATALOGUE, ids=[each.name for each in CATALOGUE])


def cited(rule: str) -> list[str]:
    """The rules of "SAFETY F1, S8, FAULTS R2", each with its document."""
    document = ""
    rules = []
    for part in rule.split(", "):
        first, _, rest = part.partition(" ")
        document, number = (first, rest) if first in ("SAFETY", "FAULTS") else (document, part)
        rules.append(f"{document} {number}")
    return rules


def code_objects(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from code_objects(constant)


def essence(code: CodeType) -> list[tuple[str, str]]:
    """What code does, without where it stands.

    The compiler calls a function of an imported module another way where it sees the import.
    """
    same = {"LOAD_METHOD": "LOAD_ATTR"}
    return [
        (same.get(instruction.opname, instruction.opname), meaning(instruction))
        for each in code_objects(code)
        for instruction in dis.get_instructions(each)
    ]


def meaning(instruction: dis.Instruction) -> str:
    if isinstance(instruction.argval, CodeType) or instruction.opcode in dis.hasjrel:
        return ""
    return instruction.argrepr.removeprefix("NULL + ")


def edits_of(mutant: Mutant) -> list[Edit]:
    return [change for change in mutant.changes if isinstance(change, Edit)]


def codes_of(mutant: Mutant) -> list[CodeType]:
    return [function_of(edit.target).__code__ for edit in edits_of(mutant)]


def test_names_are_unique_words_with_hyphens() -> None:
    names = [each.name for each in CATALOGUE]
    assert sorted({name for name in names if names.count(name) > 1}) == []
    assert [name for name in names if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", name)] == []


def test_a_mutant_is_found_by_its_name() -> None:
    assert mutant_named("data-not-flushed").rule == "SAFETY F1"
    with pytest.raises(LookupError, match="no mutant is called 'none-such'"):
        mutant_named("none-such")


def test_every_rule_has_a_mutant_or_a_reason_why_not() -> None:
    rules = {rule for each in CATALOGUE for rule in cited(each.rule)}
    assert [rule for rule in RULES if rule not in rules and rule not in WITHOUT_MUTANT] == []
    assert [rule for rule in WITHOUT_MUTANT if rule in rules or rule not in RULES] == []


def test_at_least_sixty_mutants_are_to_be_found() -> None:
    assert len([each for each in CATALOGUE if not each.unreachable]) >= 60


@each_mutant
def test_a_mutant_cites_its_rule_and_says_what_it_breaks(mutant: Mutant) -> None:
    assert [rule for rule in cited(mutant.rule) if not CITATION.fullmatch(rule)] == []
    assert mutant.changes
    assert mutant.note
    assert "\n" not in mutant.note


@each_mutant
def test_a_mutant_changes_the_product_and_leaves_no_trace(mutant: Mutant) -> None:
    before = codes_of(mutant)
    with applied(mutant):
        changed = codes_of(mutant)
        assert all(
            essence(code) != essence(original)
            for code, original in zip(changed, before, strict=True)
        )
    assert all(code is original for code, original in zip(codes_of(mutant), before, strict=True))


@each_mutant
def test_every_name_in_a_mutant_is_there_to_be_found(mutant: Mutant) -> None:
    """Else the mutant is caught by a NameError, and by no checker."""
    missing = []
    with applied(mutant):
        for edit in edits_of(mutant):
            function = function_of(edit.target)
            missing += [
                f"{edit.target}: {instruction.argval}"
                for code in code_objects(function.__code__)
                for instruction in dis.get_instructions(code)
                if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
                and instruction.argval not in function.__globals__
                and not hasattr(builtins, instruction.argval)
            ]
    assert not missing


@each_mutant
def test_a_function_compiled_anew_without_a_change_is_the_same_code(mutant: Mutant) -> None:
    for edit in edits_of(mutant):
        function = function_of(edit.target)
        assert essence(compiled(function, source_of(function))) == essence(function.__code__)
