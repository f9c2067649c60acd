"""Training with outliers on stores, and verification: true claims are confirmed, every false one is named."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coremargin
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import CheckpointError, ClaimRefuted, DataError, SpecError, UsageError
from coremargin.formats.outliers import outlier_counts
from coremargin.maths.outliers.ragged import Ragged
from coremargin.models.model import Model
from coremargin.problems.outliers.outlier_margin import OutlierMargin
from coremargin.problems.outliers.outlier_table import outlier_table
from coremargin.verify import verify
from coremargin.verify.examine import examine

WRONG = (3, 77, 140)


def rows() -> tuple[np.ndarray, list[str]]:
    """200 rows of 3 features with a margin of 0.4; three have the wrong label."""
    rng = np.random.default_rng(1)
    y = np.where(rng.random(200) < 0.5, 1, -1)
    X = rng.normal(size=(200, 3))
    X[:, 0] = y * (0.4 + np.abs(X[:, 0]))
    X[list(WRONG), 0] = -2.0 * y[list(WRONG)]
    return X.astype(np.float32), ["b" if one > 0 else "a" for one in y]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows in 13 chunks."""
    path = tmp_path_factory.mktemp("outliers") / "s.zarr"
    X, labels = rows()
    with StoreWriter.create(path, features=3, dtype="float32", chunk_bytes=16 * 12) as writer:
        writer.write(X, labels)
    return path


@pytest.fixture(scope="module")
def model(store: Path) -> Path:
    """A path over k = 0..4; the model is that of 4."""
    out = store.parent / "m"
    coremargin.train(store, out=out, outliers="0..4", epsilon=1e-6, cluster="threads")
    return out


def altered(model: Path, place: Path, **arrays: Callable[[np.ndarray], np.ndarray]) -> Path:
    """A copy of a model with other arrays about outliers."""
    shutil.copytree(model, place)
    with np.load(place / "arrays.npz") as found:
        content = dict(found)
    for name, change in arrays.items():
        content[f"outliers_{name}"] = change(content[f"outliers_{name}"].copy())
    np.savez(place / "arrays.npz", **content)
    return place


def put(place: Any, value: Any) -> Callable[[np.ndarray], np.ndarray]:
    """A change of one element."""

    def change(values: np.ndarray) -> np.ndarray:
        values[place] = value
        return values

    return change


def test_a_path_is_proven_and_verified(model: Path, store: Path) -> None:
    """Bounds for every k, the wrong labels as the rows left out, all of it confirmed by code of its own."""
    found = outlier_table(Model.load(model))
    assert [step.k for step in found.steps] == [0, 1, 2, 3, 4]
    assert [step.lower is None for step in found.steps] == [True, True, True, False, False]
    assert set(WRONG) <= {row.id for row in found.rows}
    assert [row.margin for row in found.rows] == sorted(row.margin for row in found.rows)
    labels = rows()[1]
    assert all(row.label == labels[row.id] for row in found.rows)
    result = verify(model, store)
    names = [check.name for check in result.checks]
    assert {f"upper bound with {k} outliers" for k in range(5)} <= set(names)
    assert {f"lower bound with {k} outliers" for k in (3, 4)} <= set(names)
    assert "rows left out" in names
    assert result.upper == pytest.approx(found.steps[-1].upper)


