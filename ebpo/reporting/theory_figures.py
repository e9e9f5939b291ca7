"""The figures of docs/theory.md and of the report's section on theory, from the tables of scripts/theory.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator
from PIL import Image

from ebpo.files import atomic_path
from ebpo.reporting.labels import method_label
from ebpo.reporting.style import method_colours, new_figure, save, style

Tables = Mapping[str, pd.DataFrame]

# Title and caption of each figure.
THEORY_FIGURES = {
    "penalty": (
        "T1, T3: what a group without success gets",
        "Lines: closed form; points: simulated (95 % intervals, smaller than the points). Left: the raw advantage "
        "−S·μ_glob is linear in the mean pass rate only while S is constant. Middle: after the batch normalisation. "
        "Right: batches of saturated groups alone; where all fail, or all succeed, the normalised advantage is 0.",
    ),
    "baseline_mse": (
        "T2: error of the baseline",
        "MSE of each baseline relative to GRPO's group mean, by the distribution of pass rates. Lines: closed form "
        "with an endless history; points: simulated after 32 batches of 32 prompts, the scored batch included, with "
        "95 % intervals. The beta-binomial prior coincides with pooled and debiased, but for G = 1.",
    ),
    "shrinkage": (
        "T2: where Algorithm 1 loses",
        "Left: its S against the optimal one (G = 4): too small for similar prompts, too large for polarised ones; "
        "above 2 S* GRPO is better. Middle: its MSE relative to GRPO's; above 1 the claim “strictly lower” fails. "
        "Right: MSE at a given pass rate (G = 4): prompts near 0 or 1 pay for the gain of the others.",
    ),
    "convergence": (
        "T2: how fast the online prior learns",
        "Excess MSE over an endless history, relative to the latter, against the groups seen (G = 4, batches of 32 "
        "prompts), with 95 % intervals. Lines: closed form to first order for update=after, proportional to 1/n. "
        "Dotted: 5 %.",
    ),
    "entropy": (
        "T4: entropy of softmax bandits in training",
        "Left: same learning rate. Middle: same norm of every update. Dots sum the first-order changes of GRPO and of "
        "EBPO; dotted lines are T4's prediction, with E[1/σ_q] for GRPO and 1/σ_batch for EBPO. Right: entropy against "
        "the pass rate, where speed plays no part. Bands: 95 % intervals over runs. GRPO and EntropyMech nearly "
        "coincide.",
    ),
    "entropy_weights": (
        "T4: the premises",
        "Left: the factor ρ by which each estimator scales a prompt's expected gradient. T4 takes 1/σ_q for GRPO; "
        "samples of G completions give far less at the edges (EBPO: uniform pass rates). Right: entropy lost by "
        "EBPO relative to GRPO at the same learning rate: T4's bound against the exact value, by distribution of "
        "pass rates. The point mass and Beta(1, 5) are left out: there the first steps raise the entropy.",
    ),
    "clustering": (
        "T5: prior and topic",
        "Top: root mean square distance of the prior's mean to the mean pass rate of the prompt's topic; nine "
        "topics, 270 batches of 32 prompts, G = 4; on mixed streams half-life and Welford coincide. Bottom: MSE of "
        "the baseline over the run with 95 % intervals; filled: V itself, open: the baseline that the batch "
        "normalisation leaves, in which the batch mean takes the place of μ_glob. Vertical lines: the least MSE with "
        "one prior and with a prior per topic, moments known.",
    ),
    "drift": (
        "Drift: a policy that gets better",
        "Left: μ_glob while the mean pass rate rises by 0.6 in 400 batches of 32 prompts. Middle: distance of "
        "μ_glob to the truth late in the run, by half-life; lines and bars: exact, points: simulated with 95 % "
        "intervals. "
        "Right: half-life of least error.",
    ),
    "gradient": (
        "Bias and noise of the gradient",
        "Exact, four prompts, G = 4. Left: standard deviation of the estimate over the length of its mean, relative "
        "to the baseline θ. Middle: error of direction. Right: how it falls with the groups in the history (64 "
        "arms).",
    ),
}
REPORT_FIGURES = (
    "penalty",
    "baseline_mse",
    "shrinkage",
    "entropy",
    "entropy_weights",
    "clustering",
    "drift",
    "gradient",
)
COLUMNS = ("theorem", "quantity", "setting", "analytic", "simulated", "low", "high", "agree", "claim")

_LABELS = {
    "ebpo": "EBPO (published)",
    "ebpo_pooled": "EBPO, within pooled",
    "ebpo_debiased": "EBPO, pooled and debiased",
    "beta_binomial": "beta-binomial",
    "oracle_linear": "optimum (linear)",
    "oracle_posterior": "posterior mean",
    "leave_one_out": "leave-one-out mean",
    "grpo": "GRPO",
    "half_life": "half-life 128",
    "half_life_debiased": "half-life 128, debiased",
    "cluster": "prior per topic",
    "cluster_debiased": "prior per topic, debiased",
    "none": "no baseline",
    "theta": "true pass rate θ",
    "least_variance": "least-variance constant",
    "group_mean": "Dr. GRPO (group mean)",
    "ebpo_raw": "EBPO raw, update=after",
    "ebpo_raw_first_batch": "EBPO raw, first batch",
    "ebpo_first_batch": "EBPO, first batch",
}
_PRIORS = {
    "point_mass": "point mass at 0.3",
    "unimodal": "Beta(4, 4), unimodal",
    "skewed": "Beta(1, 5), skewed",
    "truncated_normal": "N(0.4, 0.25²) on [0, 1]",
    "u_shaped": "Beta(0.5, 0.5), U-shaped",
    "polarised": "Beta(0.1, 0.1), polarised",
}
_MARKERS = "osD^vP*X"
# Dark to light, legible in grey: for ordered quantities such as G, drift, half-life.
_SEQUENCE = ("#1B1B3A", "#3B4CC0", "#2E8B9A", "#7AA940", "#D9A400", "#D55E00")


def _colours(names: Sequence[str]) -> dict[str, str]:
    return method_colours(list(names))


def _error_bars(
    axes: Axes, x: pd.Series, frame: pd.DataFrame, colour: str, scale: float = 1.0, marker: str = "o"
) -> None:
    axes.errorbar(
        x, scale * frame.simulated, yerr=scale * (frame.high - frame.simulated), fmt=marker, color=colour,
        markersize=4, linewidth=1, capsize=2,
    )  # fmt: skip


def _ticks(axes: Axes, values: Sequence[float], side: Literal["x", "y"] = "x") -> None:
    """A logarithmic axis with these ticks alone, written out."""
    (axes.set_xscale if side == "x" else axes.set_yscale)("log")
    axis: Axis = axes.xaxis if side == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(list(values)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def penalty(tables: Tables) -> Figure:
    figure = new_figure(12.6, 4.3)
    raw, scaled, saturated = figure.subplots(1, 3)
    colours = {"fixed_concentration": "#D55E00", "fixed_tau2": "#7B4FB5"}
    labels = {"fixed_concentration": "EBPO, a + b = 2", "fixed_tau2": "EBPO, τ² = 0.02"}
    frame = tables["penalty"]
    for axes, quantity in ((raw, "raw"), (scaled, "normalised")):
        for family, colour in colours.items():
            own = frame[(frame.family == family) & (frame.quantity == quantity)]
            axes.plot(own["mean"], own.analytic, color=colour, label=labels[family])
            _error_bars(axes, own["mean"], own, colour)
        axes.axhline(0, color="#0072B2", label="GRPO")
        axes.set_xlabel("mean pass rate μ")
    raw.set_ylabel("raw advantage of an all-0 group")
    scaled.set_ylabel("normalised advantage of an all-0 group")
    raw.legend(loc="lower left")
    for completion, colour, label in (("wrong", "#D55E00", "all-0 groups"), ("right", "#009E73", "all-1 groups")):
        own = tables["saturated"][tables["saturated"].completion == completion]
        saturated.plot(own.share, own.normalised, color=colour, marker="o", markersize=4, label=f"{label}, normalised")
        saturated.plot(own.share, own.raw, color=colour, linestyle="--", label=f"{label}, raw")
    saturated.axhline(0, color="#0072B2", label="GRPO")
    saturated.set_xlabel("share of all-1 groups in a saturated batch")
    saturated.set_ylabel("EBPO's advantage")
    saturated.legend(fontsize=8.5, loc="upper right")
    return figure


def baseline_mse(tables: Tables) -> Figure:
    frame = tables["baseline_mse"]
    names = ("ebpo", "ebpo_pooled", "ebpo_debiased", "oracle_posterior", "leave_one_out")
    colours = _colours(names)
    figure = new_figure(11, 7.2)
    grid = figure.subplots(2, 3, sharex=True, sharey=True)
    for axes, (prior, label) in zip(grid.flat, _PRIORS.items(), strict=True):
        own = frame[frame.prior == prior]
        known = own[own.moments == "known"].set_index(["estimator", "group_size"]).analytic
        for number, name in enumerate(names):
            curve = known[name] / known["grpo"]
            line = "--" if name in ("oracle_posterior", "leave_one_out") else "-"
            axes.plot(curve.index, curve, line, color=colours[name], label=_LABELS[name])
            seen = own[(own.estimator == name) & (own.moments == "online")].set_index("group_size")
            if len(seen):
                scale = 1 / known["grpo"].reindex(seen.index)
                axes.errorbar(
                    seen.index, seen.simulated * scale, yerr=(seen.high - seen.simulated) * scale,
                    fmt=_MARKERS[number], color=colours[name], markersize=4, linewidth=1, capsize=2,
                )  # fmt: skip
        axes.axhline(1, color="#0072B2", linewidth=1.2, label="GRPO")
        axes.set_title(label)
        axes.set_ylim(0, 2.05)
        _ticks(axes, sorted(own.group_size.unique()))
    for axes in grid[1]:
        axes.set_xlabel("completions per prompt G")
    for axes in grid[:, 0]:
        axes.set_ylabel("MSE relative to GRPO's")
    handles, texts = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside upper center", ncols=3)
    return figure


def shrinkage(tables: Tables) -> Figure:
    figure = new_figure(12.6, 4.2)
    weight, loss, conditional = figure.subplots(1, 3)
    frame = tables["shrinkage"]
    four = frame[frame.group_size == 4]
    weight.plot(four.ratio, four.published, color="#D55E00", label="EBPO (published)")
    weight.plot(four.ratio, four.optimal, color="#000000", linestyle="--", label="optimum S*")
    weight.plot(four.ratio, 2 * four.optimal, color="#777777", linestyle=":", label="2 S*: GRPO's MSE")
    weight.set_ylim(0, 1.05)
    weight.set_ylabel("shrinkage S (G = 4)")
    weight.legend()
    for size, colour in zip(sorted(frame.group_size.unique()), _SEQUENCE, strict=False):
        own = frame[frame.group_size == size]
        loss.plot(own.ratio, own.over_grpo, color=colour, label=f"G = {size}")
    loss.axhline(1, color="#777777", linestyle=":", linewidth=1.2, label="equal")
    loss.set_ylim(0, 3)
    loss.set_ylabel("MSE, EBPO (published) / GRPO")
    loss.legend()
    for axes in (weight, loss):
        axes.set_xlabel("τ² / σ², 1 / (a + b) for Beta(a, b)")
        _ticks(axes, (0.01, 0.1, 1, 10))
    for prior, line in (("unimodal", "-"), ("polarised", ":")):
        own = tables["conditional_mse"][tables["conditional_mse"].prior == prior]
        conditional.plot(own.theta, own.ebpo, line, color="#D55E00", label=f"EBPO after {_PRIORS[prior]}")
    conditional.plot(own.theta, own.grpo, color="#0072B2", label="GRPO")
    conditional.set_xlabel("pass rate θ of the prompt")
    conditional.set_ylabel("MSE at θ (G = 4)")
    conditional.legend(fontsize=8.5, loc="upper center")
    conditional.set_ylim(0, 1.45 * tables["conditional_mse"][["ebpo", "grpo"]].to_numpy().max())
    return figure


def convergence(tables: Tables) -> Figure:
    frame = tables["convergence"]
    figure = new_figure(10.5, 4.4)
    grid = figure.subplots(1, 3, sharex=True, sharey=True)
    variants = (("ebpo_debiased", "before", "#CC79A7", "s"), ("ebpo_debiased", "after", "#7B4FB5", "o"))
    for axes, prior in zip(grid, ("unimodal", "skewed", "u_shaped"), strict=True):
        for estimator, update, colour, marker in variants:
            own = frame[(frame.prior == prior) & (frame.estimator == estimator) & (frame["update"] == update)]
            sure = own[own.simulated > 0]
            below = np.minimum(sure.simulated - sure.low, sure.simulated * 0.999)
            axes.errorbar(
                sure.groups, sure.simulated / sure.limit,
                yerr=[below / sure.limit, (sure.high - sure.simulated) / sure.limit], fmt=marker, color=colour,
                markersize=4, linewidth=1, capsize=2, label=f"pooled and debiased, update={update}",
            )  # fmt: skip
            if update == "after":
                axes.plot(own.groups, own.analytic / own.limit, color=colour, label="first order, update=after")
        axes.axhline(0.05, color="#777777", linestyle=":", linewidth=1)
        axes.set_title(_PRIORS[prior])
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("groups seen by the prior")
        axes.set_ylim(1e-4, 2)
    grid[0].set_ylabel("excess MSE / MSE after endless history")
    handles, texts = grid[0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside upper center", ncols=3)
    return figure


def entropy(tables: Tables) -> Figure:
    frame = tables["entropy_training"]
    figure = new_figure(12.6, 4.9)
    grid = figure.subplots(1, 3)
    algorithms = list(dict.fromkeys(frame.algorithm))
    colours = _colours(algorithms)
    for axes, matching in ((grid[0], "step_size"), (grid[1], "update_norm")):
        for algorithm in algorithms:
            own = frame[(frame.algorithm == algorithm) & (frame.matching == matching)]
            curve = own[own.quantity == "entropy"]
            axes.plot(curve.step, curve.simulated, color=colours[algorithm], label=method_label(algorithm))
            axes.fill_between(curve.step, curve.low, curve.high, color=colours[algorithm], alpha=0.2, linewidth=0)
            first, bound = (own[own.quantity == quantity] for quantity in ("first_order", "bound"))
            axes.plot(first.step[::4], first.simulated[::4], "o", color=colours[algorithm], markersize=3.5)
            axes.plot(bound.step, bound.simulated, color=colours[algorithm], linestyle=":", linewidth=1.3)
            if matching == "update_norm":
                rate = own[own.quantity == "pass_rate"]
                grid[2].plot(100 * rate.simulated.to_numpy(), curve.simulated, color=colours[algorithm])
        axes.set_xlabel("update")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axes.set_ylim(0, None)
    grid[0].set_title("same learning rate (dotted: T4's prediction)")
    grid[1].set_title("same norm of every update (dotted: T4's)")
    grid[2].set_title("entropy at equal pass rate (same norm)")
    grid[0].set_ylabel("mean entropy of the policy, nats")
    grid[2].set_ylabel("mean entropy of the policy, nats")
    grid[2].set_xlabel("mean pass rate, %")
    grid[2].set_ylim(0, None)
    handles, texts = grid[0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside upper center", ncols=5)
    return figure


def entropy_weights(tables: Tables) -> Figure:
    figure = new_figure(11, 4.3)
    weight, ratio = figure.subplots(1, 2)
    frame = tables["entropy_weights"]
    for size, colour in zip(sorted(frame.group_size.unique()), _SEQUENCE[1:], strict=False):
        own = frame[frame.group_size == size]
        weight.plot(own.theta, own.grpo, color=colour, label=f"GRPO, G = {size}")
        if size == 4:
            weight.plot(own.theta, own.ebpo, color="#D55E00", linestyle="--", label="EBPO, G = 4")
    weight.plot(own.theta, own.inverse_sigma, color="#000000", linestyle=":", label="1/σ_q")
    weight.set_ylim(0, 8)
    weight.set_xlabel("pass rate θ of the prompt")
    weight.set_ylabel("weight ρ of the prompt's gradient")
    weight.legend(loc="upper center", ncols=2, fontsize=9)
    premises = tables["entropy_premises"]
    # Where progress raises the entropy there is no decay to bound.
    decaying = premises[(premises.group_size == 4) & (premises.cost > 0)]
    where = np.arange(len(decaying))
    ratio.bar(where - 0.2, decaying.claimed, 0.38, color="#BBBBBB", label="T4's bound, (1/σ_batch) / E[1/σ_q]")
    ratio.bar(where + 0.2, decaying.actual, 0.38, color="#D55E00", label="exact")
    ratio.axhline(1, color="#0072B2", linewidth=1.2, label="GRPO")
    names = [_PRIORS[prior].replace("), ", "),\n").replace(" on ", "\non ") for prior in decaying.prior]
    ratio.set_xticks(where, names, fontsize=8.5)
    ratio.set_ylabel("entropy lost: EBPO / GRPO (G = 4)")
    ratio.legend(loc="upper left")
    ratio.grid(visible=False, axis="x")
    return figure


def clustering(tables: Tables) -> Figure:
    curves, summary = tables["clustering_curves"], tables["clustering"]
    names = ("ebpo", "half_life", "cluster")
    every = ("grpo", "ebpo", "ebpo_debiased", "half_life", "half_life_debiased", "cluster", "cluster_debiased")
    colours = {"ebpo": "#D55E00", "half_life": "#7B4FB5", "cluster": "#009E73"}
    figure = new_figure(12, 7.4)
    grid = figure.subplot_mosaic([["random", "topic", "interleaved"], ["mse", "mse", "mse"]])
    titles = {"random": "random stream", "topic": "topic after topic", "interleaved": "topics in turn"}
    for stream, title in titles.items():
        axes = grid[stream]
        for name in names:
            own = curves[(curves.stream == stream) & (curves.estimator == name)]
            # On mixed streams the forgetting prior lies upon Welford's, which shows on both sides of it.
            width = 3.5 if name == "ebpo" and stream != "topic" else 1.5
            axes.plot(own.step, own.simulated, color=colours[name], label=_LABELS[name], linewidth=width)
            axes.fill_between(own.step, own.low, own.high, color=colours[name], alpha=0.2, linewidth=0)
        axes.set_title(title)
        axes.set_xlabel("training step")
        axes.set_ylim(0, 0.5)
    grid["random"].set_ylabel("RMS error of the prior's mean")
    grid["topic"].legend(loc="upper right", ncols=2, fontsize=8.5)
    last = grid["mse"]
    table = summary.set_index(["stream", "estimator", "quantity"])
    for name, line, label in (("ebpo", "--", "optimum, one prior"), ("cluster", ":", "optimum, prior per topic")):
        optimum = float(table.analytic["random", name, "mse"])
        last.axvline(optimum, color="#555555", linestyle=line, linewidth=1.2, label=label)
    shift = {"random": 0.22, "topic": 0.0, "interleaved": -0.22}
    for (stream, title), marker, colour in zip(titles.items(), "osD", ("#000000", "#D55E00", "#2E8B9A"), strict=True):
        where = np.arange(len(every))[::-1] + shift[stream]
        for quantity, shown, fill in (("mse", every, colour), ("effective_mse", every[1:], "white")):
            own = table.loc[[(stream, e, quantity) for e in shown]]
            last.errorbar(
                own.simulated, where[-len(own):], xerr=own.high - own.simulated, fmt=marker, color=colour,
                markerfacecolor=fill, markersize=5.5, linewidth=1, label=title if quantity == "mse" else None,
            )  # fmt: skip
    last.plot([], [], "o", color="#777777", label="V itself")
    last.plot([], [], "o", color="#777777", markerfacecolor="white", label="after normalisation")
    last.set_yticks(np.arange(len(every))[::-1], [_LABELS[e] for e in every], fontsize=8.5)
    last.set_xlabel("MSE of the baseline")
    last.set_xlim(0.01, None)
    last.legend(loc="lower right", fontsize=8.5, ncols=2)
    return figure


def drift(tables: Tables) -> Figure:
    errors, curves, recommended = tables["drift"], tables["drift_curves"], tables["half_life"]
    figure = new_figure(12.6, 4.4)
    follow, error, best = figure.subplots(1, 3)
    truth = curves[curves.half_life == curves.half_life.min()]
    follow.plot(truth.step, truth.truth, color="#000000", linestyle=":", label="truth")
    shown = ((128.0, "#2E8B9A"), (1024.0, "#7B4FB5"), (np.inf, "#D55E00"))
    for half_life, colour in shown:
        own = curves[curves.half_life == half_life]
        label = "plain Welford" if np.isinf(half_life) else f"half-life {half_life:.0f}"
        follow.plot(own.step, own.simulated, color=colour, label=label)
        follow.fill_between(own.step, own.low, own.high, color=colour, alpha=0.2, linewidth=0)
    follow.set_xlabel("training step")
    follow.set_ylabel("mean pass rate")
    follow.legend(loc="upper left")
    prior = errors[errors.quantity == "prior"]
    finite = sorted(h for h in prior.half_life.unique() if np.isfinite(h))
    # Plain Welford stands at the right edge, as a half-life without end.
    position = {h: h for h in finite} | {np.inf: 4 * finite[-1]}
    for total, colour in zip(sorted(prior.total.unique()), _SEQUENCE, strict=True):
        own = prior[prior.total == total].sort_values("half_life")
        x = own.half_life.map(position)
        exact = np.sqrt(own.analytic.to_numpy())
        error.plot(x[:-1], exact[:-1], color=colour, label=f"+{total:g}")
        error.plot(x[-1:], exact[-1:], "_", color=colour, markersize=16, markeredgewidth=1.8)
        spread = (own.high - own.simulated) / (2 * np.sqrt(own.simulated))
        error.errorbar(
            x, np.sqrt(own.simulated), yerr=spread, fmt="o", color=colour, markersize=3.5, linewidth=1, capsize=2
        )
    error.set_xscale("log")
    error.set_yscale("log")
    ticks = [32, 128, 512, 2048, position[np.inf]]
    error.xaxis.set_major_locator(FixedLocator(ticks))
    error.set_xticklabels(["32", "128", "512", "2048", "Welford"])
    error.xaxis.set_minor_locator(NullLocator())
    error.yaxis.set_minor_formatter(NullFormatter())
    error.set_xlabel("half-life, groups")
    error.set_ylabel("RMS error of μ_glob, last 40 steps")
    error.set_ylim(None, 1.5)
    error.legend(title="growth in 400 steps", ncols=3, fontsize=8.5, title_fontsize=8.5, loc="upper left")
    moving = recommended[recommended.total > 0]
    rate = 100 * moving.per_100_steps
    best.plot(rate, moving.recommended, color="#000000", label="h* (closed form)")
    best.plot(rate, moving.best_exact, "s", color="#D55E00", markersize=5, label="least exact error")
    best.plot(rate, moving.welford_best_at, color="#777777", linestyle=":", label="Welford falls behind after")
    _ticks(best, (1.25, 2.5, 5, 10, 15))
    _ticks(best, (100, 200, 500, 1000, 2000, 5000), "y")
    best.set_xlabel("drift, percentage points per 100 steps")
    best.set_ylabel("half-life or history, groups")
    best.legend(loc="upper right", fontsize=8.5)
    best.set_ylim(80, 6000)
    return figure


def gradient(tables: Tables) -> Figure:
    frame = tables["gradient"]
    own = frame[frame.group_size == 4]
    names = [n for n in dict.fromkeys(own.estimator)][::-1]
    figure = new_figure(12.6, 4.6)
    noise, direction, history = figure.subplots(1, 3, width_ratios=(1.2, 0.9, 1))
    where = np.arange(len(names))
    for policy, marker, colour in (("2 arms", "s", "#2E8B9A"), ("64 arms", "o", "#D55E00")):
        values = own[own.policy == policy].set_index("estimator")
        noise.plot([values.noise[n] / values.noise["theta"] for n in names], where, marker, color=colour, label=policy)
        direction.plot([values.direction_error[n] for n in names], where, marker, color=colour, label=policy)
    noise.axvline(1, color="#777777", linewidth=1, linestyle=":")
    noise.set_yticks(where, [_LABELS[n] for n in names], fontsize=8.5)
    direction.set_yticks(where, [""] * len(names))
    noise.set_xlabel("noise relative to the baseline θ")
    direction.set_xlabel("sine of the angle to the true gradient")
    noise.legend(loc="upper left")
    lines = tables["gradient_history"]
    for update, normalise, colour, label in (
        ("before", False, "#D55E00", "raw, update=before"), ("before", True, "#7B4FB5", "normalised, update=before"),
    ):  # fmt: skip
        mine = lines[(lines["update"] == update) & (lines.normalise == normalise) & (lines.groups > 0)]
        history.plot(mine.groups, mine.direction_error, color=colour, marker="o", markersize=4, label=label)
    history.set_xscale("log")
    history.set_yscale("log")
    history.set_xlabel("groups in the history")
    history.set_ylabel("sine of the angle to the true gradient")
    history.legend(loc="lower left")
    return figure


_DRAW: dict[str, Callable[[Tables], Figure]] = {
    "penalty": penalty, "baseline_mse": baseline_mse, "shrinkage": shrinkage, "convergence": convergence,
    "entropy": entropy, "entropy_weights": entropy_weights, "clustering": clustering, "drift": drift,
    "gradient": gradient,
}  # fmt: skip


def read_tables(folder: Path) -> dict[str, pd.DataFrame]:
    """Every CSV of the folder by name.

    Raises:
        FileNotFoundError: there is none.
    """
    tables = {path.stem: pd.read_csv(path, keep_default_na=True) for path in sorted(folder.glob("*.csv"))}
    if not tables:
        raise FileNotFoundError(f"{folder} holds no table of the theory; `snakemake theory` makes them")
    return tables


def read_theorems(folder: Path) -> pd.DataFrame:
    """The table of T1 to T5, as `ebpo.theory.summary.theorems` wrote it.

    Raises:
        FileNotFoundError: it is missing.
        ValueError: a column is missing.
    """
    path = folder / "theorems.csv"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; `snakemake theory` makes it")
    frame = pd.read_csv(path)
    missing = [column for column in COLUMNS if column not in frame]
    if missing:
        raise ValueError(f"{path}: columns {missing} are missing")
    return frame


def write_theory_figures(tables: Path, out: Path) -> None:
    """Draws every figure: OUT/NAME.svg and OUT/NAME.png, from the CSV files in the folder `tables`."""
    read = read_tables(tables)
    for name, draw in _DRAW.items():
        with style():
            figure = draw(read)
        save(figure, out / name)


def copy_for_documentation(figures: Path, out: Path) -> None:
    """Copies of the PNG files for docs/theory.md, with 256 colours and at 70 % of their width, below 150 kB each."""
    for name in REPORT_FIGURES:
        with Image.open(figures / f"{name}.png") as image:
            width, height = (round(0.7 * side) for side in image.size)
            small = image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
        with atomic_path(out / f"{name}.png") as partial:
            small.quantize(256, dither=Image.Dither.NONE).save(partial, format="PNG", optimize=True)
