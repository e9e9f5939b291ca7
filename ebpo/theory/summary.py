"""All simulations with their default sizes, the table of the five theorems, and the headline facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from ebpo.theory import baseline_mse, clustering, drift, entropy, gradient, penalty
from ebpo.theory.montecarlo import CONFIDENCE, Array, coverage
from ebpo.theory.priors import GROUP_SIZES

# Batches as in the demo; G as in the paper's main table.
PROMPTS = 32
SIZE = 4
HALF_LIFE = 128.0
TOTALS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6)
DRIFT_STEPS = 400
POLICIES = ("2 arms", "64 arms")


def simulate_all(replications: int, seed: int, tell: Callable[[str], None]) -> dict[str, pd.DataFrame]:
    """Every table by name.

    Args:
        replications: of the cheapest simulations; dearer ones take a fixed share of it.
        seed: of everything.
        tell: called with the name of each simulation before it runs.

    Raises:
        ValueError: fewer than 16 replications, for which an interval says nothing.
    """
    if replications < 16:
        raise ValueError(f"replications {replications}: at least 16 are needed for an interval")
    share = {part: max(replications // part, 8) for part in (2, 4, 8, 25)}
    tables: dict[str, pd.DataFrame] = {}
    tell("T1, T3: penalty of a group without success")
    tables["penalty"] = penalty.simulate(share[4], 4096, 4096, SIZE, seed)
    tables["saturated"] = penalty.saturated_batches(0.5, 16, SIZE)
    tell("T2: error of the baselines")
    tables["baseline_mse"] = baseline_mse.simulate(replications, 32, PROMPTS, seed)
    tables["shrinkage"] = baseline_mse.shrinkage_curves()
    tables["conditional_mse"] = baseline_mse.conditional_curves(SIZE)
    tables["counter_examples"] = baseline_mse.search_counter_examples()
    tables["convergence"] = baseline_mse.simulate_convergence(replications * 2, 128, PROMPTS, SIZE, seed)
    tables["short_history"] = baseline_mse.simulate_short_history(replications * 10, seed)
    tell("T4: entropy")
    tables["entropy_premises"] = entropy.premises(2048, (2, 4, 8, 16, 64), seed)
    tables["entropy_weights"] = entropy.weight_curves((2, SIZE, 16, 64))
    tables["entropy_one_step"] = entropy.one_step(share[4], 512, (SIZE, 16), seed)
    tables["entropy_training"] = entropy.train(share[25], 200, 64, SIZE, 0.2, 0.2, seed)
    tell("T5: clustering")
    tables["clustering_curves"], tables["clustering"] = clustering.simulate(
        share[8], 270, PROMPTS, SIZE, HALF_LIFE, seed
    )
    tables["clustering_known"] = clustering.simulate_known_priors(replications, 900, SIZE, seed)
    tables["clustering_topics"] = clustering.by_topic(replications, 400, SIZE, seed)
    tell("drift")
    tables["drift"], tables["drift_curves"] = drift.simulate(share[8], DRIFT_STEPS, PROMPTS, SIZE, TOTALS, seed)
    tables["half_life"] = half_lives(tables["drift"])
    tell("bias and variance of the gradient")
    tables["gradient"] = gradient.exact((2, 4, 8), seed)
    tables["gradient_simulated"] = gradient.simulate(share[4], 200, SIZE, seed)
    tables["gradient_history"] = gradient.bias_along_history(SIZE, seed)
    tables["theorems"] = theorems(tables)
    return tables


def half_lives(errors: pd.DataFrame) -> pd.DataFrame:
    """Recommended half-life per drift: the closed form, and the best of the grid by simulation and exactly.

    Args:
        errors: of `drift.simulate`.

    Returns:
        Rows of total (growth over the run), per_100_steps, recommended (h*, groups; inf without drift), best_simulated
        (of the grid), best_exact (least exact error late in the run), welford_best_at (groups, from where plain Welford
        falls behind), error_best and error_welford (squared, late in the run), baseline_gain (relative fall of the
        baseline's MSE from Welford to the best of the grid).
    """
    rows = []
    for total in TOTALS:
        mine = errors[errors.total == total]
        prior, baseline = (
            dict(zip(own.half_life.astype(float), own.simulated.astype(float), strict=True))
            for own in (mine[mine.quantity == quantity] for quantity in ("prior", "baseline"))
        )
        mu = drift.means_over_time(total, DRIFT_STEPS, 0.2)
        per_group = total / (DRIFT_STEPS - 1) / PROMPTS
        variance = float(drift.group_mean_variance(mu[-DRIFT_STEPS // 10 :], SIZE).mean())
        rows.append(
            {
                "total": total,
                "per_100_steps": 100 * total / (DRIFT_STEPS - 1),
                "recommended": drift.best_half_life(per_group, variance),
                "best_simulated": min(prior, key=lambda half_life: prior[half_life]),
                "best_exact": _best_exact(mu) if total else np.inf,
                "welford_best_at": drift.welford_best_at(per_group, variance),
                "error_best": min(prior.values()),
                "error_welford": prior[np.inf],
                "baseline_gain": 1 - min(baseline.values()) / baseline[np.inf],
            }
        )
    return pd.DataFrame(rows)


def _best_exact(means: Array) -> float:
    candidates = np.geomspace(8, 8192, 61)
    return float(candidates[np.argmin([drift.late_error(float(h), means, SIZE, PROMPTS) for h in candidates])])


def _pick(frame: pd.DataFrame, **values: Any) -> pd.Series:
    chosen = frame
    for column, value in values.items():
        near = np.isclose(chosen[column], value) if isinstance(value, float) else chosen[column] == value
        chosen = chosen[near]
    if len(chosen) != 1:
        raise ValueError(f"{values} picks {len(chosen)} rows of {list(frame.columns)}, not one")
    return chosen.iloc[0]


def theorems(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """T1 to T5, each with its analytic value, the simulated one, and whether the paper's claim holds as stated.

    The intervals are at 95 % for all rows together (Bonferroni), so `agree` may be read for the whole table.

    Returns:
        Rows of theorem, quantity, setting, analytic, simulated, low, high, agree (`yes`, `no`, `–` without a closed
        form), claim (whether, and when, the paper's statement holds).
    """
    saturated = _pick(tables["saturated"], share=0.0, completion="wrong")
    still = pd.Series({"analytic": 0.0, "simulated": saturated["normalised"], "standard_error": 0.0, "replications": 2})
    mse, step, known = tables["baseline_mse"], tables["entropy_one_step"], tables["clustering_known"]
    exact = {"group_size": SIZE, "moments": "known"}
    half = {"family": "fixed_concentration", "mean": 0.5}
    chosen: list[tuple[str, str, str, pd.Series, str]] = [
        ("T1", "raw advantage of an all-0 group", "mean 0.5, uniform pass rates",
         _pick(tables["penalty"], quantity="raw", **half), "holds"),
        ("T1", "its normalised advantage, mixed batch", "the same",
         _pick(tables["penalty"], quantity="normalised", **half), "holds; μ_glob cancels, S alone acts"),
        ("T1", "its normalised advantage, all groups saturated alike", "all 0", still,
         "fails: exactly 0 after the batch normalisation"),
        ("T2", "least MSE of linear shrinkage", "Beta(4, 4)",
         _pick(mse, prior="unimodal", estimator="oracle_linear", **exact), "holds for any prior, moments known"),
        ("T2", "MSE of EBPO as published", "Beta(4, 4)",
         _pick(mse, prior="unimodal", estimator="ebpo", **exact), "lower than GRPO's, not the optimum"),
        ("T2", "MSE of EBPO as published", "Beta(0.1, 0.1)",
         _pick(mse, prior="polarised", estimator="ebpo", **exact), "fails: GRPO's is lower (next row)"),
        ("T2", "MSE of GRPO's mean", "Beta(0.1, 0.1)",
         _pick(mse, prior="polarised", estimator="grpo", **exact), "σ²/G"),
        ("T3", "raw penalty at mean 0.9", "a + b fixed",
         _pick(tables["penalty"], quantity="raw", family="fixed_concentration", mean=0.9), "holds: S is constant"),
        ("T3", "raw penalty at mean 0.85", "τ² fixed",
         _pick(tables["penalty"], quantity="raw", family="fixed_tau2", mean=0.85), "largest near here"),
        ("T3", "raw penalty at mean 0.95", "τ² fixed",
         _pick(tables["penalty"], quantity="raw", family="fixed_tau2", mean=0.95),
         "fails: smaller than at 0.85, since S falls"),
        *(("T4", f"entropy change per {unit}, {label}", "Beta(0.5, 0.5), nats",
           _pick(step, prior="u_shaped", group_size=SIZE, algorithm=name, matching=matching), claim)
          for matching, unit in (("step_size", "learning rate"), ("update_norm", "update norm"))
          for name, label, claim in (
              ("grpo", "GRPO", "the reference"),
              ("ebpo", "EBPO", "fails: faster than GRPO's" if matching == "step_size" else "about GRPO's"))),
        ("T5", "Var(θ) = inside + between topics", "9 topics", _pick(known, quantity="total"), "holds"),
        ("T5", "E[Var(θ | topic)]", "9 topics", _pick(known, quantity="inside"), "holds"),
        ("T5", "MSE with one prior, optimal S", "9 topics", _pick(known, quantity="global"), "the reference"),
        ("T5", "MSE with a prior per topic, optimal S", "9 topics", _pick(known, quantity="cluster"), "holds"),
        ("T5", "MSE of EBPO as published, topic order", "9 topics, Welford",
         _pick(tables["clustering"], stream="topic", estimator="ebpo", quantity="mse").copy(),
         "fails: Welford is too slow to profit from the order"),
    ]  # fmt: skip
    level = 1 - (1 - CONFIDENCE) / len(chosen)
    rows = []
    for theorem, quantity, setting, line, claim in chosen:
        # The optimum of a single prior is no closed form for an ordered stream.
        analytic = np.nan if "topic order" in quantity else float(line["analytic"])
        half_width = float(stats.t.ppf((1 + level) / 2, line["replications"] - 1) * line["standard_error"])
        low, high = line["simulated"] - half_width, line["simulated"] + half_width
        agree = "–" if np.isnan(analytic) else "yes" if low - 1e-9 <= analytic <= high + 1e-9 else "no"
        rows.append(
            {
                "theorem": theorem, "quantity": quantity, "setting": setting, "analytic": analytic,
                "simulated": line["simulated"], "low": low, "high": high, "agree": agree, "claim": claim,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def facts(tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """The headline facts, for results/theory/facts.json; every number is in one of the tables."""
    mse = tables["baseline_mse"]
    known = mse[mse.moments == "known"].pivot(index=["prior", "group_size"], columns="estimator", values="analytic")
    known = known.reset_index()
    at_size = known[(known.group_size == SIZE) & (known.oracle_linear > 1e-12)]
    worse = known[known.ebpo > known.grpo * (1 + 1e-9)]
    convergence, short = tables["convergence"], tables["short_history"]
    summary = tables["clustering"]
    errors = summary[summary.quantity != "prior_error"]
    mses = _mapping(errors.stream + "/" + errors.estimator + "/" + errors.quantity, errors.simulated)
    prior_errors = summary[summary.quantity == "prior_error"]
    one, own = mses["random/ebpo/mse"], mses["random/cluster/mse"]
    separate = tables["clustering_known"]
    topics = (
        tables["clustering_topics"].pivot(index="topic_mean", columns="estimator", values="simulated").reset_index()
    )
    premises = tables["entropy_premises"]
    falling = premises[premises.cost > 0]
    decaying = falling[falling.group_size == SIZE]
    step = tables["entropy_one_step"]
    norms = (
        step[(step.matching == "update_norm") & step.prior.isin(falling.prior)]
        .pivot(index=["prior", "group_size"], columns="algorithm", values="analytic")
        .reset_index()
    )
    training = tables["entropy_training"]
    trained = training[training.step == training.step.max()]
    gradients = tables["gradient"]
    history = tables["gradient_history"]
    raw_before = history[(history["update"] == "before") & ~history["normalise"]]
    exact_rows = {
        "baseline_mse": mse[mse.moments == "known"],
        "clustering_known": separate,
        "clustering_topics": tables["clustering_topics"],
        "gradient_simulated": tables["gradient_simulated"],
        "drift": tables["drift"][tables["drift"].analytic.notna()],
    }
    return {
        "interval_coverage": {name: coverage(frame) for name, frame in exact_rows.items()},
        "t2_excess_over_optimum_at_g4": _mapping(at_size.prior, at_size.ebpo / at_size.oracle_linear - 1),
        "t2_published_over_grpo": _mapping(worse.prior + "/G=" + worse.group_size.astype(str), worse.ebpo / worse.grpo),
        "t2_counter_examples_found": len(tables["counter_examples"]),
        "t2_worst_of_search": tables["counter_examples"].iloc[0].to_dict(),
        "t2_fails_above_tau2_over_sigma2": {
            str(size): baseline_mse.worse_than_grpo_above(size) for size in GROUP_SIZES
        },
        "t2_overshrinks_above_tau2_over_sigma2": {
            str(size): baseline_mse.conservative_below(size) for size in GROUP_SIZES
        },
        "t2_short_history_worse": {
            "/".join(map(str, key)): f"{int((cell.low > 0).sum())} of {len(cell)} cells"
            for key, cell in _cells(short, ["prior", "estimator", "update"])
        },
        "t2_groups_until_within_5_percent": {
            "/".join(map(str, key)): _settled(cell)
            for key, cell in _cells(convergence, ["prior", "estimator", "update"])
            if cell.limit.iloc[0] > 1e-12
        },
        "t4_ebpo_over_grpo_entropy_decay_at_g4": _mapping(decaying.prior, decaying.actual),
        "t4_ebpo_over_grpo_entropy_decay": _mapping(
            falling.prior + "/G=" + falling.group_size.astype(str), falling.actual
        ),
        "t4_ebpo_over_grpo_entropy_decay_at_matched_norm": _mapping(
            norms.prior + "/G=" + norms.group_size.astype(str), norms.ebpo / norms.grpo
        ),
        "t4_entropy_after_training": _mapping(
            trained.matching + "/" + trained.algorithm + "/" + trained.quantity, trained.simulated
        ),
        "t4_claimed_bound_at_g4": _mapping(decaying.prior, decaying.claimed),
        "t4_mean_weight_of_grpo_at_g4": _mapping(decaying.prior, decaying.grpo_weight),
        "t4_mean_inverse_sigma_at_g4": _mapping(decaying.prior, decaying.inverse_sigma),
        "t5_mse": mses,
        "t5_prior_error": _mapping(prior_errors.stream + "/" + prior_errors.estimator, prior_errors.simulated),
        "t5_share_of_the_gain_of_a_prior_per_topic": {
            name: (one - mses[f"topic/{name}"]) / (one - own)
            for name in ("ebpo/mse", "ebpo/effective_mse", "half_life/mse", "half_life/effective_mse")
        },
        "t5_optimal_gain": 1
        - float(_pick(separate, quantity="cluster")["analytic"])
        / float(_pick(separate, quantity="global")["analytic"]),
        "t5_topics_where_one_prior_loses_to_grpo": topics[topics.ebpo > topics.grpo].topic_mean.tolist(),
        "half_life": [
            {str(key): (None if np.isinf(value) else float(value)) for key, value in line.items()}
            for line in tables["half_life"].to_dict("records")
        ],
        "gradient_noise_at_g4": {
            policy: _mapping(mine.estimator, mine.noise)
            for policy, mine in (
                (p, gradients[(gradients.policy == p) & (gradients.group_size == SIZE)]) for p in POLICIES
            )
        },
        "gradient_direction_error_of_raw_before": _mapping(raw_before.groups.astype(str), raw_before.direction_error),
    }


def _mapping(names: pd.Series, values: pd.Series) -> dict[str, float]:
    return dict(zip(names.astype(str), values.astype(float), strict=True))


def _cells(frame: pd.DataFrame, columns: list[str]) -> list[tuple[tuple[str, ...], pd.DataFrame]]:
    """The rows of each combination of values, in the order of appearance."""
    keys = frame[columns].drop_duplicates()
    return [(tuple(key), frame[(frame[columns] == key).all(axis=1)]) for key in keys.to_numpy().tolist()]


def _settled(cell: pd.DataFrame) -> float | None:
    """Groups after which the excess stays within 5 % of the limit; None if it never does in the record."""
    outside = (cell.simulated.abs() > 0.05 * cell.limit).to_numpy()
    if outside[-1]:
        return None
    first = 0 if not outside.any() else int(np.flatnonzero(outside)[-1]) + 1
    return float(cell.groups.iloc[first])
