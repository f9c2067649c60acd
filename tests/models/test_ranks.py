"""Ranking metrics: those of scikit-learn while values are kept, within their error once they are counted in bins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import norm
from sklearn import metrics

import coremargin
from coremargin.errors import UsageError
from coremargin.models import ranks as module
from coremargin.models.evaluate import Evaluation, evaluate
from coremargin.models.predict import predict
from coremargin.models.ranks import Ranking, Ranks

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

EXACT = 10**6


def ranking(values: np.ndarray, positive: np.ndarray, *, exact_rows: int = EXACT) -> Ranking:
    """Of rows that arrive in three parts."""
    ranks = Ranks(exact_rows, weighted=False)
    for part in np.array_split(np.arange(len(values)), 3):
        ranks.add(values[part], positive[part], None)
    return ranks.rankings()[0]


def best_recall(values: np.ndarray, positive: np.ndarray, wanted: float) -> float:
    """The largest recall with a precision, of the curve of scikit-learn; its last point has no rows."""
    precision, recall, _ = metrics.precision_recall_curve(positive, values)
    return float(recall[:-1][precision[:-1] >= wanted].max(initial=0.0))


def sample(rng: np.random.Generator, rows: int, share: float, *, digits: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Values of a rare class N(2, 1) among N(0, 1), rounded so that some are equal."""
    positive = rng.random(rows) < share
    return np.round(rng.normal(size=rows) + 2.0 * positive, digits), positive


