"""What the golden set rests on: the numbers of a model are the same however, and however often, its job is run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from golden_compare import compare, differences, renamed
from record import recorded

#: What is promised to be the same to the bit; other files tell how a run went.
PROMISED = re.compile(r"^model/(.*/)?(model\.json|fleet\.json|arrays\.npz)/|^verify/")
JOBS = (
    "hard-paper",
    "hinge-segments",
    "kernel-fleet",
    "kernel-relative",
    "relative-margin-small-memory",
    "map-small-memory",
    "kernel-ball-soft",
)


def promised(record: dict[str, Any]) -> dict[str, Any]:
    """The numbers of the model and of its verification."""
    found = {key: value for key, value in record.items() if PROMISED.search(key)}
    assert len(found) > 20
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", JOBS)
def test_models_are_the_same_in_every_manner(tmp_path: Path, name: str) -> None:
    """Threads or worker processes, in one go, stopped and resumed, killed and resumed: the same bits, which verify."""
    records = recorded(tmp_path, f"{name} *")
    whole = promised(records[f"{name} threads"])
    assert whole["verify/exit"] == 0
    for manner in ("cluster", "stopped", "killed"):
        assert differences(whole, promised(records[f"{name} {manner}"])) == [], manner


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["squared threads", "outliers-search threads", "reduced", "nights", "table"])
def test_what_is_recorded_does_not_vary(tmp_path: Path, name: str) -> None:
    """Recorded twice, nothing differs: times, memory and places are left out."""
    first, second = (recorded(tmp_path / place, name)[name] for place in ("first", "second"))
    assert differences(first, second) == []


def test_comparisons_name_jobs_and_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A changed number, a key that is gone and a job that came are told; names that were changed on purpose are not."""
    old = {"hard": {"train/lower": 1.0, "train/exit": 0, "model/w": "float64 (2,) ab"}, "soft": {"exit": 0}}
    new = {"hard": {"train/lower": 1.25, "train/exit": 0}, "soft": {"exit": 0}, "more": {}}
    paths = [tmp_path / "old.json", tmp_path / "new.json"]
    for path, records in zip(paths, (old, new), strict=True):
        path.write_text(json.dumps(records))
    assert compare(paths) == 1
    told = capsys.readouterr().out
    assert "train/lower: 1.0 -> 1.25 (2.5e-01)" in told
    assert "- model/w" in told
    assert "1 jobs are in the new set alone: more" in told
    assert compare([paths[0]] * 2) == 0
    names = {"w": "weights", "train/lower": "train/lower_bound", "exit": None}
    assert renamed(old["hard"], names) == {"train/lower_bound": 1.0, "model/weights": "float64 (2,) ab"}
