"""Figures: what they show of the records, and that equal numbers give equal text."""

import math
import re
import xml.etree.ElementTree as ElementTree

import pytest

from repro import plot
from repro.claim import Control, Criterion, Line, Plot, Protocol
from repro.recipe import Recipe, RecipeError, Stage, Stop, part
from repro.record import Record

RECIPE = Recipe(
    task=part("reference.tasks.toy.Toy"),
    model=part("reference.models.toy.Toy"),
    stages=(
        Stage(
            algorithm=part("reference.algorithms.toy.Toy"),
            steps=100,
            batch=2,
            lr=0.1,
            validate_every=10,
            stop=Stop(metric="score", at_least=1.0),
        ),
    ),
    validation=part("reference.measure.toy.score"),
    measures=(part("reference.measure.toy.score"),),
)


def record(seed=1000, **fields) -> Record:
    plain = RECIPE.to_plain()
    return Record(
        key=f"a-{seed}", recipe=plain, seed=seed, device="cpu", device_class="cpu", sources={}, **fields
    )


def figure(*metrics, **changes) -> Plot:
    line = Line(cell="ours", metrics=metrics, label="ours", paper=changes.pop("paper", None))
    return Plot(
        **{"name": "p", "title": "Title", "x_label": "delay", "y_label": "score", "lines": (line,), **changes}
    )


def only(shown: plot.Picture) -> plot.Series:
    (series,) = shown.series
    return series


def points(step_values, name="score") -> tuple[dict, ...]:
    return tuple({"stage": 0, "step": step, name: value} for step, value in step_values)


# --- what a figure shows


def test_a_line_has_every_seed_their_mean_and_the_paper():
    records = [record(1001, metrics={"a": 0.5, "b": 1.0}), record(1000, metrics={"a": 0.1, "b": 0.4})]
    series = only(plot.picture(figure("a", "b", x=(30, 60), paper=(0.9, None)), {"ours": records}))
    assert series.seeds == ((1000, (30, 60), (0.1, 0.4)), (1001, (30, 60), (0.5, 1.0)))
    assert series.mean == ((30, 60), pytest.approx((0.3, 0.7)))
    assert series.paper == ((30,), (0.9,))


def test_a_scatter_has_a_dot_a_seed_and_says_how_far_they_go_together():
    values = ((1.0, 10.0), (10.0, 100.0), (100.0, 1000.0), (math.nan, 5.0), (5.0, math.nan))
    records = [record(1000 + i, metrics={"step": x, "late": y}) for i, (x, y) in enumerate(values)]
    shown = plot.picture(figure("step", "late", kind="scatter", log_x=True, log_y=True), {"ours": records})
    assert only(shown).seeds == ((1000, (1,), (10,)), (1001, (10,), (100,)), (1002, (100,), (1000,)))
    assert "Title: r = 1.00 of logarithms, 3 runs" in plot.svg(shown)
    three = [record(1000 + i, metrics={"a": x, "b": y}) for i, (x, y) in enumerate([(0, 0), (1, 2), (2, 1)])]
    assert "Title: r = 0.50, 3 runs" in plot.svg(
        plot.picture(figure("a", "b", kind="scatter"), {"ours": three})
    )
    two = plot.picture(figure("a", "b", kind="scatter"), {"ours": three[:2]})
    assert "r =" not in plot.svg(two), "two dots lie on a line whatever they are"


def test_a_band_reaches_over_the_seeds(monkeypatch):
    from matplotlib.axes import Axes

    drawn = []
    monkeypatch.setattr(Axes, "fill_between", lambda self, x, low, high, **how: drawn.append((x, low, high)))
    records = [record(1000 + i, metrics={"a": i, "b": 5 - i}) for i in range(3)]
    plot.svg(plot.picture(figure("a", "b", x=(1, 2)), {"ours": records}))
    assert drawn == [((1, 2), (0, 3), (2, 5))]
    plot.svg(plot.picture(figure("a", "b", x=(1, 2)), {"ours": records[:1]}))
    plot.svg(plot.picture(figure("a", "b", x=(1, 2)), {"ours": [*records, record(1003, metrics={"a": 1})]}))
    assert len(drawn) == 1, "not for one seed, nor where a seed has a gap"


