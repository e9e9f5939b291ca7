"""Names for clusters: their most typical words."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

_COMMAND = re.compile(r"\\[a-zA-Z]+")
_WORD = re.compile(r"[a-z]{3,18}")
# Words of the instruction, not of the matter.
_STOP = ENGLISH_STOP_WORDS | {"answer", "final", "following", "given", "problem", "state"}
_LONGEST = 36  # leaves room for the number of a name that occurs twice; see Identifier


def words(text: str) -> list[str]:
    """Lower-case words of three letters and more, without LaTeX commands and stop words, in order."""
    return [word for word in _WORD.findall(_COMMAND.sub(" ", text).lower()) if word not in _STOP]


def typical_words(clusters: Sequence[Sequence[str]]) -> list[list[str]]:
    """The words of each cluster's texts, most typical first.

    Class-based TF-IDF (Grootendorst, arXiv 2203.05794): with tf(w, c) the share of w among the words of cluster c,
    tf(w) its count in all clusters and A the mean number of words of a cluster, the score is
    tf(w, c) log(1 + A / tf(w)). Words of equal score come as they first occur.
    """
    counts = [Counter(word for text in texts for word in words(text)) for texts in clusters]
    total: Counter[str] = sum(counts, Counter())
    mean = total.total() / len(clusters)

    def ranked(count: Counter[str]) -> list[str]:
        size = count.total()
        # Rounded: equal scores must tie however they were added up. A Counter iterates in order of first occurrence.
        score = {word: round(n / size * math.log(1 + mean / total[word]), 12) for word, n in count.items()}
        return sorted(count, key=lambda word: -score[word])

    return [ranked(count) for count in counts]


def cluster_names(clusters: Sequence[Sequence[str]]) -> list[str]:
    """A distinct name for each cluster of texts: its two most typical words, more where two would agree.

    Names are valid identifiers: lower case, joined by underscores, at most 40 characters.
    """
    names: list[str] = []
    for ranked in typical_words(clusters):
        chosen: list[str] = []
        for word in ranked:
            # "simplify" and "simplified" say the same.
            if any(word[:5] == other[:5] for other in chosen):
                continue
            if len("_".join([*chosen, word])) > _LONGEST:
                break
            chosen.append(word)
            if len(chosen) >= 2 and "_".join(chosen) not in names:
                break
        name = base = "_".join(chosen) or "cluster"
        number = 2
        while name in names:
            name, number = f"{base}_{number}", number + 1
        names.append(name)
    return names
