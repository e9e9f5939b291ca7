"""Completions for difficulty: no shard, kill or cache changes them, and none is sampled twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ebpo.clustering import completions
from ebpo.clustering.completions import Source, blocks_of, sample_blocks
from ebpo.rollouts.protocol import Completion, Sampling

PROMPTS = {f"p{i}": [1, i, 2] for i in range(23)}
SOURCE = Source("0" * 64, "toy", "float32", 2, Sampling(1.0, 8, 5))


class Toy:
    """Completions that tell all that they may depend on; counts the prompts that it is asked for."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.asked = 0
        self.fail_after = fail_after

    def generate(
        self, prompt_ids: Sequence[Sequence[int]], n: int, sampling: Sampling, keys: Sequence[int] | None = None
    ) -> list[list[Completion]]:
        if self.fail_after is not None and self.asked >= self.fail_after:
            raise KeyboardInterrupt
        self.asked += len(prompt_ids)
        assert keys is not None
        return [
            [Completion([ids[1], k], f"{key} {sampling.seed} {k}", "stop") for k in range(n)]
            for ids, key in zip(prompt_ids, keys, strict=True)
        ]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(completions, "BLOCK", 4)


def sample(cache, toy, shard=0, shards=1, prompts=PROMPTS, source=SOURCE):
    found = {}
    for block in sample_blocks(blocks_of(prompts, shard, shards), lambda: toy, source, cache):
        found |= block
    return found


@pytest.mark.parametrize("shards", [1, 2, 3, 6, 9])
def test_completions_do_not_depend_on_the_number_of_shards(tmp_path, shards):
    expected = sample(tmp_path / "whole", Toy())
    parts = [sample(tmp_path / "parts", Toy(), shard, shards) for shard in range(shards)]
    assert sum(map(len, parts)) == len(PROMPTS)
    assert {i: group for part in parts for i, group in part.items()} == expected


def test_a_second_experiment_samples_nothing(tmp_path):
    first = sample(tmp_path, Toy())
    toy = Toy()
    assert sample(tmp_path, toy, prompts=dict(PROMPTS)) == first
    assert toy.asked == 0


def test_an_engine_is_loaded_only_where_something_is_missing(tmp_path):
    sample(tmp_path, Toy())

    def engine():
        raise AssertionError("loaded")

    assert len(list(sample_blocks(blocks_of(PROMPTS, 0, 1), engine, SOURCE, tmp_path))) == 6


def test_an_interrupted_shard_keeps_its_whole_blocks(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        sample(tmp_path, Toy(fail_after=12))
    toy = Toy()
    assert sample(tmp_path, toy) == sample(tmp_path / "whole", Toy())
    assert toy.asked == 23 - 12


@pytest.mark.parametrize(
    "other",
    [
        replace(SOURCE, weights="1" * 64),
        replace(SOURCE, engine="vllm"),
        replace(SOURCE, dtype="bfloat16"),
        replace(SOURCE, rollouts=3),
        replace(SOURCE, sampling=Sampling(0.9, 8, 5)),
        replace(SOURCE, sampling=Sampling(1.0, 9, 5)),
        replace(SOURCE, sampling=Sampling(1.0, 8, 6)),
    ],
    ids=["weights", "engine", "dtype", "rollouts", "temperature", "budget", "seed"],
)
def test_what_completions_depend_on_names_them_anew(tmp_path, other):
    block = dict(list(PROMPTS.items())[:4])
    assert other.digest(block) != SOURCE.digest(block)


def test_another_prompt_names_a_block_anew():
    block = dict(list(PROMPTS.items())[:4])
    assert SOURCE.digest({**block, "p0": [1, 0, 3]}) != SOURCE.digest(block)


def test_a_file_with_other_completions_is_refused(tmp_path):
    sample(tmp_path, Toy())
    first, second = (tmp_path / f"{SOURCE.digest(block)}.parquet" for block in blocks_of(PROMPTS, 0, 1)[:2])
    first.write_bytes(second.read_bytes())
    with pytest.raises(ValueError, match="holds other completions than its name says"):
        sample(tmp_path, Toy())


def test_a_shard_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="shard 2 is not one of 2"):
        blocks_of(PROMPTS, 2, 2)
