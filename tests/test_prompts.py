from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ebpo.problems.record import Problem, write_problems
from ebpo.prompts import (
    TEMPLATES,
    prompts_digest,
    read_prompts,
    render,
    render_set,
    tokenizer_digest,
    write_prompts,
)

CHAT = "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}[assistant]"


@pytest.fixture(scope="module")
def demo(policy_folder: Path) -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(policy_folder)


def character_tokenizer(chat_template: str | None = CHAT) -> PreTrainedTokenizerFast:
    """One token per ASCII character with its code as id, `<s>` (128) before every text, as Llama's tokenizer has it."""
    vocabulary = {chr(code): code for code in range(128)} | {"<s>": 128}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 128)])
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")
    made.chat_template = chat_template
    return made


def text_of(ids: list[int]) -> str:
    return "".join("<s>" if i == 128 else chr(i) for i in ids)


def test_plain_ids_of_the_committed_policy_are_pinned(demo):
    assert render(demo, "plain", "What is 3 + 4?") == [56, 73, 285, 381, 286, 20, 378, 21, 32, 200]


def test_chat_ids_are_pinned():
    text = "<s>[user]1+1?\n\nPut your final answer within \\boxed{}.[assistant]"
    ids = render(character_tokenizer(), "chat", "1+1?")
    assert ids == [128, *map(ord, text.removeprefix("<s>"))]


def test_dapo_ids_are_pinned():
    text = (
        "<s>[user]Solve the following math problem step by step. The last line of your response should be of the form "
        "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n1+1?\n\n"
        'Remember to put your answer on its own line after "Answer:".[assistant]'
    )
    assert text_of(render(character_tokenizer(), "dapo", "1+1?")) == text


def test_examples_are_earlier_turns():
    text = (
        "<s>[user]Calculate 4 + 3.[assistant]4 + 3 = 7. \\boxed{7}"
        "[user]How many legs do 2 cats have?[assistant]2 * 4 = 8. \\boxed{8}[user]1+1?[assistant]"
    )
    assert text_of(render(character_tokenizer(), "chat_examples", "1+1?")) == text


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_prompt_has_exactly_one_beginning_of_sequence(template):
    ids = render(character_tokenizer(), template, "1+1?")
    assert [n for n, i in enumerate(ids) if i == 128] == [0]


def test_a_tokenizer_without_beginning_of_sequence_gets_none(demo):
    assert demo.bos_token_id is None
    assert demo.decode(render(demo, "plain", "3 + 4")) == "3 + 4\n"


def test_a_question_may_contain_braces_and_the_placeholder():
    assert "x {problem} {0} \\boxed{y}" in text_of(render(character_tokenizer(), "chat", "x {problem} {0} \\boxed{y}"))


def test_a_chat_template_that_writes_the_date_gets_a_fixed_one():
    today = "{% set date_string = strftime_now('%d %b %Y') %}"
    dated = f"{{% if date_string is not defined %}}{today}{{% endif %}}{{{{ date_string }}}}"
    assert text_of(render(character_tokenizer(dated), "chat", "1+1?")) == "26 Jul 2024"


def test_a_chat_without_a_chat_template_is_refused_with_what_is_allowed(demo):
    with pytest.raises(ValueError, match=r"template: 'dapo' needs a tokenizer with a chat template; .*\['plain'\]"):
        render(demo, "dapo", "1+1?")


def test_a_prompt_table_survives_its_file(tmp_path):
    prompts = {"b": [1, 2], "a": [3]}
    write_prompts(tmp_path / "p.parquet", prompts)
    assert list(read_prompts(tmp_path / "p.parquet").items()) == [("b", [1, 2]), ("a", [3])]
    assert pq.read_table(tmp_path / "p.parquet")["tokens"].to_pylist() == [2, 1]


def test_a_wrong_prompt_table_is_named(tmp_path):
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "p.parquet")
    with pytest.raises(ValueError, match=r"p.parquet: columns \['token_ids', 'tokens'\] are missing"):
        read_prompts(tmp_path / "p.parquet")


