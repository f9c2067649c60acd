"""Gates: each passes and refuses with its figure, and those that compare use an exact paired test."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import binomtest

import coremargin
from coremargin import spec as specs
from coremargin.data.amend import remove_rows, write_labels
from coremargin.data.store import Store
from coremargin.errors import DataError, LabelError, SpecError, StoreError, UsageError
from coremargin.maths.paired import different_by_chance, lower_tail, moved_between, worse_by_chance
from coremargin.models.evaluate import evaluate as evaluated
from coremargin.models.paired import compare
from coremargin.registry.add_version import add
from coremargin.registry.aliases import promote
from coremargin.registry.drift import drift
from coremargin.registry.gates import evaluate
from coremargin.registry.nightly import Gates, load_nightly_job
from coremargin.registry.registry import Registry
from registry_kit import append

if TYPE_CHECKING:
    from coremargin.formats.versions import Gate, Line

Three = tuple[Path, list[Path]]


def gate(line: Line, name: str) -> Gate:
    """What one gate found."""
    assert isinstance(line.gates, list)
    return next(one for one in line.gates if one.name == name)


@pytest.mark.parametrize(
    ("lost", "won"), [(0, 0), (1, 0), (0, 7), (5, 5), (12, 3), (100, 130), (2000, 1890), (9, 4000)]
)
def test_the_paired_test_is_the_binomial_one(lost: int, won: int) -> None:
    """Its probabilities are those of SciPy's exact binomial test, one-sided and two-sided, and its interval too."""
    if lost + won:
        one, two = (binomtest(won, lost + won, 0.5, alternative=side).pvalue for side in ("less", "two-sided"))
        assert worse_by_chance(lost, won) == pytest.approx(one, rel=1e-9)
        assert different_by_chance(lost, won) == pytest.approx(two, rel=1e-9)
        interval = binomtest(won, lost + won).proportion_ci(0.95, method="exact")
        found = moved_between(lost, won, 10_000, 0.95)
        assert found == pytest.approx([(2 * p - 1) * (lost + won) / 10_000 for p in interval], rel=1e-9, abs=1e-12)
    else:
        assert (worse_by_chance(0, 0), different_by_chance(0, 0)) == (1.0, 1.0)
        assert moved_between(0, 0, 10, 0.95) == (0.0, 0.0)


@pytest.mark.parametrize("trials", [1, 2, 9, 40])
def test_tails_are_sums_of_binomials(trials: int) -> None:
    """Each is the exact sum, in fractions."""
    total = Fraction(0)
    for successes in range(trials + 1):
        total += Fraction(math.comb(trials, successes), 2**trials)
        assert lower_tail(successes, trials) == pytest.approx(float(total), rel=1e-12)


def test_two_models_are_scored_as_each_alone(three: Three) -> None:
    """One pass over both gives what ``evaluate`` gives of each, and counts the rows that only one has right."""
    folder, models = three
    held = folder / "paired.zarr"
    append(held, 300, 77)
    changed = np.arange(0, 300, 7)
    labels = {1: -1, -1: 1}
    opened = Store.open(held)
    codes = np.concatenate([opened.labels(chunk) for chunk in range(opened.chunks)])
    write_labels(held, changed, [labels[opened.classes[codes[row]]] for row in changed])
    first, second = (coremargin.load(model) for model in (models[0], models[2]))
    rows = Store.open(held)
    found = compare(first, second, rows)
    for model, scores in ((first, found.first), (second, found.second)):
        alone = evaluated(model, rows)
        assert (scores.accuracy, scores.f1) == (alone.accuracy, pytest.approx(alone.f1))
        assert scores.balanced_accuracy == pytest.approx(alone.balanced_accuracy)
    every = rows.rows_at(np.arange(300))
    truth = np.array(rows.classes)[every[1]]
    right = [model.predict(every[0]) == truth for model in (first, second)]
    assert (found.only_first, found.only_second) == ((right[0] & ~right[1]).sum(), (~right[0] & right[1]).sum())
    assert found.rows == 300


