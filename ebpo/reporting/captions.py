"""Title and caption of each figure, for the report."""

from __future__ import annotations

FIGURES = {
    "main": (
        "Main comparison",
        "Left: pass@1 on the validation problems during training. Right: pass@1 of the final policies, averaged over "
        "the benchmarks, with standard errors; the dashed line is the base policy.",
    ),
    "validation": (
        "Validation during training",
        "pass@1, pass@n and maj@n over n sampled completions per validation problem.",
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
