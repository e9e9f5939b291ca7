"""Figures: same input, same bytes; what is missing is said."""

import json
from dataclasses import replace

import pandas as pd
import pytest
from matplotlib.axes import Axes
from synthetic_experiment import Experiment

from ebpo.reporting.captions import figure_names
from ebpo.reporting.figures import curves, penalty, prior, smoothing_window
from ebpo.reporting.runs import read_run, read_runs, reading_order
from ebpo.reporting.score_figures import (
    curriculum,
    group_sizes,
    main_figure,
    seed_mean,
    validation_curve,
    validation_errors,
)
from ebpo.reporting.scores import read_rates
from ebpo.reporting.style import method_colours, save, style

COLOURS = method_colours(["grpo", "ebpo"])


def test_published_methods_keep_their_colour_and_others_get_one_of_their_own() -> None:
    colours = method_colours(["grpo", "ebpo_beta", "ebpo", "other"])
    assert colours["grpo"] == method_colours(["ebpo"])["grpo"]
    assert len(set(colours.values())) == len(colours)


def test_a_figure_written_twice_has_the_same_bytes(experiment: Experiment, tmp_path) -> None:
    runs = read_runs(experiment.runs)
    for name in ("one", "two"):
        with style():
            figure = penalty(runs, COLOURS)
        save(figure, tmp_path / name)
    for suffix in (".svg", ".png"):
        assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()
    svg = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert "GRPO: always 0" in svg  # text is text
    assert "<dc:date>" not in svg


def test_runs_without_a_prior_are_said_to_have_none(experiment: Experiment) -> None:
    runs = [run for run in read_runs(experiment.runs) if run.id.method == "grpo"]
    for figure in (prior(runs, COLOURS), penalty(runs, COLOURS)):
        assert "EBPO was not trained" in figure.texts[0].get_text()


def test_panels_of_the_prior_go_from_the_smallest_group_size(experiment: Experiment) -> None:
    (run,) = [run for run in read_runs(experiment.runs) if run.id.folder.endswith("ebpo-topic/G4/seed0")]
    runs = [
        replace(run, id=run.id.model_copy(update={"model": m, "group_size": g}))
        for m in ("small", "big")
        for g in (4, 2, 16)
    ]
    with style():
        drawn = [axes.get_title() for axes in penalty(runs, COLOURS).axes]
    assert drawn == [f"{model}, G = {size}" for model in ("small", "big") for size in (2, 4, 16)]


def test_a_metric_that_a_run_lacks_is_named_in_the_figure(experiment: Experiment) -> None:
    runs = [run for run in read_runs(experiment.runs) if run.id.method in ("grpo", "ebpo")]
    with style():
        figure = curves(runs, COLOURS, "ebpo/tau2", "tau2")
    assert "Not recorded: GRPO (easy to hard), GRPO (topic)." in figure.get_supxlabel()


def test_main_figure_names_a_missing_run(experiment: Experiment) -> None:
    runs = [run for run in read_runs(experiment.runs) if run.id.method != "dapo"]
    with pytest.raises(ValueError, match="runs/demo/dapo-topic/G4: 0 of 1 seeds"):
        main_figure(experiment.config, runs, read_rates(experiment.scores), method_colours([]))


def test_main_figure_has_error_bars_over_several_seeds_alone(experiment: Experiment) -> None:
    def left_panel(seeds: int) -> Axes:
        main = experiment.config.comparisons["main"].model_copy(update={"seeds": list(range(seeds))})
        config = experiment.config.model_copy(update={"comparisons": {"main": main}})
        runs = [replace(r, id=r.id.model_copy(update={"seed": s})) for s in range(seeds) for r in of_one_seed]
        is_base = rates["method"] == "base"
        copies = [rates[~is_base].assign(seed=s).astype({"seed": "Int64"}) for s in range(seeds)]
        copied = pd.concat([rates[is_base], *copies], ignore_index=True)
        with style():
            return main_figure(config, runs, copied, method_colours([])).axes[0]

    of_one_seed, rates = read_runs(experiment.runs), read_rates(experiment.scores)
    for seeds, bars in ((1, False), (2, True)):
        assert [curve.has_yerr for curve in left_panel(seeds).containers] == 5 * [bars]