def test_a_list_metric_is_drawn_over_its_places():
    series = only(plot.picture(figure("curve"), {"ours": [record(metrics={"curve": [1, 2, 4]})]}))
    assert series.mean == ((0, 1, 2), (1, 2, 4))


def test_samples_are_drawn_as_their_mean():
    series = only(
        plot.picture(figure("a", "b", x=(1, 2)), {"ours": [record(metrics={"a": [1, 3], "b": [4, 4]})]})
    )
    assert series.mean == ((1, 2), (2, 4))


def test_a_line_over_several_cells_has_one_value_a_cell_and_gaps_where_a_cell_has_no_record():
    def score(**by_seed):
        return [record(int(seed[1:]), metrics={"a": value}) for seed, value in by_seed.items()]

    line = Line(
        cells=("slots-1", "slots-4", "slots-16"), metrics=("a",), label="ours", paper=(9.0, None, 3.0)
    )
    found = {"slots-4": score(s1001=4.0, s1000=2.0), "slots-1": score(s1000=6.0, s1001=[7.0, 9.0])}
    series = only(plot.picture(figure("a", lines=(line,), x=(1, 4, 16)), found))
    assert series.seeds == ((1000, (1, 4), (6.0, 2.0)), (1001, (1, 4), (8.0, 4.0)))
    assert series.mean == ((1, 4), (7.0, 3.0))
    assert series.paper == ((1, 16), (9.0, 3.0))
    found["slots-16"] = score(s1001=1.0)  # one of two seeds: drawn, but no mean hides the other
    series = only(plot.picture(figure("a", lines=(line,), x=(1, 4, 16)), found))
    assert series.seeds[1] == (1001, (1, 4, 16), (8.0, 4.0, 1.0))
    assert series.mean == ((1, 4), (7.0, 3.0))


def test_named_places_have_dots_no_line_and_a_mean_over_the_seeds_that_ran():
    names = ("as written", "as released")
    line = Line(cells=("a", "b"), metrics=("score",), label="accuracy")
    shown = figure("score", x=(0, 1), ticks=names, lines=(line,))
    records = {
        "a": [record(1000, metrics={"score": 0.5}), record(1001, metrics={"score": 0.7})],
        "b": [record(1000, metrics={"score": 0.2})],
    }
    series = only(plot.picture(shown, records))
    assert series.mean == ((0.0, 1.0), (pytest.approx(0.6), 0.2))
    text = plot.svg(plot.picture(shown, records))
    assert all(name in text for name in names)
    with pytest.raises(RecipeError, match="names 1 of 2 x values"):
        figure("score", x=(0, 1), ticks=names[:1])


def test_a_value_that_is_missing_or_not_finite_is_a_gap_and_no_mean_hides_it():
    records = [
        record(1000, metrics={"a": 1.0, "b": math.nan, "c": 3.0}),
        record(1001, metrics={"a": 2.0, "b": 2.0}),
        record(1002, status="failed", error="no"),
    ]
    series = only(plot.picture(figure("a", "b", "c", x=(1, 2, 3)), {"ours": records}))
    assert series.seeds == ((1000, (1, 3), (1.0, 3.0)), (1001, (1, 2), (2.0, 2.0)))
    assert series.mean == ((1,), (1.5,))


def test_a_seed_that_stopped_early_counts_with_its_last_value():
    records = [
        record(1000, validation=points([(10, 0.0), (20, 1.0)])),
        record(1001, validation=points([(10, 0.2), (20, 0.4), (30, 0.6)])),
    ]
    series = only(plot.picture(figure("score", learning=True), {"ours": records}))
    assert series.mean == ((10, 20, 30), pytest.approx((0.1, 0.7, 0.8)))
    assert [len(xs) for _, xs, _ in series.seeds] == [2, 3]


