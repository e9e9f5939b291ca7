"""Title and caption of each figure, for the report."""

from __future__ import annotations

from ebpo.config import ExperimentConfig, comparison_runs
from ebpo.config.clustering import DIFFICULTY_ORDERS

FIGURES = {
    "main": (
        "Main comparison",
        "Left: pass@1 on the validation problems during training, with 95 % intervals over training runs on these "
        "problems where there are several runs. Right: pass@1 of the checkpoints that the paper evaluates, averaged "
        "over the benchmarks, with 95 % intervals; open circles are single training runs; the dashed line is the base "
        "policy.",
    ),
    "curriculum": (
        "Curriculum",
        "Problems ordered from easy to hard: pass@1 of the final policies on each benchmark, with 95 % intervals.",
    ),
    "group_size": (
        "Group size",
        "pass@1, averaged over the benchmarks, against the completions per prompt, of the checkpoints that the paper "
        "evaluates, with 95 % intervals; the dashed line is the base policy.",
    ),
    "validation": (
        "Validation during training",
        "pass@1, pass@n and maj@n over n sampled completions per validation problem, at the main comparison's group "
        "size.",
    ),
    "efficiency": (
        "Sample efficiency",
        "pass@1 on the validation problems against the completions sampled so far, including those that dynamic "
        "sampling threw away. Dashed: half-way from the start to the best that any method reaches; a vertical mark "
        "where a method gets there.",
    ),
    "reward": ("Training reward", "Mean reward of the sampled completions of each step."),
    "grad_norm": ("Gradient norm", "Norm of the gradient before clipping, averaged over the updates of a step."),
    "entropy": ("Policy entropy", "Mean entropy of the policy's next-token distribution over the sampled tokens."),
    "kl_step": (
        "Change of the policy per step",
        "KL(π_t ‖ π_t+1) on the completions of step t. On the logarithmic axis a step without any change leaves a gap.",
    ),
    "prior": (
        "EBPO's prior and shrinkage",
        "The global mean μ_glob, the variances σ² and τ² from which EBPO derives its shrinkage S, and S itself.",
    ),
    "penalty": (
        "Advantage of a group without success",
        "Raw advantage of groups whose completions all failed, against the global mean. GRPO gives 0 at any mean. EBPO "
        "gives −S·μ_glob: the points are measured, one per training step that had such a group; the line is drawn at "
        "the median S of those steps, the band spans their smallest to largest S after the first success.",
    ),
}
CLUSTER_FIGURES = {
    "topics": (
        "Topics found",
        "Problems of each known topic and source (rows) in each topic found (columns); the shade is the share of the "
        "row. Where k was chosen, beside it the mean silhouette of every k that was tried.",
    ),
    "difficulty": (
        "Difficulty",
        "Problems by the pass rate of the base policy: as counted, and smoothed by a beta prior fitted to all of them. "
        "Dotted: limits of the difficulty buckets.",
    ),
}


def figure_names(config: ExperimentConfig) -> list[str]:
    """The figures of an experiment: `FIGURES`, without those of a curriculum or of group sizes if it has none."""
    runs = [run for comparison in config.comparisons.values() for run in comparison_runs(comparison)]
    absent = set()
    if not any(run.order in DIFFICULTY_ORDERS for run in runs):
        absent.add("curriculum")
    if len({run.group_size for run in runs}) == 1:
        absent.add("group_size")
    return [name for name in FIGURES if name not in absent]
