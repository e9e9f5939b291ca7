"""What the run browser is given."""

from __future__ import annotations

import pandas as pd
import pytest

from ebpo.config import RunId
from ebpo.reporting.browser import POINTS, browser_data, run_facts
from ebpo.reporting.json_files import read_objects
from ebpo.reporting.runs import Run
from ebpo.reporting.style import method_colours

ID = RunId(model="m", method="ebpo", order="topic", group_size=4, seed=1)


def run(steps: int) -> Run:
    metrics = pd.DataFrame({"reward": [i / 3 for i in range(steps)]}, index=range(1, steps + 1))
    return Run(ID, steps, metrics, {"seconds": 3725.4, "digest": "0123456789abcdef", "resumed_at": [3, 7]})


def test_curves_keep_their_last_point_and_are_thinned():
    data = browser_data([run(3 * POINTS - 1)], {ID.folder: []}, method_colours([]), 16)
    steps, values = data["runs"][0]["curves"][0]
    assert len(steps) == POINTS
    assert (steps[-1], values[-1]) == (3 * POINTS - 1, 199.3)
    assert data["curves"][:3] == ["Training reward", "Validation pass@1", "Validation maj@16"]
    assert data["runs"][0]["curves"][1] is None


def test_facts_of_a_run():
    facts = run_facts(run(4))
    assert facts["Steps"] == "4 of 4"
    assert (facts["Wall time, h:mm:ss"], facts["Resumed at step"]) == ("1:02:05", "3, 7")
    assert facts["Digest of configuration and inputs"] == "0123456789ab"
    assert facts["Completions sampled"] == "–"


def test_broken_examples_are_named(tmp_path):
    path = tmp_path / "examples.jsonl"
    path.write_text("{}\n[1]\n")
    with pytest.raises(ValueError, match=r"examples.jsonl:2: must be a JSON object"):
        read_objects(path)