def test_the_digest_tells_where_one_prompt_ends():
    assert prompts_digest({"a": [1], "b": [2]}) != prompts_digest({"a": [1, 2]})
    assert prompts_digest({"a": [1], "b": [2]}) != prompts_digest({"b": [2], "a": [1]})


def test_the_tokenizer_digest_depends_on_tokenizer_files_alone(tmp_path):
    character_tokenizer().save_pretrained(tmp_path)
    digest = tokenizer_digest(tmp_path)
    (tmp_path / "model.safetensors").write_text("weights")
    assert tokenizer_digest(tmp_path) == digest
    character_tokenizer(CHAT + "!").save_pretrained(tmp_path)
    assert tokenizer_digest(tmp_path) != digest


def test_only_training_may_lose_long_prompts(demo):
    problems = {"a": "3 + 4", "b": "3 + 4 + 5 + 6"}
    limit = len(render(demo, "plain", "3 + 4"))
    rendered = render_set(demo, "plain", problems, limit, may_drop=True)
    assert rendered.prompts == {"a": render(demo, "plain", "3 + 4")}
    assert rendered.facts["too_long"] == {"b": len(render(demo, "plain", "3 + 4 + 5 + 6"))}
    assert (rendered.facts["problems"], rendered.facts["prompts"], rendered.facts["longest"]) == (2, 1, limit)
    assert rendered.facts["example"] == "3 + 4\n"
    with pytest.raises(ValueError, match=rf"1 prompts exceed training.max_prompt_tokens {limit}, the longest is b"):
        render_set(demo, "plain", problems, limit, may_drop=False)


def test_a_set_without_any_prompt_left_is_refused(demo):
    with pytest.raises(ValueError, match=r"no prompt has at most training.max_prompt_tokens 1 tokens"):
        render_set(demo, "plain", {"a": "3 + 4"}, 1, may_drop=True)


def run_script(monkeypatch, repository: Path, folder: Path, limit: int) -> None:
    (folder / "job.yaml").write_text(yaml.safe_dump({"template": "chat", "max_prompt_tokens": limit}))
    character_tokenizer().save_pretrained(folder / "policy")
    for name, text in (("train", "1+1?"), ("validation", "2+2?"), ("amc", "3+3+3?")):
        write_problems(folder / f"{name}.parquet", [Problem(f"{name}-0", text, "2", "s", "", 1.0)])
    monkeypatch.chdir(folder)
    files = ["--train", "train.parquet", "--validation", "validation.parquet", "--benchmarks", "amc.parquet"]
    monkeypatch.setattr(
        sys, "argv", ["prompts.py", "--config", "job.yaml", "--policy", "policy", *files, "--out", "out"]
    )
    runpy.run_path(str(repository / "scripts" / "prompts.py"), run_name="__main__")


def test_the_script_writes_a_table_per_set_and_a_summary(monkeypatch, repository, tmp_path):
    run_script(monkeypatch, repository, tmp_path, 100)
    for name in ("train", "validation", "benchmarks/amc"):
        assert list(read_prompts(tmp_path / "out" / f"{name}.parquet")) == [f"{name.split('/')[-1]}-0"]
    summary = json.loads((tmp_path / "out" / "prompts.json").read_text())
    assert summary["template"] == {"name": "chat", "text": TEMPLATES["chat"].text, "chat": True, "examples": []}
    assert summary["tokenizer_sha256"] == tokenizer_digest(tmp_path / "policy")
    assert list(summary["sets"]) == ["train", "validation", "benchmarks/amc"]


def test_the_script_refuses_a_long_benchmark_prompt_in_one_line(monkeypatch, repository, tmp_path, capsys):
    limit = len(render(character_tokenizer(), "chat", "1+1?"))
    with pytest.raises(SystemExit):
        run_script(monkeypatch, repository, tmp_path, limit)
    error = f"error: amc.parquet: 1 prompts exceed training.max_prompt_tokens {limit}, the longest is amc-0 with"
    assert capsys.readouterr().err.splitlines()[-1].startswith(error)
