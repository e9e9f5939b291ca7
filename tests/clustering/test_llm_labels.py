"""An instruct model labels with the given names alone, by their exact probability, whatever else is in its batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ebpo.clustering.llm_labels import label_scores, load_labeller
from ebpo.clustering.topics import cluster
from ebpo.config import Labeller, Topics
from ebpo.config.clustering import NINE_DOMAINS
from ebpo.problems.record import Problem

DESCRIPTIONS = {"algebra": ["Equations"], "algebra_number_theory": ["Both"], "geometry": ["Triangles, circles"]}
PROBLEMS = ["Solve for x: x + 5 = 9", "Is 1996 a leap year?", "Calculate 3 + 4.", "Find the lcm of 4, 6 and 10. " * 4]
CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"


@pytest.fixture
def labeller(policy_folder):
    """The demo's policy: it knows nothing of topics, which is no matter here."""
    torch.set_num_threads(1)
    return load_labeller(Labeller(model=str(policy_folder)))


def scores(labeller, problems=PROBLEMS, batch_size=2, max_problem_tokens=1024):
    return label_scores(*labeller, problems, DESCRIPTIONS, batch_size=batch_size, max_problem_tokens=max_problem_tokens)


@pytest.mark.parametrize("chat", [None, CHAT], ids=["plain", "chat"])
def test_scores_are_the_log_probabilities_of_the_whole_answers(labeller, chat):
    model, tokenizer = labeller
    tokenizer.chat_template = chat
    topics = "\n".join(["- algebra: Equations", "- algebra number theory: Both", "- geometry: Triangles, circles"])
    text = (
        f"Which one of these topics does the problem belong to?\n{topics}\n\nProblem: {PROBLEMS[0]}\n\n"
        "Answer with the name of the topic alone."
    )

    def ids(part):
        return tokenizer(part, add_special_tokens=False)["input_ids"]

    prompt = ids(f"<user>{text}<a>") + ids("Topic:") if chat else ids(f"{text}\nTopic:")
    expected = []
    for name in ("algebra", "algebra number theory", "geometry"):
        answer = ids(f" {name}") + ([tokenizer.eos_token_id] if chat else ids("\n"))
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
        logp = torch.log_softmax(logits.double(), dim=-1)
        expected.append(float(logp[range(len(answer)), answer].sum()))
    assert scores(labeller)[0] == pytest.approx(expected, abs=1e-4)


def test_scores_do_not_depend_on_the_batch(labeller):
    expected = scores(labeller, batch_size=1)
    for size in (2, 3, 16):
        np.testing.assert_allclose(scores(labeller, batch_size=size), expected, atol=1e-4)
    np.testing.assert_allclose(scores(labeller, PROBLEMS[::-1])[::-1], expected, atol=1e-4)


def test_a_long_problem_is_cut(labeller):
    long, longer = "Calculate 3 + 4. " * 50, "Calculate 3 + 4. " * 60
    found = scores(labeller, [long, longer], max_problem_tokens=40)
    assert found[0] == pytest.approx(found[1], abs=1e-4)


def test_every_label_is_one_of_the_nine_names(policy_folder):
    problems = [Problem(str(i), text, "", "test", "", float("nan")) for i, text in enumerate(PROBLEMS)]
    found = cluster(problems, Topics(method="llm", llm=Labeller(model=str(policy_folder), batch_size=3)))
    assert set(found.topics) <= set(NINE_DOMAINS)
    assert (found.margins >= 0).all()


def test_a_model_that_cannot_be_had_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"topics.llm.model: .*nowhere"):
        load_labeller(Labeller(model=str(tmp_path / "nowhere")))
