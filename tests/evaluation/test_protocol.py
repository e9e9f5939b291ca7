from __future__ import annotations

import pytest

from ebpo.evaluation.protocol import Protocol, read_protocol, write_protocol

PROTOCOL = Protocol(
    samples=32, temperature=1.0, top_p=1.0, max_new_tokens=8, seed=0, template="plain", max_prompt_tokens=64,
    dtype="float32", device="cpu", engine="transformers 5", problems={"b": "01"}, prompts={"b": "02"},
)  # fmt: skip
CHANGES = {
    "samples": 16, "temperature": 0.9, "top_p": 0.9, "max_new_tokens": 9, "seed": 1, "template": "chat",
    "max_prompt_tokens": 65, "dtype": "bfloat16", "device": "cuda", "engine": "vllm 0", "problems": {"b": "03"},
    "prompts": {"b": "03"}, "grader": "g",
}  # fmt: skip


def test_every_part_changes_the_digest():
    assert set(CHANGES) == set(Protocol.model_fields)
    digests = {PROTOCOL.model_copy(update={key: value}).digest for key, value in CHANGES.items()}
    assert len(digests | {PROTOCOL.digest}) == len(CHANGES) + 1


def test_it_comes_back_from_its_file(tmp_path):
    write_protocol(tmp_path / "protocol.json", PROTOCOL)
    assert read_protocol(tmp_path / "protocol.json") == PROTOCOL


def test_another_file_is_refused(tmp_path):
    (tmp_path / "protocol.json").write_text('{"digest": "0", "samples": 1}')
    with pytest.raises(ValueError, match=r"protocol.json: not the protocol of an evaluation"):
        read_protocol(tmp_path / "protocol.json")


def test_golds_of_other_problems_are_refused():
    assert PROTOCOL.graded_by("g", {"b": "01"}).grader == "g"
    with pytest.raises(ValueError, match="benchmark 'b': the completions were sampled from table 01, the golds are of"):
        PROTOCOL.graded_by("g", {"b": "09"})
    with pytest.raises(ValueError, match="benchmark 'c'"):
        PROTOCOL.graded_by("g", {"b": "01", "c": "01"})
