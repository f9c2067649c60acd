"""The report of a campaign: what it claims, what was asked, who agrees, and what chance would have taken."""

from __future__ import annotations

import math
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from campaign_kit import CLASSES, rows_and_labels, three_classes, unlabelled
from coremargin.active import Campaign
from coremargin.active.report import _published_bounds
from coremargin.errors import UsageError
from coremargin.models.registry import load
from coremargin.report.nearness import expected_least, least_so_far

X, LABELS = rows_and_labels(150, 3)


def test_a_report_of_two_people(tmp_path: Path) -> None:
    """The claim, every table and Fleiss' kappa are there; names with markup in them are text; nothing is loaded."""
    store, evil = unlabelled(tmp_path / "rows.zarr", X), "<b>ben</b>"
    campaign = Campaign.create(tmp_path / "c", store, classes=CLASSES, error=0.3, confidence=0.8, people=2)
    with pytest.raises(UsageError, match="expected answers of two classes"):
        campaign.report()
    while campaign.status["status"] == "running":
        for who in ("anna", evil):
            rows = [one.row for one in campaign.ask(4, who=who, again=True) or campaign.ask(4, who=who)]
            campaign.tell(rows, [LABELS[row] for row in rows], who=who)
    text = campaign.report().read_text(encoding="utf-8")
    evidence = campaign.status["evidence"]
    assert f"at most {evidence['error_bound']}" in text
    assert re.search(r"Fleiss’ kappa is <b>1</b>", text)
    assert "&lt;b&gt;ben&lt;/b&gt;" in text
    assert evil not in text
    assert "Corollary 3.2" in text
    assert 'id="nearness-1040-title"' in text
    assert not re.search(r"(src|href)=\"http", text)


def test_a_report_of_three_classes(tmp_path: Path) -> None:
    """Bounds by class are there where they were asked for; what holds of two classes only is not."""
    X, labels = three_classes(200)
    store = unlabelled(tmp_path / "rows.zarr", X)
    campaign = Campaign.create(
        tmp_path / "c", store, classes="abc", error=0.4, confidence=0.6, by_class=True, people=None
    )
    campaign.run(lambda rows: {row: labels[row] for row in rows}, batch=8)
    text = campaign.report().read_text(encoding="utf-8")
    assert "Of the rows that are given each class" in text
    assert "Corollary 3.2" not in text
    assert "kappa" not in text


def test_the_least_of_some_by_chance(rng: np.random.Generator) -> None:
    """It is the mean over all ways to choose them."""
    values = rng.random(7).tolist()
    for n in range(1, 8):
        ways = [min(some) for some in combinations(values, n)]
        assert expected_least(values, n) == pytest.approx(sum(ways) / len(ways), rel=1e-12)
    assert least_so_far([3.0, 4.0, 1.0, 2.0]) == [3.0, 3.0, 1.0, 1.0]


@pytest.mark.specimens(1)
@pytest.mark.parametrize("method", ["coreset", "stream", "chebyshev", "random", "slab"])
def test_published_bounds_stand_where_they_hold(method: str, tmp_path: Path) -> None:
    """Corollary 3.2 is about rows within the slab, Lemma 4.1 about a conservative learner, (8) about all rows.

    Figures are those that the formulas give, computed here from the model's files.
    """
    store = unlabelled(tmp_path / "rows.zarr", X)
    campaign = Campaign.create(tmp_path / "c", store, classes=CLASSES, method=method, error=0.3, confidence=0.8)
    campaign.run(lambda rows: {row: LABELS[row] for row in rows})
    said = {one["source"][-13:]: one for one in _published_bounds(campaign._state)}
    assert ("Corollary 3.2" in said) == (method not in ("random", "slab"))
    assert ("s 4.1 and 4.2" in said) == (method != "random")
    model, lines = load(campaign.path / "model"), campaign._state.log.lines
    share, n, k = said["Ralaivola 2015, (8)"[-13:]]["bound"], len(X), len(model.coreset_ids)
    assert (1 - share) ** (n - k) * math.comb(n, k) * n / 0.2 == pytest.approx(1.0)  # none of the other n - k is wrong
    assert f"if all {n:,} rows are drawn" in campaign.report().read_text(encoding="utf-8")
    assert ("15, Lemma 1.1" in said) == (method == "slab")
    if "Corollary 3.2" in said:
        rows = np.array(sorted({line.row for line in lines if line.label is not None}))
        longest, rho = np.linalg.norm(X[rows].astype(float), axis=1).max(), model.certificate.upper
        assert said["Corollary 3.2"]["bound"] == pytest.approx((2 * longest / rho / 0.1) ** 2, rel=1e-6)
        most = said["Corollary 3.2"]["bound"]
        labels = most + most / 0.3 * (math.log(most) + math.log(5))
        assert said["s 4.1 and 4.2"]["bound"] == pytest.approx(labels)
        assert said["Corollary 3.2"]["needed"] == sum(line.why == "query" for line in lines)