def test_the_curriculum_has_a_group_of_bars_per_benchmark(experiment: Experiment) -> None:
    with style():
        (axes,) = curriculum(experiment.config, read_rates(experiment.scores), method_colours([])).axes
    bars = [[bar.get_height() for bar in own] for own in axes.containers if hasattr(own, "patches")]
    assert [len(own) for own in bars] == [6, 6, 6]  # base policy, GRPO, EBPO
    scores = pd.read_csv(experiment.root / "runs/demo/ebpo-difficulty/G4/seed0/evaluation/scores.csv")
    assert bars[2][:5] == pytest.approx((100 * scores["pass_at_1"]).tolist())


def test_group_sizes_are_drawn_where_there_are_several(experiment: Experiment) -> None:
    assert "group_size" not in figure_names(experiment.config)
    main = experiment.config.comparisons["main"]
    several = {"main": main.model_copy(update={"group_sizes": [4, 8]})}
    config = experiment.config.model_copy(update={"comparisons": several})
    assert "group_size" in figure_names(config)
    assert "curriculum" not in figure_names(config)
    rates = read_rates(experiment.scores)
    larger = rates[rates["group_size"] == 4].assign(group_size=8).astype({"group_size": "Int64"})
    with style():
        (axes,) = group_sizes(config, pd.concat([rates, larger]), method_colours([])).axes
    assert len(axes.containers) == len(main.methods)


def test_seed_mean_and_smoothing_window(experiment: Experiment) -> None:
    run = read_run(experiment.runs[0])
    assert seed_mean([run, run], "reward").equals(run.series("reward"))
    assert [smoothing_window(steps) for steps in (4, 40, 100)] == [1, 5, 11]


def test_runs_are_read_as_the_configuration_lists_them_and_by_rising_numbers(experiment: Experiment) -> None:
    run, comparisons = read_run(experiment.runs[0]), experiment.config.comparisons
    comparisons = {name: comparisons[name] for name in ("main", "curriculum")}
    config = experiment.config.model_copy(update={"comparisons": comparisons})
    # main lists grpo, dapo and ebpo in topic order, curriculum the order of difficulty; nothing lists the last name.
    expected = [
        replace(run, id=run.id.model_copy(update={"order": o, "group_size": g, "method": m, "seed": s}))
        for o in ("topic", "difficulty")
        for g in (2, 4, 16)
        for m in ("grpo", "dapo", "ebpo", "another")
        for s in (2, 10)
    ]
    by_folder = sorted(expected, key=lambda run: run.id.folder)
    assert [r.id for r in reading_order(config, by_folder)] == [r.id for r in expected]


def test_validation_curves_have_an_interval_over_runs(experiment: Experiment) -> None:
    one, two = read_runs(experiment.runs)[:2]
    for run, values in ((one, [0.2, 0.3, 0.3]), (two, [0.2, 0.5, 0.4])):
        run.metrics["validation/pass@1"] = pd.Series(values, index=[0, 1, 2]).reindex(run.metrics.index)
    assert validation_curve([one, two], "pass@1").tolist() == pytest.approx([0.2, 0.4, 0.35])
    # Two values d apart: the mean's standard error is d / 2, and t of 1 degree of freedom at 0.975 is 12.706.
    errors = validation_errors([one, two], "pass@1")
    assert errors.tolist() == pytest.approx([0, 12.706 * 0.1, 12.706 * 0.05], rel=1e-4)
    with pytest.raises(ValueError, match="at least 2"):
        validation_errors([one], "pass@1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"step": 1}\n{"step"', ":2: not valid JSON"),
        ('{"step": 1}\n{"step": 1}\n', "step 1 occurs twice"),
        ('{"reward": 1}\n', ":1: step is None"),
        ("", "holds no step"),
    ],
)
def test_malformed_metrics_are_named(experiment: Experiment, text: str, message: str) -> None:
    (experiment.runs[0] / "metrics.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as error:
        read_run(experiment.runs[0])
    assert "metrics.jsonl" in str(error.value)


def test_summary_is_optional(experiment: Experiment) -> None:
    summary = experiment.runs[0] / "summary.json"
    assert read_run(experiment.runs[0]).summary == json.loads(summary.read_text())
    summary.unlink()
    assert read_run(experiment.runs[0]).summary == {}
