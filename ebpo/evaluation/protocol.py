"""The protocol of an evaluation: everything but the policy that decides a score. Two scores are comparable if theirs is
the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from ebpo.algorithms.settings import Settings
from ebpo.config import EvaluationJob
from ebpo.files import write_json


class Protocol(Settings):
    """How completions were sampled and, once they are, graded.

    Attributes:
        samples: completions per problem.
        temperature, top_p, max_new_tokens, seed: of sampling.
        template: prompt template.
        max_prompt_tokens: a longer prompt stops the evaluation.
        dtype, device: of the policy.
        engine: name and version of what sampled.
        problems: benchmark -> SHA-256 of its problem table.
        prompts: benchmark -> SHA-256 of its token ids, which hold the template's text and the tokenizer.
        grader: name and version of what graded; None as long as nothing is graded.
    """

    samples: int
    temperature: float
    top_p: float
    max_new_tokens: int
    seed: int
    template: str
    max_prompt_tokens: int
    dtype: str
    device: str
    engine: str
    problems: dict[str, str]
    prompts: dict[str, str]
    grader: str | None = None

    @property
    def digest(self) -> str:
        """Short hash of all of it; every score carries it."""
        return hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()[:12]

    def graded_by(self, grader: str, problems: Mapping[str, str]) -> Protocol:
        """The complete protocol.

        Args:
            grader: name and version.
            problems: benchmark -> SHA-256 of the problem table that the golds are read from.

        Raises:
            ValueError: a table is not the one that was sampled from.
        """
        for name in sorted({*self.problems, *problems}):
            sampled, found = self.problems.get(name), problems.get(name)
            if sampled != found:
                raise ValueError(
                    f"benchmark {name!r}: the completions were sampled from table {sampled}, the golds are of {found}; "
                    "sample again, or grade with the same table"
                )
        return self.model_copy(update={"grader": grader})


def sampling_protocol(
    job: EvaluationJob, engine: str, problems: Mapping[str, str], prompts: Mapping[str, str]
) -> Protocol:
    """The protocol of sampling; arguments as the attributes of `Protocol`."""
    evaluation = job.evaluation
    return Protocol(
        samples=evaluation.samples,
        temperature=evaluation.temperature,
        top_p=1.0,  # engines sample from the full distribution, see ebpo.rollouts.protocol.Sampling
        max_new_tokens=evaluation.max_new_tokens,
        seed=evaluation.seed,
        template=job.template,
        max_prompt_tokens=job.max_prompt_tokens,
        dtype=job.dtype,
        device=job.device,
        engine=engine,
        problems=dict(problems),
        prompts=dict(prompts),
    )


def write_protocol(path: Path, protocol: Protocol) -> None:
    """Writes a protocol and its digest (JSON)."""
    write_json(path, {"digest": protocol.digest, **protocol.model_dump()})


def read_protocol(path: Path) -> Protocol:
    """Reads what `write_protocol` wrote.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: it is no protocol.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        raw.pop("digest")
        return Protocol.model_validate(raw)
    except (json.JSONDecodeError, AttributeError, KeyError, ValidationError) as error:
        raise ValueError(f"{path}: not the protocol of an evaluation ({' '.join(str(error).split())})") from None