def test_a_candidate_passes_and_says_with_what_figures(registry: Registry, three: Three) -> None:
    """All gates are asked, each is in the log with what was found and asked; the first version has no rival."""
    held = three[0] / "held.zarr"
    if not held.exists():
        append(held, 200, 55)
    asked = Gates(
        verify=False, held_out=held, accuracy=0.01, f1=0.01, balanced_accuracy=0.01, worse=0.01, ratio=0.9, shrink=0.1,
        drift=5.0, class_shift=0.5, class_shares={"1": (0.2, 0.8)},
    )  # fmt: skip
    line = evaluate(registry, 1, asked)
    assert (line.action, line.previous) == ("passed", None)
    promote(registry, 1)
    line = evaluate(registry, 3, asked)
    assert (line.action, line.previous, line.comment) == ("passed", 1, "")
    assert isinstance(line.gates, list)
    assert [one.name for one in line.gates] == [
        "certified", "ratio", "shrink", "class_shares 1", "drift", "class_shift", "accuracy", "f1", "balanced_accuracy",
        "worse",
    ]  # fmt: skip
    accuracy = gate(line, "accuracy")
    assert isinstance(accuracy.figures, dict)
    assert accuracy.figures["rows"] == 200
    assert accuracy.limit == pytest.approx(accuracy.figures["champion"] - 0.01)
    assert (
        accuracy.figures["difference_low"]
        <= accuracy.value - accuracy.figures["champion"]
        <= accuracy.figures["difference_high"]
    )
    assert registry.state().decision(3) == line


@pytest.mark.parametrize(
    ("asked", "name", "words"),
    [
        ({"ratio": 1.0}, "ratio", "required at least 1.0"),
        ({"class_shares": {"1": (0.0, 0.1)}}, "class_shares 1", "required between 0.0000% and 10.0000%"),
        ({"class_shares": {"7": (0.1, 0.2)}}, "class_shares 7", "class '7' has 0.0000% of the rows"),
        ({"drift": 1e-9}, "drift", "means of features moved by up to"),
        ({"class_shift": 0.0}, "class_shift", "shares of classes changed by up to"),
    ],
)
def test_what_is_refused_says_why(registry: Registry, asked: dict[str, object], name: str, words: str) -> None:
    """One gate that fails is enough; the candidate stays as a version, and is promoted by force alone."""
    promote(registry, 1)
    line = evaluate(registry, 3, specs.convert({"verify": False, **asked}, Gates))
    assert line.action == "refused"
    assert words in line.comment
    assert not gate(line, name).ok
    assert 3 in registry.state().numbers
    with pytest.raises(UsageError, match="version 3 was refused by its gates"):
        promote(registry, 3)
    assert promote(registry, 3, force=True) is not None


def test_rows_that_were_taken_out_are_gone(three: Three, tmp_path: Path) -> None:
    """Rows of weight 0 count for no gate: neither as rows, nor in the shares of classes."""
    store = tmp_path / "rows.zarr"
    append(store, 100, 3)
    registry = Registry.create(tmp_path / "registry")
    for number in range(2):
        coremargin.train(store, out=tmp_path / f"{number}.model")
        version = add(registry, tmp_path / f"{number}.model")
        if not number:
            promote(registry, version)
            rows = Store.open(store)
            codes = np.concatenate([rows.labels(chunk) for chunk in range(rows.chunks)])
            gone = np.flatnonzero(codes == 0)[:-10]
            remove_rows(store, gone)
    line = evaluate(registry, 2, Gates(verify=False, shrink=0.1, class_shift=0.1, class_shares={"1": (0.0, 0.5)}))
    left = 100 - len(gone)
    assert registry.record(2).rows == left
    assert gate(line, "shrink").text.startswith(f"{left} rows, required at least 90; if rows were removed on purpose")
    assert gate(line, "class_shares 1").value == pytest.approx((left - 10) / left)
    then = float((codes == 0).mean())
    assert gate(line, "class_shift").value == pytest.approx(abs(then - 10 / left))
    assert [one.name for one in line.gates or () if not one.ok] == ["shrink", "class_shares 1", "class_shift"]


def with_ball(folder: Path, moved: float, shape: Any = "ball") -> tuple[Registry, Path]:
    """A registry of two models of one class, the first of which is the champion; 100 rows came since, moved."""
    store, registry = folder / "rows.zarr", Registry.create(folder / "registry")
    for number in range(2):
        append(store, 100, number, shift=number * moved)
        coremargin.train(store, out=folder / f"{number}.model", one_class=shape, nu=0.05)
        version = add(registry, folder / f"{number}.model")
        if not number:
            promote(registry, version)
    return registry, store


