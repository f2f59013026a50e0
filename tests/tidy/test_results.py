"""Kept results are of this repository's history, and what is made of them is current."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from benchmarks.charts import svg_of
from benchmarks.headlines import PICTURES, README, pictures_of, readme_with_figures
from benchmarks.results import RESULTS
from tests.tidy.repository import ROOT, text_of, tracked

KEPT = sorted(path for path in tracked() if path.match(f"{RESULTS}/*.json"))


class Kept(msgspec.Struct):
    """What every result file says of its code. `landed`: the commit that brought the code to this
    branch, where `commit` was rebased before it came here."""

    commit: str
    landed: str = ""


def git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_result_names_the_commit_it_was_measured_at(path: Path) -> None:
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("a checkout without its history: clone the whole repository")
    kept = msgspec.json.decode(text_of(path), type=Kept)
    commit = kept.landed or kept.commit
    assert git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0, commit


def test_readme_shows_the_kept_results() -> None:
    """`python -m benchmarks report` writes it."""
    text = (ROOT / README).read_text(encoding="utf-8")
    assert text == readme_with_figures(text, ROOT)


@pytest.mark.slow
def test_pictures_show_the_kept_results(tmp_path: Path) -> None:
    made = {}
    for stem, figure in pictures_of(ROOT).items():
        with open(tmp_path / stem, "wb") as file:
            svg_of(figure, file)
        made[f"{stem}.svg"] = (tmp_path / stem).read_bytes()
    assert len(made) == 2
    assert made == {path.name: path.read_bytes() for path in (ROOT / PICTURES).iterdir()}