@pytest.mark.parametrize(
    ("changes", "name", "text"),
    [
        ({"lower": put(-2, 0.5)}, "lower bound with 3 outliers", "model claims all but 3"),
        ({"upper": put(0, -1.0)}, "upper bound with 0 outliers", "at most"),
        ({"proof_leaves": lambda v: v + np.array([-1, 0, 0, 0, 1])}, "upper bound with 1 outliers", "certificates at"),
        ({"proof_leaves": lambda v: v * 0 + len(v)}, "proof of the upper bounds", "leaves are missing"),
        ({"proof_proofs": lambda v: v * 0}, "upper bound with 4 outliers", "certificates at a leaf"),
        ({"proof_proofs": lambda v: v + 1000}, "upper bound with 4 outliers", "a certificate that is not there"),
        ({"proof_rows": lambda v: v + 10_000}, "proof of the upper bounds", "rows that are not there"),
        ({"proof_weights": lambda v: v * 0.5}, "proof of the upper bounds", "do not sum to 1"),
        ({"proof_weights": lambda v: -v}, "proof of the upper bounds", "a weight below 0"),
        ({"ids": put(0, 5)}, "rows left out", "is missing"),
        ({"margins": put(1, -9.0)}, "rows left out", "of another label or margin"),
        ({"signs": lambda v: -v}, "rows left out", "of another label or margin"),
        ({"ids": put(-1, 10**9)}, "rows left out", "not in the store"),
        (dict.fromkeys(("ids", "signs", "margins", "gains"), lambda v: np.append(v, v.dtype.type(1))),
         "rows left out", "names 5 rows, more than 4"),
        ({"w": lambda v: v[:, ::-1]}, "outliers", "not that of its 4 outliers"),
    ],
)  # fmt: skip
def test_false_claims_are_named(
    model: Path, store: Path, tmp_path: Path, changes: dict[str, Any], name: str, text: str
) -> None:
    """A larger margin, a smaller bound, or a proof that was tampered with is refuted, and said how."""
    place = altered(model, tmp_path / "bad", **changes)
    failures = [check for check in examine(place, store).checks if not check.ok]
    assert any(check.name.startswith(name) and text in check.text for check in failures), failures
    with pytest.raises(ClaimRefuted, match="false"):
        verify(place, store)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"w": put((0, 0), np.nan)}, "outliers_w: expected finite"),
        ({"b": put(-2, np.nan)}, "outliers_b: expected finite"),
        ({"lower": put(0, np.nan)}, "lower: expected margins"),
        ({"lower": put(-2, np.inf)}, "lower: expected margins"),
        ({"upper": put(0, -np.inf)}, "upper: expected bounds"),
        ({"ids": lambda v: v[[0, 0, *range(2, len(v))]]}, "named more than once"),
        ({"margins": lambda v: v[1:]}, "margins: expected shape"),
        ({"proof_proofs_ends": lambda v: v[::-1]}, "proofs_ends: expected ends of parts"),
    ],
)  # fmt: skip
def test_claims_that_nothing_could_refute_are_no_claims(
    model: Path, store: Path, tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    """No row is below a margin that is not a number, for any k: such a model is refused."""
    with pytest.raises((DataError, ClaimRefuted), match=text):
        verify(altered(model, tmp_path / "bad", **changes), store)


def test_a_row_that_is_there_twice_proves_nothing(model: Path, store: Path, tmp_path: Path) -> None:
    """Copies of one contradiction, as if they were of other rows, do not prove that more rows have to go."""
    place = tmp_path / "twice"
    shutil.copytree(model, place)
    with np.load(place / "arrays.npz") as found:
        content = dict(found)
    for name in ("coreset_ids", "coreset_x", "coreset_y", "alpha"):
        content[name] = np.concatenate([content[name], content[name][:1] * (name != "alpha")])
    np.savez(place / "arrays.npz", **content)
    record = json.loads((place / "model.json").read_text())
    record["certificate"]["coreset_rows"] += 1
    (place / "model.json").write_text(json.dumps(record))
    failures = [check.text for check in examine(place, store).checks if not check.ok]
    assert any("a row twice, which would count as two" in text for text in failures), failures


def test_a_leaf_that_is_missing_leaves_a_choice_uncovered(store: Path, tmp_path: Path) -> None:
    """Without one of its leaves a proof is incomplete."""
    out = tmp_path / "deep"
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(60, 4)), np.where(rng.random(60) < 0.5, 1, -1)
    X[:, 0] += 3.0 * y
    coremargin.train(X, y, out=out, outliers=4, epsilon=0)
    place = tmp_path / "deep.zarr"
    with StoreWriter.create(place, features=4, dtype="float64", chunk_bytes=1 << 20) as writer:
        writer.write(X, y.tolist())
    ledger = Model.load(out).numbers
    paths, proofs = ledger["outliers_proof_paths_ends"], ledger["outliers_proof_proofs_ends"]
    assert len(paths) > 1
    fewer = altered(
        out, tmp_path / "fewer", proof_paths=lambda v: v[: paths[-2]], proof_paths_ends=lambda v: v[:-1],
        proof_proofs=lambda v: v[: proofs[-2]], proof_proofs_ends=lambda v: v[:-1], proof_leaves=lambda v: v - 1,
    )  # fmt: skip
    assert all(check.ok for check in examine(out, place).checks if check.name.startswith("upper"))
    bad = [check for check in examine(fewer, place).checks if check.name.startswith("upper")]
    twice = altered(out, tmp_path / "twice", proof_paths=lambda v: v * 0)
    assert any("decides about a row twice" in check.text for check in examine(twice, place).checks)
    assert [check.ok for check in bad] == [False]
    assert "a choice is not covered" in bad[0].text


