"""Claims about methods: scores on the benchmarks, and training curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from ebpo.config import ExperimentConfig
from ebpo.evaluation.intervals import t_interval
from ebpo.evaluation.paired import PairedDifference, holm, p_value, paired_difference
from ebpo.reporting.claim import Claim, in_points, verdict_of
from ebpo.reporting.labels import method_label, order_label
from ebpo.reporting.paper import paper_model, paper_value
from ebpo.reporting.rates import experiment_policies, main_group_size, paired_strata, shared_seeds
from ebpo.reporting.runs import Run
from ebpo.reporting.scores import AVERAGE, CHECKPOINTS, Checkpoint, Policy, paper_checkpoint

# Accuracy: (name, method and order that should win, method and order that it is compared with).
_ACCURACY = (
    ("better_than_grpo", ("ebpo", "topic"), ("grpo", "topic")),
    ("better_than_dr_grpo", ("ebpo", "topic"), ("dr_grpo", "topic")),
    ("better_than_dapo", ("ebpo", "topic"), ("dapo", "topic")),
    ("better_than_entropy_mech", ("ebpo", "topic"), ("entropy_mech", "topic")),
    ("topic_over_shuffled", ("ebpo", "topic"), ("ebpo", "shuffle")),
    ("curriculum_over_grpo", ("ebpo", "difficulty"), ("grpo", "difficulty")),
)
# Training curves, EBPO over GRPO: (name, metric, what the paper says, sign of log(EBPO / GRPO) that supports it).
_CURVES = (
    ("gradient_norm", "grad_norm", "gradient norm is lower than GRPO's", -1),
    ("step_kl", "kl_step", "KL between successive policies stays bounded, below GRPO's", -1),
    ("entropy", "entropy", "entropy stays higher than GRPO's", 1),
)


def accuracy_claims(config: ExperimentConfig, model: str, rates: pd.DataFrame, paper: pd.DataFrame) -> list[Claim]:
    """Claims about pass@1, macro-averaged over the benchmarks, at the main comparison's group size, and the claim that
    the gain over GRPO is larger in small groups: its difference between the smallest and the largest group size.

    Verdicts come from the checkpoint that the paper evaluates; the other one is shown beside it."""
    known = {policy._replace(seeds=()): policy for policy in experiment_policies(config)}
    size, benchmarks = main_group_size(config), config.evaluation.benchmarks
    rows: list[tuple[Claim, PairedDifference | None]] = []
    for name, winner, other in _ACCURACY:
        checkpoint = paper_checkpoint(winner[1])
        wanted = [Policy(model, method, order, size, (), checkpoint) for method, order in (winner, other)]
        claim = Claim(
            name,
            f"{_title(wanted[0])} scores higher than {_title(wanted[1])}",
            _paper_difference(paper, wanted[0], wanted[1]),
            "benchmarks",
            f"{model}, G = {size}, {checkpoint} checkpoint",
            "points",
        )
        found = {
            which: _compare(rates, benchmarks, *(known.get(policy._replace(checkpoint=which)) for policy in wanted))
            for which in CHECKPOINTS
        }
        rows.append((replace(claim, also=_otherwise(found, checkpoint)), found[checkpoint]))
    small = {name: _small_groups(model, known, rates, benchmarks, paper, name) for name in CHECKPOINTS}
    claim, difference = small["best"]
    differences = {name: found for name, (_, found) in small.items()}
    rows.append((replace(claim, also=_otherwise(differences, "best")), difference))
    adjusted = holm({claim.claim: found.p for claim, found in rows if found is not None})
    return [_judged(claim, difference, adjusted.get(claim.claim)) for claim, difference in rows]


def _otherwise(found: Mapping[Checkpoint, PairedDifference | None], decisive: Checkpoint) -> str:
    """The difference at the other checkpoint in words; "" if there is none."""
    return "; ".join(
        f"{name} checkpoint {in_points(100 * other.mean, 100 * other.low, 100 * other.high)}"
        for name, other in found.items()
        if name != decisive and other is not None
    )


def _compare(
    rates: pd.DataFrame, benchmarks: Sequence[str], a: Policy | None, b: Policy | None
) -> PairedDifference | None:
    """a - b on their common seeds; None if one of them is not in the experiment, or they have no seed in common."""
    if a is None or b is None or not set(a.seeds) & set(b.seeds):
        return None
    of_a, of_b = paired_strata(rates, shared_seeds(a, b), benchmarks)
    return paired_difference([x for _, x in of_a.values()], [x for _, x in of_b.values()])


def _small_groups(
    model: str,
    known: Mapping[Policy, Policy],
    rates: pd.DataFrame,
    benchmarks: Sequence[str],
    paper: pd.DataFrame,
    checkpoint: Checkpoint,
) -> tuple[Claim, PairedDifference | None]:
    pairs = {}
    for policy in known.values():
        other = known.get(policy._replace(method="grpo", seeds=()))
        wanted = (model, "ebpo", "topic", checkpoint)
        if (policy.model, policy.method, policy.order, policy.checkpoint) == wanted and other and policy.group_size:
            pairs[policy.group_size] = (policy, other)
    sizes = sorted(pairs)
    theirs = [
        f"G = {g}: {text}"
        for g in (4, 8, 16, 32)
        if (text := _paper_difference(paper, Policy(model, "ebpo", "topic", g), Policy(model, "grpo", "topic", g)))
    ]
    setting = f"G = {sizes[0]} against {sizes[-1]}" if len(sizes) > 1 else "one group size"
    claim = Claim(
        "gain_in_small_groups",
        "The gain over GRPO is larger in small groups",
        "; ".join(theirs),
        "benchmarks",
        f"{model}, {setting}, {checkpoint} checkpoint",
        "points",
    )
    if len(sizes) < 2:
        return claim, None
    runs = [*pairs[sizes[0]], *pairs[sizes[-1]]]
    seeds = tuple(sorted(set.intersection(*(set(policy.seeds) for policy in runs))))
    if not seeds:
        return claim, None
    found = paired_strata(rates, [policy._replace(seeds=seeds) for policy in runs], benchmarks)
    small_a, small_b, large_a, large_b = ([x for _, x in own.values()] for own in found)
    small = [x - y for x, y in zip(small_a, small_b, strict=True)]
    large = [x - y for x, y in zip(large_a, large_b, strict=True)]
    return claim, paired_difference(small, large)


def _judged(claim: Claim, difference: PairedDifference | None, p_holm: float | None) -> Claim:
    if difference is None or p_holm is None:
        return replace(claim, reason="the experiment has no such runs with a seed in common")
    measured, low, high = (100 * x for x in (difference.mean, difference.low, difference.high))
    verdict, reason = verdict_of(measured, p_holm, difference.seeds, high)
    return replace(
        claim, measured=measured, low=low, high=high, p=difference.p, p_holm=p_holm, seeds=difference.seeds,
        n=difference.problems, verdict=verdict, reason=reason,
    )  # fmt: skip


def curve_claims(config: ExperimentConfig, model: str, runs: Sequence[Run]) -> list[Claim]:
    """Claims about training curves, in the main comparison's group size and topic order. The unit is the run: the mean
    over all steps, as a ratio EBPO / GRPO, paired by seed; the interval is Student's t of its logarithm over seeds."""
    size = main_group_size(config)
    rows: list[Claim] = []
    signs: dict[str, int] = {}
    for name, metric, statement, sign in _CURVES:
        ratios, steps = _log_ratios(runs, model, size, metric)
        claim = Claim(name, f"EBPO's {statement}", "", "training curves", f"{model}, topic order, G = {size}", "ratio")
        signs[name] = sign
        if not len(ratios):
            claim = replace(claim, reason="the experiment has no such runs with a seed in common")
        elif len(ratios) == 1:
            _, reason = verdict_of(0, 1, 1)
            claim = replace(claim, measured=float(np.exp(ratios[0])), seeds=1, n=steps, reason=reason)
        else:
            interval = t_interval(ratios)  # the seeds are what is drawn
            p = p_value(interval.mean, interval.se, interval.df) if interval.se > 0 else 1.0
            measured, low, high = (float(np.exp(x)) for x in (interval.mean, interval.low, interval.high))
            claim = replace(claim, measured=measured, low=low, high=high, p=p, seeds=len(ratios), n=steps)
        rows.append(claim)
    adjusted = holm({claim.claim: claim.p for claim in rows if claim.p is not None})
    judged = []
    for claim in rows:
        if claim.claim in adjusted and claim.measured is not None and claim.seeds is not None:
            p_holm = adjusted[claim.claim]
            verdict, reason = verdict_of(signs[claim.claim] * float(np.log(claim.measured)), p_holm, claim.seeds)
            claim = replace(claim, p_holm=p_holm, verdict=verdict, reason=reason)
        judged.append(claim)
    return judged


