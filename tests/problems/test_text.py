from __future__ import annotations

import pytest

from ebpo.problems.text import ngrams, normalise, numbers, words


def test_case_space_and_unicode_forms_are_normalised():
    assert normalise("  What\n is  １＋1? ") == "what is 1+1?"


@pytest.mark.parametrize(
    "text",
    ["Find $x+1$.", "find \\(x + 1\\)", "Find  $$x\\,+\\,1$$ .", "\\text{Find } \\left{x+1\\right}", "Find {x} + {1}?"],
)
def test_typesetting_does_not_change_the_words(text):
    assert words(text) == ["find", "x", "+", "1"]


def test_numbers_commands_and_operators_are_words():
    assert words(r"$\dfrac{12}{3.5} - \sin x < 7$") == ["\\frac", "12", "3.5", "-", "\\sin", "x", "<", "7"]


def test_a_chinese_character_is_a_word():
    assert words("求x的值") == ["求", "x", "的", "值"]


def test_numbers_are_found_in_figures_and_in_letters():
    assert numbers(words("Three of 12 boys, twenty girls and a stone")) == ("three", "12", "twenty")


def test_ngrams_are_all_runs_and_a_short_text_is_one():
    assert ngrams(["a", "b", "c"], 2) == {"a b", "b c"}
    assert ngrams(["a", "b"], 3) == {"a b"}