def test_without_its_proof_a_bound_is_no_claim(model: Path, store: Path, tmp_path: Path) -> None:
    """Exit code 0 is for what was checked: a bound without its proof is false, be it as high as it likes."""
    place = tmp_path / "short"
    shutil.copytree(model, place)
    with np.load(place / "arrays.npz") as found:
        content = {name: values for name, values in found.items() if "_proof_" not in name}
    content["outliers_upper"] = content["outliers_upper"] * 0 + 1e9
    np.savez(place / "arrays.npz", **content)
    failures = {check.name: check.text for check in examine(place, store).failures}
    assert {f"upper bound with {k} outliers" for k in range(5)} <= set(failures)
    assert "holds no proof of it" in failures["upper bound with 4 outliers"]
    with pytest.raises(ClaimRefuted):
        verify(place, store)


@pytest.fixture(scope="module")
def hard(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A path over k = 0..8 that was stopped, on rows that are no outliers; and their store."""
    place = tmp_path_factory.mktemp("hard")
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(200, 5)), np.where(rng.random(200) < 0.5, 1, -1)
    X[:, 0] += y
    with StoreWriter.create(place / "s.zarr", features=5, dtype="float64", chunk_bytes=1 << 20) as writer:
        writer.write(X, y.tolist())
    work, left = OutlierMargin.work, list(range(14))

    def interrupted(self: OutlierMargin, state: Any, run: Any) -> Iterator[Any]:
        for step in work(self, state, run):
            yield step
            if not left:
                raise KeyboardInterrupt
            left.pop()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OutlierMargin, "work", interrupted)
        coremargin.train(place / "s.zarr", out=place / "m", outliers="0..8", epsilon=1e-9, cluster="threads")
    return place / "m", place / "s.zarr"


def test_bounds_of_a_stopped_path_do_not_fall(hard: tuple[Path, Path]) -> None:
    """The model has them in order for every k; those without a proof of their own rest on that of a larger k."""
    found = outlier_table(Model.load(hard[0]))
    lower, upper = np.array([[step.lower or 0.0, step.upper or np.inf] for step in found.steps]).T
    leaves = Model.load(hard[0]).numbers["outliers_proof_leaves"]
    assert (np.diff(lower) >= 0).all()
    assert (upper[:-1] <= upper[1:]).all()
    assert (lower <= upper).all()
    result = verify(*hard)
    borrowed = [check for check in result.checks if check.name.startswith("upper") and "so for fewer" in check.text]
    assert len(borrowed) == (leaves == 0).sum()
    assert not [text for text in result.unchecked if text.startswith("the upper bound")]


def test_a_proof_for_more_outliers_is_one_for_fewer(model: Path, store: Path, tmp_path: Path) -> None:
    """The proof for 4 alone proves its bound for 3 too, and no lower one; that for 3 proves nothing about 4."""
    ledger = Model.load(model).numbers
    upper, leaves = ledger["outliers_upper"], ledger["outliers_proof_leaves"]
    assert leaves.min() > 0
    assert upper[3] < upper[4]

    def without(k: int) -> dict[str, Any]:
        first = int(leaves[:k].sum())
        kept = np.delete(np.arange(leaves.sum()), np.arange(first, first + leaves[k]))
        changes: dict[str, Any] = {"proof_leaves": put(k, 0)}
        for name in ("proof_paths", "proof_proofs"):
            lists = Ragged(ledger[f"outliers_{name}"], ledger[f"outliers_{name}_ends"]).take(kept)
            changes |= {name: partial(lambda values, _: values, lists.values)}
            changes |= {f"{name}_ends": partial(lambda ends, _: ends, lists.ends)}
        return changes

    higher = altered(model, tmp_path / "higher", **without(3), upper=put(3, upper[4]))
    found = examine(higher, store)
    texts = [check.text for check in found.checks if check.name == "upper bound with 3 outliers"]
    assert len(texts) == 1
    assert "for 4 outliers, so for fewer" in texts[0]
    assert [check.name for check in found.failures] == ["outliers"]  # so high a bound does not certify 3
    for k in (3, 4):
        failures = examine(altered(model, tmp_path / f"without {k}", **without(k)), store).failures
        assert f"upper bound with {k} outliers" in {check.name for check in failures}
    false = altered(model, tmp_path / "false", upper=lambda v: np.append(v[:4], v[3]))
    with pytest.raises(ClaimRefuted):
        verify(false, store)


def test_too_few_outliers_are_a_proof_too(store: Path, tmp_path: Path) -> None:
    """Two of three wrong labels may go: proven to be too few, by three contradictions without a common row."""
    found = coremargin.train(store, out=tmp_path / "m", outliers=2, cluster="threads")
    assert (found.status, found.certificate.kind, found.certificate.lower) == ("not_separable", "not_separable", None)
    assert verify(tmp_path / "m", store).ok


@pytest.mark.parametrize(
    ("asked", "rows", "counts"),
    [(10, None, (10,)), ("10", None, (10,)), ("1%", 2000, (20,)), ("0.1%", 1999, (1,)), ("0..3", None, (0, 1, 2, 3)),
     ("5, 0,2", None, (0, 2, 5)), ((3, 1), None, (1, 3)), ("0", None, (0,)), ("29%", 100, (29,)), ("5e-1%", 200, (1,)),
     (np.int64(7), None, (7,)), (np.array(7), None, (7,)), (np.array([4, 2], np.uint8), None, (2, 4)),
     (range(2, 0, -1), None, (1, 2)), ([np.int32(3), 1], None, (1, 3))],
)  # fmt: skip
def test_numbers_of_outliers(asked: Any, rows: int | None, counts: tuple[int, ...]) -> None:
    """Numbers, shares, ranges, lists and arrays, in increasing order, as plain numbers."""
    found = outlier_counts(asked, None if rows is None else lambda: rows)
    assert found == counts
    assert {type(k) for k in found} == {int}


@pytest.mark.parametrize(
    "asked",
    [-1, "-1", "x", "3..1", "1,1", "60%", "50%", "-1%", "nan%", "inf%", "%", "1/2%", "", "1.5", "0..5000", (), 1.5,
     np.float64(2), np.array([1.0, 2.0]), np.array([[1, 2]]), np.array([], int), range(1001), ["1"],
     "1_0%", "\uff11%", "\u0663%", "1_0", "\uff11", list(range(5000)), "9" * 5000, "0..." + "9" * 5000],
)  # fmt: skip
def test_wrong_numbers_of_outliers_are_refused(asked: Any) -> None:
    """What is no number of rows is refused with what is expected, in a few lines."""
    with pytest.raises(ValueError, match="outliers: expected") as caught:
        outlier_counts(asked)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("asked", [np.int64(2), range(3), np.arange(3), [np.int64(0), np.int64(2)], (0, 1, 2)])
def test_numbers_may_be_those_of_numpy(asked: Any) -> None:
    """Wherever a number or a list may be given to ``train``; the model's record has plain ones."""
    X, labels = rows()
    found = coremargin.train(X, labels, outliers=asked, epsilon=np.float32(0.5))
    plain = json.loads(json.dumps(found.parameters))["outliers"]
    assert plain == (2 if isinstance(asked, np.int64) else list(map(int, asked)))


def test_a_share_is_of_the_rows_that_count(tmp_path: Path) -> None:
    """Rows without a label, or of weight 0, are no candidates: they do not raise the number."""
    X, labels = rows()
    some: list[Any] = [label if i % 2 else None for i, label in enumerate(labels)]
    with StoreWriter.create(tmp_path / "some.zarr", features=3, dtype="float32", chunk_rows=20) as writer:
        writer.write(X, some)
    found = coremargin.train(tmp_path / "some.zarr", outliers="2%", cluster="threads")
    assert [step.k for step in outlier_table(found).steps] == [2]
    weighted = coremargin.train(X, labels, weights=(np.arange(200) % 4 > 0).astype(float), outliers="2%")
    assert [step.k for step in outlier_table(weighted).steps] == [3]
    assert [step.k for step in outlier_table(coremargin.train(X, labels, outliers="2%")).steps] == [4]


def test_jobs_that_make_no_sense_are_refused(store: Path, tmp_path: Path) -> None:
    """Outliers with a loss, negative ones, as many as a class; before anything is read."""
    for keys in ({"outliers": -1}, {"outliers": 1, "loss": "hinge"}, {"outlier_search": "exact"}, {"outliers": "1,x"}):
        with pytest.raises(SpecError, match="outlier"):
            coremargin.train(store, out=tmp_path / "m", **keys)
    with pytest.raises(UsageError, match="with all of it excluded the margin has no bound"):
        coremargin.train(store, out=tmp_path / "m", outliers=150)


@pytest.mark.slow
def test_interrupted_while_it_searches(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the search leaves the best answer, its bounds and a checkpoint, from which the same bits come."""
    whole = coremargin.train(store, out=tmp_path / "whole", outliers="2..9", epsilon=1e-6, cluster="threads")
    work = OutlierMargin.work
    steps = []

    def interrupted(self: OutlierMargin, state: Any, run: Any) -> Iterator[Any]:
        for step in work(self, state, run):
            yield step
            steps.append(step)
            if len(steps) == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(OutlierMargin, "work", interrupted)
    stopped = coremargin.train(store, out=tmp_path / "m", outliers="2..9", epsilon=1e-6, cluster="threads")
    assert stopped.status == "stopped"
    assert stopped.certificate.lower == pytest.approx(whole.certificate.lower)
    assert verify(tmp_path / "m", store).ok
    with pytest.raises(CheckpointError, match="outliers was"):
        coremargin.train(store, out=tmp_path / "m", outliers=5, begin="resume", cluster="threads")
    job = {"outliers": "2..9", "epsilon": 1e-6, "cluster": "threads"}
    again = coremargin.train(store, out=tmp_path / "m", begin="resume", **job)
    assert again.status == "certified"
    for name, values in whole.arrays().items():
        assert values.tobytes() == again.arrays()[name].tobytes(), name


@pytest.mark.slow
def test_a_time_limit_ends_the_search(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of time between two rounds of the search, there is a model with true bounds."""
    work = OutlierMargin.work

    def slow(self: OutlierMargin, state: Any, run: Any) -> Iterator[Any]:
        for step in work(self, state, run):
            time.sleep(0.7)
            yield step

    monkeypatch.setattr(OutlierMargin, "work", slow)
    job = {"outliers": "2..20", "epsilon": 1e-6, "cluster": "threads", "time_limit": 3.0}
    stopped = coremargin.train(store, out=tmp_path / "m", **job)
    assert stopped.status == "stopped"
    assert any(step.upper is None for step in outlier_table(stopped).steps)
    assert verify(tmp_path / "m", store).ok


def test_the_same_bits_on_workers(store: Path, tmp_path: Path, embedded: Any) -> None:
    """A cluster's workers give the model of this process, to the bit."""
    address = embedded.client.scheduler.address
    here = coremargin.train(store, outliers=4, epsilon=1e-6, cluster="threads")
    there = coremargin.train(store, outliers=4, epsilon=1e-6, cluster=address)
    assert Store.open(store).rows == here.rows
    for name, values in here.arrays().items():
        assert values.tobytes() == there.arrays()[name].tobytes(), name


def small_integers(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows on a grid whose labels are noise to a good part: equal rows with either label among them."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 6, (300, 4)).astype(float)
    return x, (x[:, 0] + x[:, 1] + 2 * rng.normal(size=300) > 5).astype(int)


#: Rows that cancel exactly, beside rows that do so but for rounding; how many are left out; whether with an intercept.
CANCELLING: dict[str, tuple[tuple[np.ndarray, np.ndarray], int | str, bool]] = {
    **{f"a grid, {seed}": (small_integers(seed), 3, True) for seed in range(6)},
    "a row at the origin": ((np.array([[0.0], [-2.0], [-1.0], [-1.0]]), np.array([0, 1, 0, 1])), 1, False),
    "a path": (
        (np.array([[0.0], [-2], [1], [-2], [2], [-2], [2], [-1]]), np.array([0, 1, 0, 0, 1, 1, 0, 1])), "0..2", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CANCELLING)
def test_contradictions_that_are_exact_and_others_prove_the_same(tmp_path: Path, name: str) -> None:
    """That nothing separates the rows is confirmed, though one certificate's rows leave no room for rounding at all."""
    (x, y), outliers, intercept = CANCELLING[name]
    coremargin.ingest(x, tmp_path / "s.zarr", labels=y)
    model = coremargin.train(tmp_path / "s.zarr", out=tmp_path / "m", outliers=outliers, intercept=intercept)
    assert verify(tmp_path / "m", tmp_path / "s.zarr").ok
    assert model.status == "not_separable" or isinstance(outliers, str)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("outliers", [1, "0..1"])
def test_a_long_row_elsewhere_makes_no_margin_zero(tmp_path: Path, outliers: int | str, intercept: bool) -> None:
    """A bound of 1e-5 is no proof that nothing separates the rows, though one of them is 1e10 long: it says so."""
    turn = np.array([[np.cos(0.7), -np.sin(0.7)], [np.sin(0.7), np.cos(0.7)]])
    heights = [0.0, 1.0, -1.0, 0.3, -0.7, 1.0, 1e10, 1e10, 0.1]
    y = np.array([1, 1, 1, 0, 0, 0, 1, 0, 1])
    x = np.column_stack([[1e-5, 1e-5, 1e-5, -1e-5, -1e-5, -1e-5, 1e-5, -1e-5, -1e-5], heights]) @ turn.T
    coremargin.ingest(x, tmp_path / "s.zarr", labels=y, dtype="float64")
    model = coremargin.train(tmp_path / "s.zarr", out=tmp_path / "m", outliers=outliers, intercept=intercept)
    assert model.status == "stopped"
    assert json.loads((tmp_path / "m/run.json").read_text())["word"] == "stalled"
    assert verify(tmp_path / "m", tmp_path / "s.zarr").ok


def test_a_feature_that_separates_is_not_hidden_by_a_larger_one(tmp_path: Path) -> None:
    """That some number of outliers leaves no margin needs a proof for each feature, also in a certified model."""
    rng = np.random.default_rng(0)
    y = np.where(np.arange(40) % 2, 1, -1)
    x = np.column_stack([rng.standard_normal(40) * 1e15, y + rng.uniform(-0.3, 0.3, 40)])
    coremargin.ingest(x, tmp_path / "s.zarr", labels=y, dtype="float64")
    model = coremargin.train(tmp_path / "s.zarr", out=tmp_path / "m", outliers="0..1", epsilon=0.6)
    assert model.status == "certified"
    assert examine(tmp_path / "m", tmp_path / "s.zarr").ok
    found = examine(altered(tmp_path / "m", tmp_path / "f", lower=put(0, -1.0)), tmp_path / "s.zarr")
    assert [check.name for check in found.checks if not check.ok] == ["upper bound with 0 outliers"]
