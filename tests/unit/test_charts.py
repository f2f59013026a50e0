"""How plots of results look, as far as it is arithmetic."""

from __future__ import annotations

import pytest

from benchmarks.charts import Axis, Line, line_chart, log_ticks, stacked_bar_chart


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([3.0, 40.0], [2, 5, 10, 20, 50]),
        ([0.02, 0.02], [0.02]),
        ([1.0, 1_000.0], [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000]),
        ([0.0, 7.0, 9.0], [5, 10]),
        ([0.0], []),
    ],
)
def test_ticks_of_a_logarithmic_axis_hold_the_values(
    values: list[float], ticks: list[float]
) -> None:
    assert log_ticks(values) == pytest.approx(ticks)


def test_a_logarithmic_axis_shows_all_its_ticks() -> None:
    figure = line_chart(
        "t", Axis("x"), Axis("y", [2, 5, 10], is_log=True), [Line("a", [1, 2], [3, 7])]
    )
    low, high = figure.axes[0].get_ylim()
    assert low <= 2
    assert high >= 10


def test_parts_of_a_bar_stand_behind_each_other() -> None:
    bars = {"a": {"one": 1.0, "two": 2.0}, "b": {"one": 4.0, "two": 0.5}}
    axes = stacked_bar_chart("t", "ms", bars, notes={"b": "much"}).axes[0]
    one, two = axes.containers
    # from the bottom up: b, a
    assert [(each.get_x(), each.get_width()) for each in one] == [(0.0, 4.0), (0.0, 1.0)]
    assert [(each.get_x(), each.get_width()) for each in two] == [(4.0, 0.5), (1.0, 2.0)]
    assert [text.get_text() for text in axes.texts] == ["much", "3"]
