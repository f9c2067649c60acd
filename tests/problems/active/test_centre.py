"""Campaigns that leave a centre as their model, with ``ep`` a Bayes point machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from asking import Person, apart, source_of, states, values_of

from campaign_kit import CLASSES, forgotten, rows_and_labels, same_state, unlabelled
from coremargin.active import Campaign
from coremargin.errors import UsageError
from coremargin.formats.choices import Method
from coremargin.maths.active.centres import CENTRES, centre_of
from coremargin.models.registry import load
from coremargin.problems.active.problem import ActiveMargin
from coremargin.problems.active.spec import WITHOUT_CENTRE
from coremargin.verify.examine import examine
from margin_judges import margin_by_daqp


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_margin_of_what_epsilon_says_is_kept(epsilon: float, *, intercept: bool) -> None:
    """Certified for all rows; the centre itself where its margin suffices, else no more of the largest than needed."""
    X, signs = apart(np.random.default_rng(3), 600, 3, 0.3)
    signs = np.where(X @ np.array([1.0, -0.5, 0.25]) > 0, 1, -1) if not intercept else signs
    X = X + (0.2 * signs[:, None] * np.array([1.0, -0.5, 0.25]) if not intercept else 0.0)
    source = source_of(X)
    problem = ActiveMargin(
        source, method="ep", centre=True, epsilon=epsilon, error=0.05, intercept=intercept, resident_rows=600
    )
    state = states(problem, Person(signs))[-1]
    assert state.status == "certified"
    found, best = problem.round_of(state), margin_by_daqp(X, signs, intercept=intercept)
    assert found.lower <= np.abs(values_of(state, X)).min() + 1e-12
    assert found.upper >= best * (1 - 1e-6)
    assert found.lower >= (1 - epsilon) * found.upper
    answered = state.answered.against(0)
    size = float(np.sqrt((np.linalg.norm(X[answered.ids], axis=1) ** 2).mean())) if intercept else 0.0
    w, b = centre_of("ep", answered.rows, answered.signs, constant=size, seed=len(answered))
    margin = float((answered.signs * (X[answered.ids] @ w + b)).min())
    if margin >= (1 - 0.99 * epsilon) * float(state.upper[0]):
        assert state.hypothesis.w[0] @ w == pytest.approx(1.0)
    else:
        kept = float((answered.signs * (X[answered.ids] @ state.hypothesis.w[0] + state.hypothesis.b[0])).min())
        assert kept == pytest.approx((1 - 0.99 * epsilon) * float(state.upper[0]), rel=1e-6)


def test_every_method_has_a_centre_or_is_refused(tmp_path: Path) -> None:
    """Those without are named, before a folder is made."""
    assert set(WITHOUT_CENTRE) == set(get_args(Method)) - set(CENTRES)
    X, _ = rows_and_labels(60)
    store = unlabelled(tmp_path / "rows.zarr", X)
    for method in ("coreset", "slab"):
        with pytest.raises(UsageError, match="has no centre"):
            Campaign.create(tmp_path / "c", store, classes=CLASSES, method=method, hypothesis="centre")
    assert not (tmp_path / "c").exists()


def test_the_model_is_verified_used_and_the_same_after_a_restart(tmp_path: Path) -> None:
    """It predicts and is exported as any hyperplane; the log alone gives the same bits; a record may not deny it."""
    X, labels = rows_and_labels(300)
    store = unlabelled(tmp_path / "rows.zarr", X)
    asked = {"classes": CLASSES, "method": "ep", "error": 0.1, "confidence": 0.9, "epsilon": 0.8}
    campaign = Campaign.create(tmp_path / "c", store, hypothesis="centre", **asked)
    campaign.run(lambda rows: {row: labels[row] for row in rows})
    assert same_state(campaign, forgotten(campaign, tmp_path / "again"))
    found = examine(campaign.path, store)
    assert found.ok
    assert any("centre" in text for text in found.unchecked)
    model = load(campaign.path / "model")
    assert model.status == "certified"
    assert model.predict(X[:50]).tolist() == [CLASSES[int(v > 0)] for v in X[:50] @ model.w + model.b]
    assert "centre" in campaign.report().read_text(encoding="utf-8")
    largest = Campaign.create(tmp_path / "d", store, **asked)
    largest.run(lambda rows: {row: labels[row] for row in rows})
    assert not same_state(largest, campaign)
    path = campaign.path / "model" / "model.json"
    record = json.loads(path.read_text())
    del record["parameters"]["hypothesis"]
    path.write_text(json.dumps(record))
    assert "campaign" in {check.name for check in examine(campaign.path, store).failures}
