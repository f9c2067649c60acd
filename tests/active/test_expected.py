"""What a campaign says before its first question: how many answers it needs, and whether these are nearly all rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import coremargin
from coremargin.active import Campaign
from coremargin.active.status import NEARLY_ALL
from coremargin.page import texts

if TYPE_CHECKING:
    from click.testing import Result


def begin(tmp_path: Path, X: np.ndarray, name: str = "c", **options: Any) -> Campaign:
    """A campaign about these rows."""
    if not (tmp_path / "rows.zarr").exists():
        coremargin.ingest(X.astype(np.float32), tmp_path / "rows.zarr", unlabelled=True)
    return Campaign.create(tmp_path / name, tmp_path / "rows.zarr", classes=["no", "yes"], **options)


def test_many_rows_of_few_features_need_few_answers(rng: np.random.Generator, tmp_path: Path) -> None:
    """The estimate covers what a separable campaign needs at its first attempt, and then is gone."""
    X = rng.normal(size=(6000, 5)) + 3.0 * np.sign(rng.normal(size=6000))[:, None] * np.eye(5)[0]
    with begin(tmp_path, X) as campaign:
        expected = campaign.status["expected"]
        assert not expected["nearly_all"]
        assert expected["remedy"] is None
        assert expected["answers"] == expected["near"] + expected["draws"] == campaign.forecast.total
        found = campaign.run(lambda rows: {row: "yes" if X[row, 0] > 0 else "no" for row in rows}, batch=50)
        assert found["status"] == "certified"
        assert found["expected"] is None
        assert found["draws_wrong"] == 0
        assert found["labels"] <= expected["answers"] + 2 * 50  # batches


def test_constant_features_count_for_nothing(rng: np.random.Generator, tmp_path: Path) -> None:
    """A feature that never varies, such as a bucket that no text has, needs no answers."""
    X = np.hstack([rng.normal(size=(3000, 4)), np.zeros((3000, 500)), np.ones((3000, 500))])
    with begin(tmp_path, X) as campaign:
        assert campaign.status["expected"]["near"] == 2 * (4 + 1)


@pytest.mark.parametrize(("rows", "features"), [(200, 8), (2500, 1500)])
def test_a_campaign_about_nearly_all_rows_says_so(
    rng: np.random.Generator, tmp_path: Path, run_cli: Callable[..., Result], rows: int, features: int
) -> None:
    """Few rows, or as many features: start warns, the page too, and what is proposed needs at most half of the rows."""
    X = rng.normal(size=(rows, features))
    with begin(tmp_path, X) as campaign:
        status = campaign.status
        expected = status["expected"]
        assert expected["nearly_all"]
        assert NEARLY_ALL * rows <= expected["answers"] <= rows
        assert ["Warning", "nearly all rows"] in [fact[:2] for fact in texts.facts(status, campaign.forecast, 0)]
        remedy = expected["remedy"]
    options = [] if remedy["loss"] is None else ["--loss", remedy["loss"], "--C", "1"]
    text = run_cli("active", "status", tmp_path / "c").stdout
    assert f"these may be nearly all of the {rows:,} rows: label all of them" in text
    words = " ".join([*options, *(["--error", f"{remedy['error']:g}"] if remedy["error"] != 0.01 else [])])
    assert f"or start with {words}: up to about {remedy['answers']:,} answers" in text
    again = tmp_path / "again"
    out = run_cli(
        "active", "start", tmp_path / "rows.zarr", "--out", again, "--classes", "no,yes", *words.split()
    ).stdout
    assert "warning" not in out
    with Campaign(again) as campaign:
        assert campaign.status["expected"]["answers"] <= rows / 2


def test_nothing_helps_with_very_few_rows(rng: np.random.Generator, tmp_path: Path) -> None:
    """Of 20 rows all are labelled."""
    with begin(tmp_path, rng.normal(size=(20, 30))) as campaign:
        assert campaign.status["expected"]["nearly_all"]
        assert campaign.status["expected"]["remedy"] is None
