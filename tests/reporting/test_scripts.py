"""The programs end to end on a synthetic experiment, and their one-line errors."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_experiment import REPOSITORY, Experiment

from ebpo.reporting.captions import CLUSTER_FIGURES, figure_names
from ebpo.reporting.theory_figures import COLUMNS, REPORT_FIGURES


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPOSITORY / "scripts" / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=False)


def tables(experiment: Experiment, comparison: str, name: str = "tables") -> subprocess.CompletedProcess[str]:
    return run(
        "tables.py", "--config", experiment.config_path, "--comparison", comparison, "--scores", *experiment.scores,
        "--paper", REPOSITORY / "config/paper_results.csv", "--out", experiment.root / name / comparison,
    )  # fmt: skip


def theory_folder(root: Path) -> Path:
    """What the report reads of the theory: the table of the theorems, one row without closed form, and figures."""
    rows = ["T1,a penalty,G = 4,-0.16667,-0.165,-0.17,-0.16,yes,holds", "T5,an error,9 topics,,0.03,0.02,0.04,–,fails"]
    (root / "theory/figures").mkdir(parents=True)
    (root / "theory/theorems.csv").write_text("\n".join([",".join(COLUMNS), *rows]) + "\n", encoding="utf-8")
    for name in REPORT_FIGURES:
        (root / f"theory/figures/{name}.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>", encoding="utf-8")
    return root / "theory"


def error_line(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.slow
def test_tables_figures_report(experiment: Experiment) -> None:
    root = experiment.root
    for comparison, name in [("main", "tables"), ("main", "again"), ("clustering", "tables"), ("curriculum", "tables")]:
        result = tables(experiment, comparison, name)
        assert result.returncode == 0, result.stderr
    for suffix in ("csv", "md", "tex"):
        first, second = (root / name / f"main.{suffix}" for name in ("tables", "again"))
        assert first.read_bytes() == second.read_bytes()
    common = ["--config", experiment.config_path, "--runs", *experiment.runs]
    result = run("figures.py", *common, "--scores", *experiment.scores, "--out", root / "figures")
    names = figure_names(experiment.config)
    assert result.returncode == 0, result.stderr
    drawn = {path.name for path in (root / "figures").iterdir()}
    assert drawn == {f"{name}.{suffix}" for name in names for suffix in ("svg", "png")}
    prefixes = [root / "tables" / name for name in ("main", "clustering", "curriculum")]
    theory = theory_folder(root)
    result = run(
        "claims.py", *common, "--scores", *experiment.scores, "--paper", REPOSITORY / "config/paper_results.csv",
        "--theory", theory, "--out", root / "claims",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    for name in CLUSTER_FIGURES:
        (root / f"figures/{name}.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>", encoding="utf-8")
    result = run(
        "report.py", *common, "--claims", root / "claims", "--tables", *prefixes, "--figures", root / "figures",
        "--clusters", *CLUSTER_FIGURES, "--topics", experiment.topics, "--theory", theory,
        "--manifest", root / "data/manifest.json", "--base", root / "base/demo", "--commit", "abc1234",
        "--out", root / "report.html",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    html = (root / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"""(src|href|url)\s*[=(]\s*["']?\s*(https?:)?//""", html)
    assert "http://" not in html
    assert "https://" not in html
    assert html.count("data:image/svg+xml;base64,") == len(names) + len(CLUSTER_FIGURES) + len(REPORT_FIGURES)
    assert html.index('id="claims"') < html.index('id="tables"') < html.index('id="runs"')
    # A completion cannot end the script element that holds it.
    assert html.count("</script>") == 2
    assert "ab" * 32 in html
    assert "one of a test" in html
    ids = re.findall(r'\sid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    for text in ("Main comparison", "abc1234", "0:01:15", "5,120", "40 of 40", "0.900", "EBPO − GRPO"):
        assert text in html
    for text in ("a penalty", "-0.1667", "-0.1700 to -0.1600", "T5", "snakemake theory --force"):
        assert text in html
    assert f"snakemake {root}/tables/main.md --force" in html


def test_missing_score_file_is_named(experiment: Experiment) -> None:
    experiment.scores[2].unlink()
    assert str(experiment.scores[2]) in error_line(tables(experiment, "main"))


def test_missing_benchmark_is_named(experiment: Experiment) -> None:
    path = experiment.root / "runs/demo/grpo-topic/G4/seed0/evaluation_best/scores.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if ",algebra," not in line) + "\n")
    line = error_line(tables(experiment, "main"))
    assert "runs/demo/grpo-topic/G4/seed0" in line
    assert "'algebra'" in line


def test_mixed_protocols_are_refused(experiment: Experiment) -> None:
    path = experiment.scores[1]
    path.write_text(path.read_text().replace("abc123", "def456"))
    line = error_line(tables(experiment, "main"))
    assert "abc123" in line
    assert "def456" in line


def test_missing_metrics_are_named(experiment: Experiment) -> None:
    (experiment.runs[3] / "metrics.jsonl").unlink()
    common = ["--config", experiment.config_path, "--runs", *experiment.runs]
    result = run("figures.py", *common, "--scores", *experiment.scores, "--out", experiment.root / "figures")
    assert f"{experiment.runs[3]}: metrics.jsonl is missing" in error_line(result)


def test_reporting_does_not_import_torch() -> None:
    modules = "browser, figures, html, paper, runs, scores, summaries, table, tables, theory_figures"
    code = f"import sys; from ebpo.reporting import {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False).returncode == 0
