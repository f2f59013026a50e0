"""Numbers lead somewhere: what is cited exists, what is built is cited, exceptions have reasons."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy.citations import (
    PROMISES,
    ROW_LETTERS,
    ROWS,
    RULE_LETTERS,
    RULES,
    Cited,
    anchors,
    built,
    cited_by,
    cited_in,
    cited_in_prose,
    citing_files,
    numbered,
    uncited,
)
from tests.tidy.repository import ROOT, text_of, tracked

PRODUCT = ("logstore", "actors", "transport")
SIMULATOR = "actors/simulation"
# How documents are named, "PROTOCOL.md" or "SAFETY section 4", and how they are not: "(BOOK 4)".
_OUTSIDE = re.compile(
    r"\b([A-Z]{4,})(?:\.md\b|,? sections? \d)"
    r"|[(,;] ?(?!ZMTP|LINGER)[A-Z]{4,} \d+(?:\.\d+)?[),;.]"
)
_LINK = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")


def names(cited: set[Cited]) -> list[str]:
    return sorted(map(str, cited))


def by_product() -> set[Cited]:
    """Cited by code that runs in a cluster or a client of it."""
    return {
        each
        for path in citing_files()
        if path.suffix == ".py" and path.parts[0] in PRODUCT and not str(path).startswith(SIMULATOR)
        for each in cited_in(path)
    }


def injected() -> set[Cited]:
    """Cited by a test, or by the part of the simulator that injects the fault or looks for it."""
    return cited_by("tests").union(
        *(cited_in(path) for path in citing_files() if str(path).startswith(SIMULATOR))
    )


def test_every_cited_number_has_an_anchor() -> None:
    missing = [
        f"{path}: {each}"
        for path in citing_files()
        for each in cited_in(path)
        if each.anchor not in anchors(each.document)
    ]
    assert not sorted(missing)


def test_every_rule_row_and_promise_has_one_anchor() -> None:
    found = {
        document: re.findall(r'<a id="([^"]+)"></a>', text_of(Path(document)))
        for document in (RULES, ROWS, PROMISES)
    }
    assert not [
        f"{document}#{each}"
        for document, ids in found.items()
        for each in set(ids)
        if ids.count(each) > 1
    ]
    assert len(numbered(RULES, RULE_LETTERS)) == 101
    assert len(numbered(ROWS, ROW_LETTERS)) == 160
    assert len(numbered(ROWS, "I")) == 22
    assert len(numbered(PROMISES, "P")) == 9


def test_what_is_built_is_cited_by_code_and_by_a_test() -> None:
    rules = set(built(RULES, RULE_LETTERS))
    assert not names(rules - by_product()), "no code cites it"
    assert not names(rules - cited_by("tests")), "no test cites it"


def test_every_fault_is_cited_by_a_test_or_by_what_injects_it() -> None:
    assert not names(set(built(ROWS, ROW_LETTERS)) - injected())


def test_the_lists_of_what_is_not_cited_only_shrink() -> None:
    assert not names(uncited(RULES).keys() - numbered(RULES, RULE_LETTERS)), "no rule"
    assert not names(uncited(ROWS).keys() - numbered(ROWS, ROW_LETTERS)), "no row"
    both = by_product() & cited_by("tests")
    assert not names(uncited(RULES).keys() & both), "code and a test cite it: take it off the list"
    assert not names(uncited(ROWS).keys() & injected()), "it is cited: take it off the list"


def test_no_document_outside_of_the_repository_is_cited() -> None:
    here = {path.stem for path in tracked() if path.suffix == ".md"}
    assert not sorted(
        f"{path}: {match[0]}"
        for path in citing_files()
        for match in _OUTSIDE.finditer(text_of(path))
        if match[1] not in here
    )


def test_every_link_to_a_place_leads_there() -> None:
    missing = []
    for path in tracked():
        if path.suffix != ".md":
            continue
        for file, place in _LINK.findall(text_of(path)):
            if file.startswith("http"):
                continue
            target = (ROOT / path.parent / file).resolve() if file else ROOT / path
            if place not in _places(target):
                missing.append(f"{path}: {file}#{place}")
    assert not missing


def _places(target: Path) -> set[str]:
    """Ids that a document gives, and those that a page of it has for each heading."""
    if not target.is_file():
        return set()
    path = target.relative_to(ROOT)
    headings = re.findall(r"^#+ (.*)$", text_of(path), re.MULTILINE)
    return anchors(str(path)) | {_slug(each) for each in headings}


def _slug(heading: str) -> str:
    """As GitHub makes them: markup gone, words in lower case, spaces are hyphens."""
    text = re.sub(r"<[^>]+>|[`*]", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("(SAFETY E6)", ["SAFETY.md#e6"]),
        ("SAFETY F1, S8; FAULTS R2", ["FAULTS.md#r2", "SAFETY.md#f1", "SAFETY.md#s8"]),
        ("FAULTS P3, D1", ["FAULTS.md#d1", "FAULTS.md#p3"]),
        ("P7, FAULTS P3 (P5)", ["FAULTS.md#p3", "README.md#p5", "README.md#p7"]),
        ("FAULTS.R24 and W2", ["FAULTS.md#r24", "SAFETY.md#w2"]),
        ("SAFETY R4", ["SAFETY.md#r4"]),
        ("F1 to F3", ["SAFETY.md#f1", "SAFETY.md#f2", "SAFETY.md#f3"]),
        ("the promise I11", ["FAULTS.md#i11"]),
        ("SAFETY sections 2 to 3", ["SAFETY.md#section-2", "SAFETY.md#section-3"]),
        ("FAULTS section 2.2", ["FAULTS.md#section-2.2"]),
        ("C5a, a U64 of section 4, LSN1, -S9", ["SAFETY.md#c5a", "SAFETY.md#u64"]),
        ("SAFETY\n# M4", ["SAFETY.md#m4"]),
        ("PROTOCOL.md, section 11", ["PROTOCOL.md#section-11"]),
    ],
)
def test_citations_are_read_as_they_are_written(text: str, cited: list[str]) -> None:
    assert names(cited_in_prose(text)) == cited
