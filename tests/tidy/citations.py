"""Which numbered rules, faults, invariants and promises exist, and which file cites which.

A number has an anchor in one document: rules in SAFETY.md, rows of faults and invariants in
FAULTS.md, promises in README.md. How each is cited:

- a rule as "SAFETY E6" or "E6", several as "SAFETY E6, F1" or "F1 to F8";
- a row as "FAULTS D7" or "FAULTS.D7". The word holds for what follows it in one list, so that
  "P7, FAULTS K1" is a promise and a row;
- an invariant as "I11", a promise as "P5";
- a section as "SAFETY section 4", in its own document as "section 4";
- in the name of a test, `test_m7_...` and `test_n14_and_n15_...`.

In Python only comments, strings and names of tests cite.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.tidy.repository import text_of, tracked, tree_of

RULES, ROWS, PROMISES = "SAFETY.md", "FAULTS.md", "README.md"
WITH_SECTIONS = (RULES, ROWS, "PROTOCOL.md")
RULE_LETTERS = "USMFQLGVWEC"
ROW_LETTERS = "PNDRKZSTXO"
# What is read as prose, beside Python.
PROSE = (".md", ".txt", ".toml")
# Data, and this very grammar.
NO_CITATIONS = (
    "tests/cluster/data/",
    "constraints",
    "tests/tidy/citations.py",
    "tests/tidy/test_citations.py",
)
_NUMBER = r"[A-Z]\d{1,2}a?"
_SECTIONS = r"sections? \d+(?:\.\d+)?(?:(?:, | and | to )\d+(?:\.\d+)?)*"
_ITEM = rf"(?:{_NUMBER}(?: to {_NUMBER})?|{_SECTIONS})"
_LIST = re.compile(
    rf"(?<![\w./-])(?:(?P<book>SAFETY|FAULTS|PROTOCOL)(?:\.md)?(?:,? |\.))?"
    rf"(?P<items>{_ITEM}(?:(?:, and |, | and ){_ITEM})*)(?![\w-])"
)
_ITEMS = re.compile(_ITEM)
_HINT = re.compile(r"[A-Z]\d|section")
_LINE_BREAK = re.compile(r"\n[ \t#*|>]*")
_COMMENT = re.compile(r"(?:^|\s)#(.*)$", re.MULTILINE)
_NAME = re.compile(r"test_((?:[a-z]\d{1,2}_(?:and_)?)+)")
_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
_NUMBERED_HEADING = re.compile(r"^#+ (?:<a [^>]*></a>)?(\d+(?:\.\d+)?)\b", re.MULTILINE)
_LISTED = re.compile(r"^\| \[(\w+)\]\(#(\w+)\) \| (.+) \|$", re.MULTILINE)


class Cited(NamedTuple):
    """A number, or a section: "e6" or "section-4" of SAFETY.md."""

    document: str
    anchor: str

    def __str__(self) -> str:
        return f"{self.document}#{self.anchor}"


@cache
def anchors(document: str) -> frozenset[str]:
    """Every id that a document gives, and "section-4" for its heading "4. Recovery"."""
    text = text_of(Path(document))
    sections = (f"section-{number}" for number in _NUMBERED_HEADING.findall(text))
    return frozenset((*_ANCHOR.findall(text), *sections))


def numbered(document: str, letters: str) -> set[Cited]:
    """All rules or rows of a document."""
    one = re.compile(rf"[{letters.lower()}]\d+a?")
    return {Cited(document, anchor) for anchor in anchors(document) if one.fullmatch(anchor)}


def uncited(document: str) -> dict[Cited, str]:
    """The document's list of what is not built or not tested, each with its reason."""
    rows = _LISTED.findall(text_of(Path(document)))
    assert all(number.lower() == anchor for number, anchor, _ in rows)
    return {Cited(document, anchor): reason for _, anchor, reason in rows}


def built(document: str, letters: str) -> list[Cited]:
    """What is not in that list."""
    return sorted(numbered(document, letters) - uncited(document).keys())


def cited_by(*folders: str) -> set[Cited]:
    """What the files below these folders cite."""
    return {each for path in citing_files() if path.parts[0] in folders for each in cited_in(path)}


def citing_files() -> Iterator[Path]:
    for path in tracked():
        if path.suffix in (".py", *PROSE) and not str(path).startswith(NO_CITATIONS):
            yield path


@cache
def cited_in(path: Path) -> frozenset[Cited]:
    if path.suffix != ".py":
        return frozenset(cited_in_prose(text_of(path), path.name))
    comments = _COMMENT.findall(text_of(path))
    found = cited_in_prose("\n".join(comments))
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Constant(value=str(text)):
                found |= cited_in_prose(text)
            case ast.FunctionDef(name=name) if (match_ := _NAME.match(name)) is not None:
                found |= set(_of_name(match_[1]))
    return frozenset(found)


def cited_in_prose(text: str, home: str = "") -> set[Cited]:
    """`home` is the document that the text is of: there its own numbers need no name."""
    if _HINT.search(text) is None:
        return set()
    text = _LINE_BREAK.sub(" ", text)
    return {
        cited
        for match in _LIST.finditer(text)
        for item in _ITEMS.findall(match["items"])
        for number in _each(item)
        if (cited := _place_of(match["book"], number, home)) is not None
    }


def _each(item: str) -> Iterator[str]:
    """ "F1 to F3" is F1, F2, F3; "sections 2 to 4" is section-2, section-3, section-4."""
    if not item.startswith("section"):
        first, _, last = item.partition(" to ")
        if not last:
            yield first
            return
        for number in range(int(first[1:]), int(last[1:]) + 1):
            yield f"{first[0]}{number}"
        return
    numbers = re.findall(r"[\d.]+", item)
    if " to " in item:
        numbers = [str(number) for number in range(int(numbers[0]), int(numbers[-1]) + 1)]
    yield from (f"section-{number}" for number in numbers)


def _place_of(book: str | None, number: str, home: str) -> Cited | None:
    """None for what is no citation: a section of no named book, a letter of no document."""
    if number.startswith("section"):
        document = f"{book}.md" if book else home
        return Cited(document, number) if document in WITH_SECTIONS else None
    letter, anchor = number[0], number.lower()
    if letter == "I" or (letter in ROW_LETTERS and (book or home[:-3]) == "FAULTS"):
        return Cited(ROWS, anchor)
    if letter in RULE_LETTERS or (book == "SAFETY" and letter != "P"):
        return Cited(RULES, anchor)
    return _promise_or_row(anchor) if letter == "P" else None


def _promise_or_row(anchor: str) -> Cited:
    """There are nine promises; P10 can only be a row."""
    return Cited(PROMISES if len(anchor) == 2 else ROWS, anchor)


def _of_name(numbers: str) -> Iterator[Cited]:
    for number in re.findall(r"[a-z]\d+", numbers):
        if number == "x86":
            continue
        if number[0] == "p":
            yield _promise_or_row(number)
        else:
            yield Cited(RULES if number[0].upper() in RULE_LETTERS else ROWS, number)
