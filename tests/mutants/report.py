"""The results of hunts, as JSON and as the published table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from tests.mutants.hunt import Hunt
from tests.mutants.mutant import Mutant

_CAUGHT_MAX = 120  # characters of a complaint in the table


class Row(msgspec.Struct, frozen=True):
    """One mutant's result. `caught`: empty for a survivor; `failure`: why a hunt had no result."""

    name: str
    rule: str
    note: str
    seeds: int
    cpu_s: float
    caught: str
    failure: str = ""
    unreachable: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All results on one commit. `product`: of the same seeds without a mutant, which must not
    fail; `skipped`: the mutants that no seed can show, with the reason."""

    commit: str
    cpu_seconds_max: float
    killed: int
    total: int
    cpu_s_median: float
    cpu_s_max: float
    product: Row
    rows: list[Row]
    skipped: list[Row]

    @property
    def is_good(self) -> bool:
        """Every mutant was found, and the product itself did not fail."""
        silent = not (self.product.caught or self.product.failure)
        return self.killed == self.total and silent


def row_of(mutant: Mutant, hunt: Hunt, failure: str = "") -> Row:
    return Row(
        mutant.name,
        mutant.rule,
        mutant.note,
        hunt.seeds,
        hunt.cpu_s,
        hunt.caught,
        failure,
        mutant.unreachable,
    )


def report_of(
    rows: Sequence[Row],
    product: Row,
    skipped: Sequence[Mutant],
    *,
    commit: str,
    cpu_seconds_max: float,
) -> Report:
    times = sorted(row.cpu_s for row in rows if row.caught)
    return Report(
        commit=commit,
        cpu_seconds_max=cpu_seconds_max,
        killed=len(times),
        total=len(rows),
        cpu_s_median=round(median(times), 2) if times else 0.0,
        cpu_s_max=max(times, default=0.0),
        product=product,
        rows=list(rows),
        skipped=[row_of(each, Hunt(0, 0.0)) for each in skipped],
    )


def markdown(report: Report) -> str:
    """The table for readers."""
    lines = [
        "# Mutants",
        "",
        "Each row is the product with one safety rule switched off, run by `make mutants` against"
        " seeds 1, 2, 3, … of the simulator with default settings until a seed complains. Those of"
        " members have that class of faults on in every seed.",
        "",
        f"**{report.killed} of {report.total} found**; CPU seconds to find one: median"
        f" {report.cpu_s_median}, most {report.cpu_s_max}; given up after"
        f" {report.cpu_seconds_max:g}. Commit {report.commit}.",
        "",
        _about_product(report.product),
        "",
        "| mutant | rule | seeds | CPU s | what caught it |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.name}: {_cell(row.note)} | {row.rule} | {row.seeds} | {row.cpu_s:.1f} |"
        f" {_cell(row.caught or f'**not found** {row.failure}'.rstrip())} |"
        for row in report.rows
    ]
    if report.skipped:
        lines += [
            "",
            "## Not to be found by any seed",
            "",
            "| mutant | rule | why |",
            "|---|---|---|",
        ]
        lines += [
            f"| {row.name}: {_cell(row.note)} | {row.rule} | {_cell(row.unreachable, 1_000)} |"
            for row in report.skipped
        ]
    return "\n".join(lines) + "\n"


def _about_product(product: Row) -> str:
    complaint = product.caught or product.failure
    verdict = f"complained: {_cell(complaint)}" if complaint else "were silent"
    return f"The same seeds without a mutant, 1 to {product.seeds}, {verdict}."


def _cell(text: str, size_max: int = _CAUGHT_MAX) -> str:
    cut = text if len(text) <= size_max else text[: size_max - 1] + "…"
    return cut.replace("|", "\\|").replace("\n", " ")