@pytest.mark.parametrize("shape", ["ball", "ellipsoid"])
@pytest.mark.parametrize(("moved", "passes"), [(0.0, True), (9.0, False)])
def test_new_rows_outside_of_the_ball_of_the_champion_are_counted(
    tmp_path: Path, moved: float, passes: bool, shape: str
) -> None:
    """Rows that are as before pass, others are refused; the figure is the share that the ball predicts as -1."""
    registry, store = with_ball(tmp_path, moved, shape)
    line = evaluate(registry, 2, Gates(verify=False, outside=0.2))
    found, champion = gate(line, "outside"), coremargin.load(registry.folder(1))
    new = Store.open(store).rows_at(np.arange(100, 200))[0]
    share = float((champion.predict(new) == -1).mean())
    assert (found.ok, found.value, found.limit) == (passes, share, 0.2)
    assert found.figures == {"rows": 100}
    assert found.text == (
        f"{round(100 * share)} of 100 new rows ({share:.4%}) lie outside of the champion's {shape}, allowed at most "
        "20.0000%"
    )
    assert line.action == ("passed" if passes else "refused")


def test_a_ball_elsewhere_is_a_gate_of_other_models(registry: Registry, three: Three, tmp_path: Path) -> None:
    """Only rows of its class and of weight above 0 count; without a champion all rows are new."""
    store = three[0] / "rows.zarr"
    coremargin.train(store, out=tmp_path / "ball", one_class="ball", nu=0.1, only="1")
    asked = Gates(verify=False, outside=0.5, ball=tmp_path / "ball")
    codes = np.concatenate([Store.open(store).labels(chunk) for chunk in range(Store.open(store).chunks)])
    mine = codes == Store.open(store).classes.index(1)
    first = gate(evaluate(registry, 3, asked), "outside")
    assert first.ok
    assert first.figures == {"rows": int(mine.sum())}
    promote(registry, 1)
    assert gate(evaluate(registry, 3, asked), "outside").figures == {"rows": int(mine[100:].sum())}


def test_what_is_no_gate_of_a_ball_is_refused(registry: Registry, three: Three, tmp_path: Path) -> None:
    """No champion passes; a champion or a folder of another kind, a share that is none, a ball without a share."""
    assert gate(evaluate(registry, 3, Gates(verify=False, outside=0.1)), "outside").text == "no champion yet"
    promote(registry, 1)
    for asked in (Gates(outside=0.1), Gates(outside=0.1, ball=three[1][0])):
        with pytest.raises(
            UsageError, match="gate outside: expected a ball or an ellipsoid, found hyperplanes; set ball in"
        ):
            evaluate(registry, 3, asked)
    for options, words in (
        ({"outside": 1.5}, "outside"),
        ({"ball": "b"}, "ball: needs outside, the largest share of the new rows"),
    ):
        with pytest.raises(SpecError, match=words):
            specs.convert(options, Gates)
    job = tmp_path / "job.toml"
    text = 'job = "nightly"\nstore = "s.zarr"\nregistry = "r"\n[train]\n{}\n[gates]\noutside = 0.1\n'
    job.write_text(text.format('loss = "hinge"'))
    with pytest.raises(SpecError, match="outside: needs ball, the folder of a trained ball or ellipsoid, unless"):
        load_nightly_job(job)
    for train in ('one_class = "ball"', 'one_class = "ellipsoid"', ""):
        job.write_text(text.format(train))
        found = load_nightly_job(job)
        assert found is not None
        assert found.gates.outside == 0.1