@pytest.mark.parametrize("digits", [12, 1, 0])
@pytest.mark.parametrize("rows", [3, 40, 3000])
def test_ranks_equal_those_of_scikit_learn(rng: np.random.Generator, rows: int, digits: int) -> None:
    """Average precision and the recall at any precision, ties included; thresholds give what they promise."""
    values, positive = sample(rng, rows, 0.1, digits=digits)
    positive[0], positive[1] = True, False
    found = ranking(values, positive)
    assert found.average_precision().value == pytest.approx(metrics.average_precision_score(positive, values))
    assert found.roc_auc().value == pytest.approx(metrics.roc_auc_score(positive, values))
    for wanted in (0.01, 0.3, 0.5, 0.9, 1.0):
        at = found.at_precision(wanted, 0.9, trained_on=False)
        assert at.recall_error == 0
        assert (0.0 if at.best is None else at.best.recall) == best_recall(values, positive, wanted)
        for one in (at.best, at.assured):
            if one is not None:
                above = values > one.threshold
                assert one.predicted == above.sum()
                assert one.precision == positive[above].mean() >= wanted
                assert one.recall == positive[above].sum() / positive.sum()


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-310])
def test_bins_bound_what_they_leave_open(
    rng: np.random.Generator, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few bins, all metrics are within their error, which is not 0, and thresholds are those of the rows."""
    monkeypatch.setattr(module, "_BITS", 15)
    values, positive = sample(rng, 20_000, 0.05)
    values *= scale
    exact, binned = ranking(values, positive), ranking(values, positive, exact_rows=100)
    for name in ("average_precision", "roc_auc"):
        truth, bounded = getattr(exact, name)(), getattr(binned, name)()
        assert truth.error == 0 < bounded.error < 0.5
        assert abs(truth.value - bounded.value) <= bounded.error * (1 + 1e-9)
    for wanted in (0.2, 0.5, 0.8, 0.95):
        at = binned.at_precision(wanted, 0.9, trained_on=False)
        least = 0.0 if at.best is None else at.best.recall
        assert least <= best_recall(values, positive, wanted) <= least + at.recall_error + 1e-12
        for one in (at.best, at.assured):
            if one is not None:
                above = values > one.threshold
                assert (one.predicted, one.precision) == (above.sum(), positive[above].mean())


def test_average_precision_in_bins_is_bounded_in_the_worst_order() -> None:
    """All positive rows of a bin tied above its negative ones, and one by one below them, are both within the error."""
    base, order = 1.0 + np.arange(8) * 2.0**-30, []
    order.append((np.array([base[7], base[7], *base[:4]]), np.array([True, True, False, False, False, False])))
    order.append((base[:6], np.array([True, True, False, False, False, False])))
    for values, positive in order:
        truth, found = ranking(values, positive).average_precision(), ranking(values, positive, exact_rows=1)
        bounded = found.average_precision()
        assert truth.value is not None
        assert bounded.value is not None
        assert abs(truth.value - bounded.value) <= bounded.error + 1e-12


def test_the_top_of_a_bin_is_its_largest_float(rng: np.random.Generator) -> None:
    """The next float lies in the next bin, on both sides of 0 and at its ends."""
    values = np.concatenate([rng.normal(size=100) * 10.0 ** rng.integers(-300, 300, 100), [0.0, -0.0, 5e-324, -5e-324]])
    bins = module._bins(values)
    tops = module._tops(bins)
    assert (tops >= values).all()
    assert (module._bins(tops) == bins).all()
    assert (module._bins(np.nextafter(tops, np.inf)) == bins + 1).all()


@pytest.mark.parametrize(("digits", "exact_rows"), [(12, EXACT), (1, EXACT), (12, 10)])
def test_intervals_of_chosen_thresholds_hold(digits: int, exact_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 400 samples, the true precision at the chosen threshold is outside as seldom as the confidence demands.

    The threshold that is best on the rows has less than the wanted precision more often than that.
    """
    monkeypatch.setattr(module, "_BITS", 17)
    rng, share, wanted, confidence = np.random.default_rng(4), 0.05, 0.6, 0.8
    step = 0.0 if digits > 6 else 0.5 * 10.0**-digits

    def truth(threshold: float) -> float:
        edge = threshold if digits > 6 else np.round(threshold, digits) + step  # values above round to more than it
        hits, misses = share * norm.sf(edge - 2.0), (1.0 - share) * norm.sf(edge)
        return float(hits / (hits + misses))

    chosen = outside = short = 0
    for _ in range(400):
        found = ranking(*sample(rng, 1500, share, digits=digits), exact_rows=exact_rows)
        at = found.at_precision(wanted, confidence, trained_on=False)
        assert at.best is not None
        short += truth(at.best.threshold) < wanted
        if at.assured is not None:
            chosen += 1
            precision = truth(at.assured.threshold)
            outside += not at.assured.lower <= precision <= at.assured.upper
            assert at.assured.lower >= wanted
    assert chosen > 50
    assert outside / 400 <= 1.0 - confidence
    assert short / 400 > 1.0 - confidence


def test_one_class_ranks_nothing() -> None:
    """With rows of one class only, or none, there is no area, no precision and no threshold."""
    for values in (np.zeros(0), np.arange(5.0)):
        found = ranking(values, np.ones(len(values), bool))
        at = found.at_precision(0.5, 0.9, trained_on=False)
        assert [found.roc_auc().value, found.average_precision().value, at.best, at.assured] == [None] * 4


# Stores and commands.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two classes, its rows and others; and a model of three."""
    place, rng = tmp_path_factory.mktemp("ranks"), np.random.default_rng(3)
    y = (rng.random(4000) < 0.1).astype(int)
    X = rng.normal(size=(4000, 3)) + 3.0 * y[:, None] * [1, 0, 0]
    weights = rng.gamma(1.0, size=2000)
    coremargin.ingest(X[:2000], place / "train.zarr", labels=y[:2000])
    coremargin.ingest(X[2000:], place / "test.zarr", labels=y[2000:], weights=weights)
    coremargin.train(place / "train.zarr", out=place / "m", loss="squared_hinge", C=1.0)
    coremargin.train(X[:300], np.arange(300) % 3, out=place / "three", loss="hinge", C=0.01, classes="ovr")
    return place


def test_evaluate_finds_thresholds_that_predict_uses(folder: Path, tmp_path: Path) -> None:
    """A threshold found on one store predicts as many rows as it says; other metrics are as without one."""
    found = evaluate(folder / "m", folder / "test.zarr", precision=0.8, confidence=0.9)
    assert isinstance(found, Evaluation)
    assert found.at_precision is not None
    best, assured = found.at_precision.best, found.at_precision.assured
    assert best is not None
    assert assured is not None
    assert found.weighted is not None
    model, test = coremargin.load(folder / "m"), coremargin.Store.open(folder / "test.zarr")
    values = np.concatenate([model.decision_function(test.read(k)[0]) for k in range(test.chunks)])
    positive = np.concatenate([test.labels(k) for k in range(test.chunks)]) == test.classes.index(1)
    weights = np.concatenate([test.weights(k) for k in range(test.chunks)])
    assert found.average_precision == pytest.approx(metrics.average_precision_score(positive, values))
    weighted = metrics.average_precision_score(positive, values, sample_weight=weights)
    assert found.weighted.average_precision == pytest.approx(weighted)
    assert json.loads(json.dumps(found.to_dict()))["at_precision"]["best"]["recall"] == best.recall
    for one in (best, assured):
        written = predict(folder / "m", test, tmp_path / "p.zarr", threshold=one.threshold, overwrite=True)
        assert written.counts[1] == one.predicted
        again = evaluate(folder / "m", test, threshold=one.threshold)
        assert isinstance(again, Evaluation)
        assert (again.classes[1].precision, again.classes[1].recall) == (one.precision, one.recall)
        assert again.roc_auc == found.roc_auc


def test_rows_of_training_in_a_store_that_has_grown_show_nothing(folder: Path, tmp_path: Path) -> None:
    """The model's commit is an earlier one then."""
    rng = np.random.default_rng(8)
    X, y = rng.normal(size=(300, 3)), rng.integers(0, 2, 300)
    coremargin.ingest(X, tmp_path / "rows.zarr", labels=y)
    coremargin.train(tmp_path / "rows.zarr", out=tmp_path / "m", loss="hinge")
    coremargin.ingest(X + 1.0, tmp_path / "rows.zarr", labels=y, append=True)
    found = evaluate(tmp_path / "m", tmp_path / "rows.zarr", precision=0.5)
    assert isinstance(found, Evaluation)
    assert found.at_precision is not None
    assert found.at_precision.trained_on
    assert found.at_precision.assured is None


def test_a_threshold_counts_for_rows_in_groups(tmp_path: Path) -> None:
    """As for the same rows without groups."""
    rng = np.random.default_rng(9)
    X = rng.normal(size=(200, 3))
    y = (X[:, 0] + rng.normal(size=200) > 0).astype(int)
    coremargin.ingest(X, tmp_path / "plain.zarr", labels=y)
    coremargin.ingest(X, tmp_path / "groups.zarr", labels=y, group=np.repeat(np.arange(40), 5))
    coremargin.train(tmp_path / "plain.zarr", out=tmp_path / "m", loss="hinge")
    plain, groups = (evaluate(tmp_path / "m", tmp_path / f"{name}.zarr", threshold=0.7) for name in ("plain", "groups"))
    assert isinstance(plain, Evaluation)
    assert isinstance(groups, Evaluation)
    assert groups.confusion == plain.confusion
    usual = evaluate(tmp_path / "m", tmp_path / "groups.zarr")
    assert isinstance(usual, Evaluation)
    assert groups.confusion != usual.confusion


def test_rows_of_training_show_nothing(folder: Path, run_cli: Callable[..., Result]) -> None:
    """A threshold on the rows that the model was trained on has no interval, and the table says why."""
    text = run_cli("evaluate", folder / "m", folder / "train.zarr", "--precision", "0.5").stdout
    assert "the model was trained on these rows" in text
    found = json.loads(run_cli("evaluate", folder / "m", folder / "train.zarr", "--precision", "0.5", "--json").stdout)[
        "at_precision"
    ]
    assert found["trained_on"]
    assert found["assured"] is None
    text = run_cli("evaluate", folder / "m", folder / "test.zarr", "--precision", "0.5").stdout
    assert "on further rows" in text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"precision": 0.0}, "precision: expected a share above 0"),
        ({"precision": 1.5}, "precision: expected a share above 0"),
        ({"precision": float("nan")}, "precision: expected a share above 0"),
        ({"precision": 0.5, "confidence": 1.0}, "confidence: expected a share between 0 and 1"),
        ({"confidence": 0.9}, "a confidence is that of a precision"),
        ({"threshold": float("nan")}, "threshold: expected a finite number"),
    ],
)
def test_bad_numbers_are_refused(folder: Path, options: dict[str, Any], text: str) -> None:
    """Shares outside of their range, and thresholds that are no numbers."""
    with pytest.raises(UsageError, match=text):
        evaluate(folder / "m", folder / "test.zarr", **options)


def test_three_classes_have_no_threshold(folder: Path, tmp_path: Path) -> None:
    """A precision or a threshold is refused before a row is read, and nothing is written."""
    for call in (
        lambda: evaluate(folder / "three", folder / "none.zarr", precision=0.5),
        lambda: evaluate(folder / "three", folder / "none.zarr", threshold=0.5),
        lambda: predict(folder / "three", folder / "train.zarr", tmp_path / "p.zarr", threshold=0.5),
    ):
        with pytest.raises(UsageError, match="the model has 3"):
            call()
    assert not list(tmp_path.iterdir())
