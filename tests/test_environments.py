"""The environments of the rules hold what pyproject.toml asks for, in the versions of envs/requirements.txt."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ENVIRONMENTS = ["cpu", "gpu", "report"]
# Run by the interpreter that runs Snakemake, never inside a rule's environment.
WORKFLOW_ONLY = {"snakemake"}


def exact_pins(lines: list[str]) -> dict[str, str]:
    """Canonical name -> version; a line that pins no exact version fails."""
    pins = {}
    for line in lines:
        requirement = Requirement(line)
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", line
        pins[canonicalize_name(requirement.name)] = specifier.version
    return pins


@pytest.fixture(scope="module")
def locked(repository) -> dict[str, str]:
    lines = (repository / "envs" / "requirements.txt").read_text().splitlines()
    return exact_pins([line for line in lines if line and not line.startswith("#")])


@pytest.fixture(scope="module")
def project(repository) -> dict[str, list[Requirement]]:
    """Extra -> requirements of other packages; the core ones under the empty name."""
    table = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    groups = {"": table["dependencies"], **table["optional-dependencies"]}
    own = {name: [Requirement(line) for line in lines] for name, lines in groups.items()}
    return {name: [r for r in lines if r.name != table["name"]] for name, lines in own.items()}


def environment_pins(repository: Path, name: str) -> dict[str, str]:
    """The pip section of a conda environment file."""
    *conda, pip = yaml.safe_load((repository / "envs" / f"{name}.yaml").read_text())["dependencies"]
    assert conda == ["python=3.11", "pip"]
    return exact_pins(pip["pip"])


def names(requirements: list[Requirement]) -> set[str]:
    return {canonicalize_name(requirement.name) for requirement in requirements}


@pytest.mark.parametrize("extra", ["", "cpu", "dev", "slurm", "trl"])
def test_the_locked_versions_satisfy_the_project(project, locked, extra):
    for requirement in project[extra]:
        version = locked[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} against {version}"


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environments_pins_are_the_locked_ones(repository, project, locked, name):
    (vllm,) = [r for r in project["gpu"] if r.name == "vllm"]
    expected = {**locked, "vllm": str(vllm.specifier).removeprefix("==")}
    pins = environment_pins(repository, name)
    assert pins == {package: expected[package] for package in pins}


@pytest.mark.parametrize(("name", "extra"), [("cpu", "cpu"), ("gpu", "gpu")])
def test_an_environment_holds_the_projects_dependencies(repository, project, name, extra):
    expected = (names(project[""]) | names(project[extra])) - WORKFLOW_ONLY
    assert set(environment_pins(repository, name)) == expected


def rules(repository: Path) -> dict[str, str]:
    """Rule -> its text, of the rules that run a command."""
    found = {}
    for path in sorted((repository / "workflow").rglob("*.smk")):
        for part in re.split(r"^(?=rule \w+:$)", path.read_text(), flags=re.MULTILINE)[1:]:
            if re.search(r"^    shell:", part, flags=re.MULTILINE):
                found[part.split(":")[0].removeprefix("rule ")] = part
    return found


def test_the_reports_programs_import_only_what_their_environment_holds(repository, project):
    programs = [
        re.search(r"scripts/\w+\.py", text)[0] for text in rules(repository).values() if "envs/report.yaml" in text
    ]
    assert "scripts/tables.py" in programs
    absent = names(project[""]) - WORKFLOW_ONLY - set(environment_pins(repository, "report"))
    modules = {"scikit-learn": "sklearn"}
    blocked = sorted(modules.get(name, name.replace("-", "_")) for name in absent)
    program = (
        "import importlib.abc, runpy, sys\n"
        "class Absent(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name.split('.')[0] in {blocked}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        f"for program in {programs}:\n"
        "    runpy.run_path(program, run_name='imported')\n"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=repository, capture_output=True, text=True)
    assert "torch" in blocked
    assert result.returncode == 0, result.stderr


def test_every_rule_names_an_environment_that_exists(repository):
    found = rules(repository)
    assert {"problems", "train", "sample", "grade", "table"} <= set(found)
    for rule, text in found.items():
        (directive,) = re.findall(r"^    conda:\n(        .*\n)", text, flags=re.MULTILINE)
        paths = re.findall(r'"(.*?)"', directive)
        assert paths, rule
        for path in paths:
            file = (repository / "workflow" / "rules" / path).resolve()
            assert file.parent == repository / "envs", rule
            assert file.stem in ENVIRONMENTS, rule
            assert file.exists(), rule
