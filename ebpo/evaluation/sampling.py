"""Samples completions of a policy on every benchmark; grading is a step of its own, so it can be redone alone."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import pandas as pd

from ebpo.config import Evaluation
from ebpo.problems.record import Problem
from ebpo.prompts import Template, render_all
from ebpo.rollouts.protocol import Sampling
from ebpo.rollouts.transformers_engine import TransformersRollouts
from ebpo.seeds import derive_seed

log = logging.getLogger(__name__)


def sample_benchmarks(
    benchmarks: Mapping[str, Sequence[Problem]],
    rollouts: TransformersRollouts,
    settings: Evaluation,
    template: Template,
    max_prompt_tokens: int,
) -> pd.DataFrame:
    """One row per completion: benchmark, problem_id, sample, completion, tokens, finish_reason."""
    rows = []
    for name, problems in benchmarks.items():
        pairs = [(p.id, p.problem) for p in problems]
        prompt_ids = render_all(rollouts.tokenizer, template, pairs, max_prompt_tokens)
        # Every policy is sampled with the same seeds: paired differences lose the noise of the sampler's seed.
        seed = derive_seed("evaluation", settings.seed, name)
        groups = rollouts.generate(
            prompt_ids, settings.samples, Sampling(settings.temperature, settings.max_new_tokens, seed)
        )
        for problem, group in zip(problems, groups, strict=True):
            for number, completion in enumerate(group):
                rows.append(
                    (name, problem.id, number, completion.text, len(completion.token_ids), completion.finish_reason)
                )
        log.info("%s: %d problems, %d completions each", name, len(problems), settings.samples)
    return pd.DataFrame(rows, columns=["benchmark", "problem_id", "sample", "completion", "tokens", "finish_reason"])