def test_a_failed_trial_is_drawn_but_is_no_part_of_the_mean():
    failed = record(1000, status="failed", error="no", validation=points([(10, 9.0)]))
    whole = record(1001, validation=points([(10, 0.5), (20, 0.6)]))
    series = only(plot.picture(figure("score", learning=True), {"ours": [failed, whole]}))
    assert [seed for seed, _, _ in series.seeds] == [1000, 1001]
    assert series.mean == ((10, 20), (0.5, 0.6))


def test_a_learning_curve_is_read_from_training_where_validation_lacks_it():
    one = record(validation=points([(10, 0.5)]), training=points([(5, 2.0), (10, 1.0)], "loss"))
    assert only(plot.picture(figure("loss", learning=True), {"ours": [one]})).mean == ((5, 10), (2, 1))


def test_without_a_value_the_picture_is_empty():
    assert plot.picture(figure("a", paper=(1.0,)), {"ours": [record()]}).empty
    assert plot.picture(figure("a"), {}).empty
    assert not plot.picture(figure("a"), {"ours": [record(metrics={"a": 1})]}).empty


@pytest.mark.parametrize("value", [None, 1.0, [], [1, 2], [[]], [[1, 2], [3]]])
def test_an_image_takes_matrices_only(value):
    good = [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    records = {"ours": [record(1001, metrics={"map": value}), record(1000, metrics={"map": good})]}
    assert plot.picture(figure("map", kind="image"), records).matrices == ((1000, ((0, 1), (2, 3), (4, 5))),)


# --- the figure that trained claims get by themselves


def protocol(**changes) -> Protocol:
    made = {
        "cells": {"ours": RECIPE, "blind": RECIPE.but(model={"blind": True})},
        "criteria": (
            Criterion(
                name="c", kind="train", statement="s", cell="ours", metric="a", at_least=0.5, sd_floor=0.1
            ),
        ),
        "controls": (Control(name="blind", criterion="c", swap={"ours": "blind"}),),
    }
    return Protocol(**{**made, **changes})


def test_trained_cells_get_a_learning_plot_of_the_metric_that_stops_them():
    curve = ({"stage": 0, "step": 10, "cost": 2.0, "score": 0.1},)
    made = plot.learning_plot(
        protocol(), {"ours": [record(validation=curve)], "blind": [record(training=curve)]}
    )
    assert made.learning and made.y_label == "score"
    assert [(line.cell, line.metrics) for line in made.lines] == [("ours", ("score",))]


def test_without_validation_the_learning_plot_shows_the_training_loss():
    curve = ({"stage": 0, "step": 10, "extra": 2.0, "loss": 0.1},)
    made = plot.learning_plot(
        protocol(), {"ours": [record(training=curve)], "blind": [record(training=curve)]}
    )
    assert made.y_label == "loss" and [line.label for line in made.lines] == ["ours", "blind"]


def test_no_learning_plot_where_there_is_no_curve_or_one_is_declared():
    assert plot.learning_plot(protocol(), {"ours": [record()]}) is None
    declared = protocol(plots=(figure("score", learning=True),))
    assert plot.learning_plot(declared, {"ours": [record(validation=points([(10, 0.5)]))]}) is None


# --- the drawing


def drawn(*metrics, records=None, **changes) -> str:
    values = {"a": 0.1, "b": 0.5, "c": 0.7, "map": [[0.0, 1.0], [2.0, 3.0]]}
    records = [record(1000 + i, metrics=values) for i in range(2)] if records is None else records
    return plot.svg(plot.picture(figure(*metrics, **changes), {"ours": records}))


def texts(svg: str) -> list[str]:
    tree = ElementTree.fromstring(svg)
    return ["".join(t.itertext()).strip() for t in tree.iter("{http://www.w3.org/2000/svg}text")]


def test_equal_pictures_give_equal_text_whatever_the_readers_settings_are():
    import matplotlib

    first = drawn("a", "b", "c", x=(1, 2, 3), paper=(0.2, 0.4, 0.6))
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": None, "axes.grid": False}):
        assert drawn("a", "b", "c", x=(1, 2, 3), paper=(0.2, 0.4, 0.6)) == first
        assert matplotlib.rcParams["font.size"] == 30
    assert "<dc:date>" not in first and "Matplotlib" not in first


def test_a_figure_says_what_it_shows_in_words_that_can_be_read_aloud():
    svg = drawn("a", "b", x=(30, 60), paper=(0.2, 0.4), level=0.125, level_label="chance")
    assert {"Title", "delay", "score", "ours", "ours, paper", "chance", "30", "60"} <= set(texts(svg))
    assert "<title>Title</title>" in svg
    assert len(re.findall(r"stroke-dasharray: 7", svg)) == 2  # the paper's line, and its sample in the legend


def test_every_seed_is_drawn_thin_and_the_mean_thick():
    def of(seeds):
        return drawn("a", "b", records=[record(s, metrics={"a": s, "b": 2}) for s in range(seeds)], x=(1, 2))

    few, more = of(2), of(5)
    assert [svg.count("stroke-width: 0.8; stroke-linecap: square") for svg in (few, more)] == [2, 5]
    assert few.count("stroke-width: 2.2") == more.count("stroke-width: 2.2") == 2  # mean, legend


def test_a_figure_is_at_most_640_pixels_wide_and_its_text_stays_inside():
    svg = drawn("a", "b", "c", x=(100, 1000, 5000), log_x=True, title="A title that goes on and on " * 5)
    width = float(re.search(r'<svg [^>]*width="([\d.]+)pt"', svg)[1])
    assert width * 4 / 3 <= 640
    assert max(len(text) for text in texts(svg)) <= 72


def test_axes_are_logarithmic_when_asked():
    svg = drawn("a", "b", "c", x=(1, 100, 10000), log_x=True, log_y=True)
    assert {"1", "100", "10000"} <= set(texts(svg))
    assert svg != drawn("a", "b", "c", x=(1, 100, 10000))


@pytest.mark.parametrize(
    ("x", "log", "kept"),
    [((100, 200, 300), False, True), ((1, 2, 5000), False, False), ((1, 2, 5000), True, True)],
)
def test_ticks_stand_at_the_values_unless_they_would_touch(x, log, kept):
    assert ({f"{v:g}" for v in x} <= set(texts(drawn("a", "b", "c", x=x, log_x=log)))) == kept


def test_an_image_has_a_panel_a_seed():
    records = [record(1000 + i, metrics={"map": [[0.0, 1.0], [math.nan, i]]}) for i in range(4)]
    svg = drawn("map", kind="image", records=records)
    assert {f"seed {1000 + i}" for i in range(4)} | {"Title", "delay", "score"} <= set(texts(svg))
    assert svg.count("<image ") == 4 + 1  # and the colour bar


def test_the_stamp_changes_with_the_numbers_and_the_words_and_is_in_the_figure():
    def stamp(value=1.0, **changes):
        return plot.picture(figure("a", **changes), {"ours": [record(metrics={"a": value})]}).stamp

    assert stamp() == stamp()
    assert len({stamp(), stamp(2.0), stamp(title="Other"), stamp(paper=(1.0,)), stamp(log_y=True)}) == 5
    shown = plot.picture(figure("a"), {"ours": [record(metrics={"a": 1.0})]})
    assert shown.stamp in plot.svg(shown)[:4000]


def test_more_lines_than_colours_can_be_drawn():
    lines = tuple(Line(cell="ours", metrics=("a",), label=f"line {i}") for i in range(9))
    svg = drawn("a", lines=lines)
    assert {f"line {i}" for i in range(9)} <= set(texts(svg))