def test_a_worse_candidate_is_refused(three: Three, tmp_path: Path) -> None:
    """A model of labels turned around loses rows: accuracy, and the exact test, say how many."""
    store = tmp_path / "rows.zarr"
    append(store, 200, 3)
    coremargin.train(store, out=tmp_path / "good.model")
    rows = Store.open(store)
    turned = [{1: -1, -1: 1}[rows.classes[code]] for code in rows.rows_at(np.arange(200))[1]]
    write_labels(store, np.arange(200), turned)
    coremargin.train(store, out=tmp_path / "bad.model")
    registry = Registry.create(tmp_path / "registry")
    promote(registry, add(registry, tmp_path / "good.model"))
    append(tmp_path / "held.zarr", 100, 4)
    asked = Gates(verify=False, held_out=tmp_path / "held.zarr", accuracy=0.05, worse=0.05)
    line = evaluate(registry, add(registry, tmp_path / "bad.model"), asked)
    found = gate(line, "accuracy")
    assert not found.ok
    assert isinstance(found.figures, dict)
    assert found.figures["lost"] > 80
    assert found.figures["p_worse"] < 1e-20
    assert not gate(line, "worse").ok


def test_verify_is_a_gate(registry: Registry, three: Three) -> None:
    """It reads all rows; a forged model is refused by what it finds; rows that came since have to be trained on."""
    assert evaluate(registry, 3, Gates()).action == "passed"
    with pytest.raises(StoreError, match="has changed since version 2 was trained: retrain"):
        evaluate(registry, 2, Gates())
    folder = registry.folder(3)
    record = (folder / "model.json").read_text()
    lower = coremargin.load(folder).certificate.lower
    assert lower is not None
    (folder / "model.json").write_text(record.replace(repr(lower), repr(lower * 1.01)))
    line = evaluate(registry, 3, Gates(certified=False))
    assert line.action == "refused"
    assert line.comment.startswith("verify: ")


def test_gates_that_cannot_be_asked(registry: Registry, three: Three, tmp_path: Path) -> None:
    """A comparison without a held-out store, a store that is not there, one without labels: nothing is written down."""
    with pytest.raises(SpecError, match="accuracy: needs held_out"):
        specs.convert({"accuracy": 0.01}, Gates)
    with pytest.raises(SpecError, match="unknown key 'acuracy'; did you mean 'accuracy'"):
        specs.convert({"acuracy": 0.01}, Gates)
    before = registry.state().lines
    with pytest.raises(StoreError, match="expected a store, found nothing there"):
        evaluate(registry, 3, Gates(held_out=tmp_path / "none.zarr", accuracy=0.1))
    coremargin.ingest(np.zeros((3, 3)), tmp_path / "bare.zarr", unlabelled=True)
    with pytest.raises(LabelError, match="expected labelled rows"):
        evaluate(registry, 3, Gates(held_out=tmp_path / "bare.zarr", accuracy=0.1))
    with pytest.raises(DataError, match="has no version 9"):
        evaluate(registry, 9, Gates())
    assert registry.state().lines == before


def test_drift_is_that_of_the_new_rows(tmp_path: Path) -> None:
    """Means, spreads and shares of the rows that came, from statistics alone, are those of the rows themselves."""
    store = tmp_path / "rows.zarr"
    append(store, 130, 1)
    coremargin.train(store, out=tmp_path / "old.model")
    append(store, 70, 2, shift=3.0)
    coremargin.train(store, out=tmp_path / "new.model")
    old, new = Store.open(store, commit=0), Store.open(store)
    found = drift(old, new, coremargin.load(tmp_path / "old.model"), coremargin.load(tmp_path / "new.model"))
    X, codes = new.rows_at(np.arange(200))
    mean, deviation = X[:130].mean(axis=0), X[:130].std(axis=0)
    assert found.features[0].feature == "feature 2"
    for one in found.features:
        j = int(one.feature.split()[1])
        assert one.mean_shift == pytest.approx((X[130:, j].mean() - mean[j]) / deviation[j], abs=1e-9)
        assert one.spread == pytest.approx(X[130:, j].std() / deviation[j], abs=1e-9)
    for one in found.classes:
        code = new.classes.index(one.label)
        assert one.new == pytest.approx((codes[130:] == code).mean())
        assert one.before == pytest.approx((codes[:130] == code).mean())
    model = coremargin.load(tmp_path / "old.model")
    inside = np.abs(model.decision_function(X[130:])) < model.certificate.lower
    assert found.within_margin == pytest.approx(inside.mean())
    assert found.hyperplane is not None
    assert found.hyperplane.degrees > 0
    assert (found.before, found.appended) == (130, 70)
