"""docs/theory.md: every test and figure that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from PIL import Image

from ebpo.reporting.theory_figures import REPORT_FIGURES, copy_for_documentation


@pytest.fixture
def page(repository: Path) -> str:
    return (repository / "docs/theory.md").read_text()


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_test_that_the_page_names_exists(repository, page):
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(named) > 40
    missing = [f"{path}::{name}" for path, name in named if name not in functions(repository / path)]
    assert not missing


def test_no_test_is_named_in_another_way(page):
    # What the pattern above does not see would not be checked.
    assert len(re.findall(r"::test_", page)) == len(re.findall(r"`tests/[\w/]+\.py::test_\w+`", page))


def test_the_page_shows_the_documented_figures(repository, page):
    shown = re.findall(r"!\[[^\]]+\]\(theory/(\w+)\.png\)", page)
    assert sorted(shown) == sorted(REPORT_FIGURES)
    for name in shown:
        path = repository / "docs/theory" / f"{name}.png"
        assert path.stat().st_size < 150_000, path


def test_copies_for_the_page_keep_their_shape(tmp_path):
    (tmp_path / "figures").mkdir()
    for name in REPORT_FIGURES:
        Image.new("RGB", (200, 100), "white").save(tmp_path / "figures" / f"{name}.png")
    copy_for_documentation(tmp_path / "figures", tmp_path / "out")
    assert sorted(path.stem for path in (tmp_path / "out").iterdir()) == sorted(REPORT_FIGURES)
    with Image.open(tmp_path / "out/penalty.png") as image:
        assert image.size == (140, 70)