def _log_ratios(runs: Sequence[Run], model: str, size: int, metric: str) -> tuple[np.ndarray, int]:
    """log(mean of EBPO / mean of GRPO) per seed, over the steps that both recorded, and the number of those steps."""
    found: dict[str, dict[int, Run]] = {"ebpo": {}, "grpo": {}}
    for run in runs:
        if (run.id.model, run.id.order, run.id.group_size) == (model, "topic", size) and run.id.method in found:
            found[run.id.method][run.id.seed] = run
    ratios, steps = [], 0
    for seed in sorted(set(found["ebpo"]) & set(found["grpo"])):
        curves = pd.concat([found[method][seed].series(metric) for method in ("ebpo", "grpo")], axis=1).dropna()
        ours, theirs = curves.mean()
        if ours > 0 and theirs > 0:
            ratios.append(float(np.log(ours / theirs)))
            steps += len(curves)
    return np.array(ratios), steps


def _title(policy: Policy) -> str:
    return f"{method_label(policy.method)} ({order_label(policy.order)})"


def _paper_difference(paper: pd.DataFrame, a: Policy, b: Policy) -> str:
    """The paper's own difference on its average, or on the benchmarks for which it states a gain; "" if unknown."""
    model = paper_model(paper, a.model)
    of_a, of_b = paper_value(paper, a, AVERAGE), paper_value(paper, b, AVERAGE)
    if of_a is not None and of_b is not None:
        return f"{of_a - of_b:+.2f} points ({model}, average)"
    if (a.order, b.order, b.method) == ("topic", "shuffle", a.method):
        shared = [
            (x, y)
            for name in ("math500", "aime24", "aime25", "amc23", "olympiad")
            if (x := paper_value(paper, a, name)) is not None and (y := paper_value(paper, b, name)) is not None
        ]
        return f"{np.mean([x - y for x, y in shared]):+.2f} points ({model}, average)" if shared else ""
    gains = [
        f"{gain:+.2f} on {name}"
        for name in ("aime24", "aime25")
        if b.method == "grpo" and (gain := paper_value(paper, a, name, "gain_over_grpo")) is not None
    ]
    return f"{', '.join(gains)} ({model})" if gains else ""
