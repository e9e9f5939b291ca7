"""Clusters are named by the words that set them apart."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ebpo.clustering.naming import cluster_names, typical_words, words


def test_words_leave_out_latex_commands_stop_words_and_numbers():
    assert words(r"Find the \frac{1}{2} Area of this triangle, $x = 12$") == ["area", "triangle"]


def test_words_of_all_clusters_are_less_typical_than_words_of_one():
    # Equal counts inside the first cluster; "number" is in both.
    first, second = typical_words([["prime number"], ["number circle"]])
    assert first == ["prime", "number"]
    assert second == ["circle", "number"]


def test_names_say_what_the_texts_are_about():
    fractions = ["Simplify the fraction 3/9. Give only the simplified fraction as your final answer."] * 3
    leap = ["Is 1996 a leap year?", "Tell me whether 1900 is a leap year."]
    assert cluster_names([fractions, leap]) == ["fraction_simplify", "leap_year"]


def test_clusters_with_the_same_typical_words_get_different_names():
    assert cluster_names([["prime number"], ["prime number"], ["prime number theory"]]) == [
        "prime_number",
        "prime_number_2",
        "theory_prime",
    ]


def test_a_cluster_without_words_has_a_name():
    assert cluster_names([["1 + 2"], ["3 * x"]]) == ["cluster", "cluster_2"]


@given(st.lists(st.lists(st.text("abcdefgh XYZ1\\", max_size=80), min_size=1, max_size=4), min_size=1, max_size=6))
def test_names_are_distinct_identifiers(clusters):
    names = cluster_names(clusters)
    assert len(set(names)) == len(clusters)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) for name in names)
