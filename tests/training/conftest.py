"""A tiny experiment's files for real training runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from transformers import AutoTokenizer

from ebpo.config import parse_config
from ebpo.problems.build import build
from ebpo.problems.record import write_problems
from ebpo.prompts import render, write_prompts


@pytest.fixture(scope="session")
def tiny(repository):
    return parse_config(yaml.safe_load((repository / "tests" / "workflow" / "tiny.yaml").read_text()))


@pytest.fixture(scope="session")
def problem_files(tiny, policy_folder, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    sets = build(tiny.data)
    tokenizer = AutoTokenizer.from_pretrained(policy_folder)
    for name, problems in (("train", sets.train), ("validation", sets.validation)):
        write_problems(folder / f"{name}.parquet", problems)
        rendered = {p.id: render(tokenizer, "plain", p.problem) for p in problems}
        write_prompts(folder / "prompts" / f"{name}.parquet", rendered)
    return folder
