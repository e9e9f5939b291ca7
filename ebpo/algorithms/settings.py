"""The settings of every algorithm, on one screen. The defaults are the published ones.

Torch-free, so that a whole experiment can be validated before anything heavy is imported.
Sources: EBPO arXiv 2602.05165 (whose comparison setting also fixes the KL coefficient of the baselines);
GRPO arXiv 2402.03300; Dr. GRPO arXiv 2503.20783; DAPO arXiv 2503.14476; Clip-Cov and KL-Cov arXiv 2505.22617
with the values of the authors' scripts.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Aggregation = Literal["seq_mean_token_mean", "token_mean", "constant"]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(gt=0, le=1)]


class Settings(BaseModel):
    """Base of every configuration class: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PolicyLossSettings(Settings):
    """What every algorithm here has: a clipped surrogate, and a KL penalty to the initial policy.

    Attributes:
        clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high].
        kl_coef: weight of the k3 estimate of KL(policy || initial policy); 0 loads no reference model.
    """

    min_group_size: ClassVar[int] = 2
    aggregation: ClassVar[Aggregation] = "seq_mean_token_mean"

    clip_low: PositiveFloat = 0.2
    clip_high: PositiveFloat = 0.2
    kl_coef: NonNegativeFloat = 0.001


class GRPOSettings(PolicyLossSettings):
    """A = (r - mean) / (std + std_epsilon) inside the group, std with n - 1."""

    algorithm: Literal["grpo"] = "grpo"
    std_epsilon: PositiveFloat = 1e-6


class DrGRPOSettings(PolicyLossSettings):
    """A = r - mean inside the group; loss summed and divided by the configured maximal completion length."""

    aggregation: ClassVar[Aggregation] = "constant"

    algorithm: Literal["dr_grpo"] = "dr_grpo"


class DynamicSampling(Settings):
    """Sample more prompts until enough groups are neither all right nor all wrong.

    Attributes:
        max_rounds: rollout rounds per step at most; then the step trains on the groups that it has.
    """

    max_rounds: Annotated[int, Field(ge=1)] = 10


class Overlong(Settings):
    """Soft overlong punishment: 0 up to L - b, falling linearly to -penalty at L (b = buffer_fraction * L).

    Published: L = 20,480 tokens with a buffer of 4,096, a fraction of 0.2.
    """

    buffer_fraction: Fraction = 0.2
    penalty: NonNegativeFloat = 1.0


class DAPOSettings(PolicyLossSettings):
    """GRPO's advantage, clip-higher, token mean, dynamic sampling, soft overlong punishment, no KL."""

    aggregation: ClassVar[Aggregation] = "token_mean"

    algorithm: Literal["dapo"] = "dapo"
    clip_high: PositiveFloat = 0.28
    kl_coef: NonNegativeFloat = 0.0
    std_epsilon: PositiveFloat = 1e-6
    dynamic_sampling: DynamicSampling = DynamicSampling()
    overlong: Overlong = Overlong()


class EntropyMechSettings(PolicyLossSettings):
    """GRPO's advantage; tokens whose log-prob and advantage covary most are detached or KL-penalised.

    The authors' scripts set both clip ranges to 1 on purpose: the selection takes the ratio clip's place.

    Attributes:
        variant: clip_cov detaches `clip_cov_fraction` of the tokens, drawn from those with a covariance in
            [clip_cov_low, clip_cov_high]; kl_cov adds kl_cov_coef * |log ratio| on the `kl_cov_fraction` of
            tokens with the largest covariance.
    """

    aggregation: ClassVar[Aggregation] = "token_mean"

    algorithm: Literal["entropy_mech"] = "entropy_mech"
    variant: Literal["clip_cov", "kl_cov"] = "clip_cov"
    clip_low: PositiveFloat = 1.0
    clip_high: PositiveFloat = 1.0
    std_epsilon: PositiveFloat = 1e-6
    clip_cov_fraction: Fraction = 2e-4
    clip_cov_low: float = 1.0
    clip_cov_high: float = 5.0
    kl_cov_fraction: Fraction = 2e-3
    kl_cov_coef: NonNegativeFloat = 1.0

    @model_validator(mode="after")
    def _bounds(self) -> EntropyMechSettings:
        if self.clip_cov_low >= self.clip_cov_high:
            raise ValueError(f"clip_cov_low {self.clip_cov_low} must lie below clip_cov_high {self.clip_cov_high}")
        return self


class EBPOSettings(PolicyLossSettings):
    """Shrinkage of the group mean towards a running prior (paper, Algorithm 1), and its options.

    Attributes:
        within: variance of one reward: `total` over all rewards (Algorithm 1), `pooled` inside groups.
        between: variance of group means: `raw` (Algorithm 1), `debiased` max(Var - pooled/G, 0).
        scope: one prior for all prompts, or one per cluster (topic).
        half_life: None for plain Welford moments; n for moments that halve an observation's weight after n groups.
        prior: `gaussian` (Algorithm 1), or `beta_binomial`: V = (a + sum r) / (a + b + G).
        update: `before`: the batch enters the statistics that score it (Algorithm 1); `after`: it does not.
        normalise_epsilon: added to the batch's standard deviation of raw advantages.
    """

    min_group_size: ClassVar[int] = 1

    algorithm: Literal["ebpo"] = "ebpo"
    within: Literal["total", "pooled"] = "total"
    between: Literal["raw", "debiased"] = "raw"
    scope: Literal["global", "cluster"] = "global"
    half_life: PositiveFloat | None = None
    prior: Literal["gaussian", "beta_binomial"] = "gaussian"
    update: Literal["before", "after"] = "before"
    normalise_epsilon: PositiveFloat = 1e-6

    @model_validator(mode="after")
    def _combinations(self) -> EBPOSettings:
        if self.prior == "beta_binomial" and (self.within, self.between) != ("total", "raw"):
            raise ValueError(
                "prior beta_binomial has its own moments: within and between must keep their defaults (total, raw)"
            )
        return self


AlgorithmSettings = Annotated[
    GRPOSettings | DrGRPOSettings | DAPOSettings | EntropyMechSettings | EBPOSettings, Field(discriminator="algorithm")
]
