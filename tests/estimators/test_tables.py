"""Tables with words, dates and gaps in the estimator: the model is that of their store, and goes with scikit-learn."""

from __future__ import annotations

import pickle  # noqa: TID251  what users do with estimators
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC

import coremargin
from coremargin.errors import BadRow, ColumnsUnclear, DataError, LabelError, UsageError
from coremargin.estimators import KernelCoresetClassifier, MarginCoresetClassifier
from coremargin.models.evaluate import evaluate
from table_kit import SMALL, WORDS, mixed, penguins, small

COLUMNS: dict[str, Any] = {"categorical": "auto", "missing": "median"}


@pytest.fixture(scope="module")
def birds() -> pd.DataFrame:
    """Palmer's penguins."""
    return penguins()


@pytest.fixture(scope="module")
def fitted(birds: pd.DataFrame) -> MarginCoresetClassifier:
    """A machine that was fitted to their species."""
    machine = MarginCoresetClassifier(loss="hinge", scaling="standard", columns=COLUMNS)
    return machine.fit(birds.drop(columns="species"), birds["species"])


@pytest.fixture(autouse=True)
def own_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files in which nothing else lies."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.specimens(1)
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_the_model_of_a_table_is_verified_against_its_store(
    loss: str, rng: np.random.Generator, tmp_path: Path, own_temporary_files: Path
) -> None:
    """Ingested with the same words, the rows are those that the certificate is about; ``train`` gives the same bits."""
    frame, label = mixed(rng)
    machine = MarginCoresetClassifier(loss=loss, columns=WORDS).fit(frame, label)
    assert list(own_temporary_files.iterdir()) == []
    assert machine.model_.status == "certified"
    machine.model_.save(tmp_path / "rows.model")
    coremargin.ingest(frame, tmp_path / "rows.zarr", labels=label.to_numpy(), **WORDS)
    assert coremargin.verify(tmp_path / "rows.model", tmp_path / "rows.zarr").ok
    trained: Any = coremargin.train(frame, label.to_numpy(), columns=WORDS, loss=loss)  # type: ignore[arg-type]
    np.testing.assert_array_equal(machine.coef_[0], trained.w)
    np.testing.assert_array_equal(machine.predict(tmp_path / "rows.zarr"), machine.predict(frame))


def test_penguins_are_told_as_by_a_pipeline_with_a_column_transformer(birds: pd.DataFrame) -> None:
    """One-hot words, filled gaps, a feature for words that are missing, standard deviations: SVC's decision values."""
    two = birds[birds["species"] != "Gentoo"]
    rows, species = two.drop(columns="species"), two["species"]
    numbers = [name for name in rows if name not in ("island", "sex")]
    theirs = make_pipeline(
        make_column_transformer(
            (SimpleImputer(strategy="median"), numbers),
            (make_pipeline(SimpleImputer(strategy="constant", fill_value="?"), OneHotEncoder()), ["island", "sex"]),
        ),
        StandardScaler(), SVC(kernel="linear", C=0.1, tol=1e-8),
    ).fit(rows, species)  # fmt: skip
    ours = MarginCoresetClassifier(loss="hinge", C=0.1, scaling="standard", columns=COLUMNS, epsilon=1e-8)
    ours.fit(rows, species)
    np.testing.assert_allclose(ours.decision_function(rows), theirs.decision_function(rows), atol=2e-3)
    np.testing.assert_array_equal(ours.predict(rows), theirs.predict(rows))
    assert len(ours.get_feature_names_out()) == ours.coef_.shape[1] == theirs[-1].coef_.shape[1]


def circles(dates: pd.DataFrame) -> np.ndarray:
    """Years since 2000, the circle of the year, days of the week; as the table of README says."""
    days = (dates["since"] - pd.Timestamp("2000-01-01")).dt.days.to_numpy(float)
    year = days / 365.2425
    weekday = np.eye(7)[dates["since"].dt.dayofweek.to_numpy()]
    return np.column_stack([year, np.sin(2 * np.pi * year), np.cos(2 * np.pi * year), weekday])


def words_of(notes: pd.DataFrame) -> Any:
    """Prose as hashed counts."""
    vectorizer = HashingVectorizer(n_features=2**18, norm=None, alternate_sign=False)
    return vectorizer.transform(notes["note"])


@pytest.mark.slow
def test_columns_of_every_kind_are_told_as_by_a_pipeline(rng: np.random.Generator) -> None:
    """Gaps with indicators, categories, dates and prose: the decision values of the same rows made by scikit-learn."""
    frame, label = mixed(rng)
    theirs = make_pipeline(
        make_column_transformer(
            (SimpleImputer(strategy="mean", add_indicator=True), ["age"]),
            (make_pipeline(SimpleImputer(strategy="constant", fill_value="?"), OneHotEncoder()), ["job"]),
            (FunctionTransformer(circles), ["since"]),
            (make_pipeline(FunctionTransformer(words_of), TfidfTransformer()), ["note"]),
        ),
        SVC(kernel="linear", C=0.1, tol=1e-8),
    ).fit(frame.fillna({"job": "?"}), label)  # fmt: skip
    ours = MarginCoresetClassifier(loss="hinge", C=0.1, columns=WORDS, epsilon=1e-6).fit(frame, label)
    expected = theirs.decision_function(frame.fillna({"job": "?"}))
    np.testing.assert_allclose(ours.decision_function(frame), expected, atol=5e-3)


def test_columns_and_features_have_names(fitted: MarginCoresetClassifier, birds: pd.DataFrame) -> None:
    """``feature_names_in_`` are the columns as given; ``get_feature_names_out`` are what ``coef_`` has weights of."""
    given = birds.drop(columns="species").columns.tolist()
    assert fitted.feature_names_in_.tolist() == given
    assert fitted.n_features_in_ == len(given)
    names = fitted.get_feature_names_out().tolist()
    assert names[:3] == ["island=Biscoe", "island=Dream", "island=Torgersen"]
    assert {"sex=female", "sex=male", "sex (missing)", "year"} <= set(names)
    assert fitted.coef_.shape == (3, len(names))
    assert fitted.to_sklearn().feature_names_in_.tolist() == names
    with pytest.raises(ValueError, match="input_features is not equal to feature_names_in_"):
        fitted.get_feature_names_out(["a"] * len(given))


def test_features_of_arrays_are_numbered_and_those_of_frames_of_numbers_keep_their_names() -> None:
    """As scikit-learn's transformers name them."""
    X = np.array([[0.0, 1.0], [1.0, 0.0], [3.0, 2.0], [4.0, 1.0]])
    assert MarginCoresetClassifier().fit(X, [0, 0, 1, 1]).get_feature_names_out().tolist() == ["x0", "x1"]
    frame = pd.DataFrame(X, columns=["u", "v"])
    assert MarginCoresetClassifier().fit(frame, [0, 0, 1, 1]).get_feature_names_out().tolist() == ["u", "v"]


def test_labels_and_weights_may_be_columns(birds: pd.DataFrame) -> None:
    """By name they are what arrays of them are; tables with and without them are predicted."""
    frame = birds.assign(weight=1.0 + np.arange(len(birds)) % 3)
    machine = MarginCoresetClassifier(columns=COLUMNS)
    named = clone(machine).fit(frame, "species", "weight")
    beside = clone(machine).fit(birds.drop(columns="species"), birds["species"], frame["weight"])
    np.testing.assert_array_equal(named.coef_, beside.coef_)
    assert named.feature_names_in_.tolist() == beside.feature_names_in_.tolist()
    rows = birds.drop(columns="species")
    np.testing.assert_array_equal(named.predict(frame), beside.predict(rows))
    np.testing.assert_array_equal(named.predict(rows), beside.predict(rows))


def test_weights_are_copies_of_rows(rng: np.random.Generator) -> None:
    """A row of weight 2 is that row twice; one number is the weight of all."""
    frame, label = small(rng, 120)
    frame = frame.fillna({"age": 40.0})  # what fills gaps would not be the same
    machine = MarginCoresetClassifier(columns=SMALL, epsilon=1e-8)
    twice = pd.Series(np.arange(120) % 2 == 0)
    double, more = pd.concat([frame, frame[twice]]), pd.concat([label, label[twice]])
    expected, ours = clone(machine).fit(double, more), clone(machine).fit(frame, label, 1.0 + twice)
    np.testing.assert_allclose(ours.coef_, expected.coef_, atol=1e-4)
    assert not np.allclose(ours.coef_, clone(machine).fit(frame, label).coef_, atol=1e-3)
    one, three = clone(machine).fit(frame, label, 3), clone(machine).set_params(C=3.0).fit(frame, label)
    np.testing.assert_allclose(one.coef_, three.coef_, atol=1e-4)


@pytest.mark.parametrize("class_weight", ["balanced", {"Adelie": 3.0}])
@pytest.mark.parametrize("classes", [2, 3])
def test_weights_of_classes_are_those_of_the_same_rows(birds: pd.DataFrame, class_weight: Any, classes: int) -> None:
    """The encoded rows as an array, with the same weights of classes, have the same answer."""
    rows = birds[birds["species"] != "Gentoo"] if classes == 2 else birds
    machine = MarginCoresetClassifier(columns=COLUMNS, class_weight=class_weight, epsilon=1e-6)
    machine.fit(rows.drop(columns="species"), rows["species"])
    with tempfile.TemporaryDirectory() as folder:
        coremargin.ingest(rows, Path(folder) / "rows.zarr", label="species", **COLUMNS)
        encoded = np.array(coremargin.Store.open(Path(folder) / "rows.zarr").read(0)[0])
    array = clone(machine).set_params(columns=None).fit(encoded, rows["species"])
    np.testing.assert_array_equal(machine.coef_, array.coef_)
    np.testing.assert_array_equal(machine.support_, array.support_)
    np.testing.assert_array_equal(machine.coreset_, array.coreset_)


@pytest.mark.slow
def test_searches_choose_what_becomes_of_columns(birds: pd.DataFrame) -> None:
    """GridSearchCV goes over ``columns`` as over C, in pipelines too; the winner predicts frames."""
    rows, species = birds.drop(columns="species"), birds["species"]
    grid = {
        "margincoresetclassifier__C": [0.01, 1.0],
        "margincoresetclassifier__columns": [COLUMNS, {"categorical": "auto", "missing": "indicator"}],
    }
    pipeline = make_pipeline(MarginCoresetClassifier(scaling="standard"))
    search = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(rows, species)
    assert search.best_score_ > 0.97
    assert search.n_features_in_ == rows.shape[1]
    assert search.best_estimator_.feature_names_in_.tolist() == rows.columns.tolist()
    assert search.score(rows, species) > 0.98
    machine = MarginCoresetClassifier(scaling="standard", columns={**COLUMNS, "drop": ["year", "island"]})
    assert cross_val_score(machine, rows, species, cv=3, error_score="raise").min() > 0.95


def test_parameters_are_kept_as_they_were_given(fitted: MarginCoresetClassifier, birds: pd.DataFrame) -> None:
    """``columns`` is stored untouched, copied by clones, set by ``set_params``; pickles predict the same."""
    machine = MarginCoresetClassifier(columns=COLUMNS)
    assert machine.get_params()["columns"] is COLUMNS
    copied = clone(machine)
    assert copied.columns == COLUMNS
    assert copied.columns is not COLUMNS
    assert copied.set_params(columns=None).columns is None
    again = pickle.loads(pickle.dumps(fitted))  # noqa: S301  our own bytes
    rows = birds.drop(columns="species")
    np.testing.assert_array_equal(again.decision_function(rows), fitted.decision_function(rows))
    assert again.model_.columns == fitted.model_.columns


@pytest.mark.slow
def test_skops_keeps_the_columns(fitted: MarginCoresetClassifier, birds: pd.DataFrame, tmp_path: Path) -> None:
    """A machine of a table goes through skops, which asks for trust in our own types only."""
    skops = pytest.importorskip("skops.io")
    skops.dump(fitted, tmp_path / "machine.skops")
    strangers = skops.get_untrusted_types(file=tmp_path / "machine.skops")
    assert all(name.startswith("coremargin.") for name in strangers)
    again = skops.load(tmp_path / "machine.skops", trusted=strangers)
    np.testing.assert_array_equal(again.predict(birds.drop(columns="species")), fitted.predict(
        birds.drop(columns="species")
    ))  # fmt: skip


def test_another_order_is_put_right(fitted: MarginCoresetClassifier, birds: pd.DataFrame) -> None:
    """Columns are found by their names."""
    rows = birds.drop(columns="species")
    turned = rows[rows.columns[::-1]]
    np.testing.assert_array_equal(fitted.decision_function(turned), fitted.decision_function(rows))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"drop": "island"}, "'island' is missing"),
        ({"rename": {"island": "Island"}}, r"'island' is missing \(is it 'Island' here\?\), 'Island' is not known"),
        ({"assign": {"more": 1.0}}, "'more' is not known"),
    ],
)
def test_other_columns_are_refused_with_the_difference(
    fitted: MarginCoresetClassifier, birds: pd.DataFrame, change: dict[str, Any], said: str
) -> None:
    """Missing, renamed and further columns are named, also of files."""
    rows = birds.drop(columns=["species", *([change["drop"]] if "drop" in change else [])])
    rows = rows.rename(columns=change.get("rename", {})).assign(**change.get("assign", {}))
    with pytest.raises(DataError, match=f"^X: other columns than those of the model: .*{said}"):
        fitted.predict(rows)
    with pytest.raises(DataError, match=f"other columns than those of the model: .*{said}"):
        fitted.predict(iter([rows]))


def test_columns_that_are_dropped_may_be_there_or_not(birds: pd.DataFrame, tmp_path: Path) -> None:
    """They are columns as given, and no features; by name or by number."""
    rows, species = birds.drop(columns="species"), birds["species"]
    for dropped, names in (("year", ["year"]), (["year", 0], ["island", "year"])):
        machine = MarginCoresetClassifier(columns={**COLUMNS, "drop": dropped}).fit(rows, species)
        assert list(machine.dropped_columns_) == names
        assert machine.feature_names_in_.tolist() == rows.columns.tolist()
        assert not any(name.startswith(tuple(names)) for name in machine.get_feature_names_out())
        np.testing.assert_array_equal(machine.predict(rows), machine.predict(rows.drop(columns=names)))
    birds.to_csv(tmp_path / "birds.csv", index=False)
    by_file = MarginCoresetClassifier(columns={**COLUMNS, "drop": "year"}).fit(tmp_path / "birds.csv", "species")
    np.testing.assert_array_equal(by_file.predict(tmp_path / "birds.csv"), by_file.predict(rows))


def test_unseen_categories_are_others_or_refused(birds: pd.DataFrame) -> None:
    """By default a new category is none of those there were; ``unknown`` refuses it by its row."""
    rows, species = birds.drop(columns="species"), birds["species"]
    strange = rows.assign(island=["Mars", *rows["island"][1:]])
    machine = MarginCoresetClassifier(columns=COLUMNS).fit(rows, species)
    assert machine.predict(strange).shape == (len(rows),)
    machine.set_params(columns={**COLUMNS, "unknown": "refuse"}).fit(rows, species)
    with pytest.raises(BadRow, match="X, row 0, column 'island': found 'Mars'"):
        machine.predict(strange)


def test_what_needs_a_word_is_named_with_words_that_would_do(birds: pd.DataFrame) -> None:
    """All columns at once, and a mapping that works; what was said already is in it."""
    rows, species = birds.drop(columns="species"), birds["species"]
    with pytest.raises(ColumnsUnclear, match="these columns need a decision on how to encode them") as caught:
        MarginCoresetClassifier().fit(rows, species)
    assert caught.value.__notes__ == ["for instance: columns={'categorical': ['island', 'sex'], 'missing': 'median'}"]
    with pytest.raises(ColumnsUnclear) as caught:
        MarginCoresetClassifier(columns={"categorical": "island"}).fit(rows, species)
    assert caught.value.__notes__ == ["for instance: columns={'categorical': ['island', 'sex'], 'missing': 'median'}"]
    assert MarginCoresetClassifier(columns={"categorical": ["island", "sex"], "missing": "median"}).fit(rows, species)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"category": "sex"}, "columns: unknown option 'category', expected some of categorical, dates"),
        ("auto", "columns: expected a mapping such as .*, got str"),
        ({"categorical": "isle"}, "no column named 'isle': the columns are 'island'"),
        ({**COLUMNS, "unknown": "ignore"}, "unknown='ignore': expected one of other, refuse"),
    ],
)
def test_words_that_there_are_not_are_refused(birds: pd.DataFrame, columns: Any, said: str) -> None:
    """As on the command line."""
    with pytest.raises(UsageError, match=said):
        MarginCoresetClassifier(columns=columns).fit(birds.drop(columns="species"), birds["species"])


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA])
@pytest.mark.parametrize("named", [True, False])
def test_labels_with_gaps_are_refused_by_their_row(birds: pd.DataFrame, gap: Any, named: bool) -> None:
    """Beside the table or in it."""
    species = birds["species"].astype("string" if gap is pd.NA else object)
    species[5] = gap
    rows = birds.drop(columns="species")
    machine = MarginCoresetClassifier(columns=COLUMNS)
    with pytest.raises(LabelError, match="DataFrame, row 5: found no label, expected one for every row"):
        machine.fit(*((rows.assign(species=species), "species") if named else (rows, species)))


def test_labels_that_cannot_be_used_are_refused(birds: pd.DataFrame) -> None:
    """None, too few, one class, measurements, a column that there is not."""
    rows, species = birds.drop(columns="species"), birds["species"]
    machine = MarginCoresetClassifier(columns=COLUMNS)
    with pytest.raises(UsageError, match="expected labels of the rows, or the name of the column with labels"):
        machine.fit(rows)
    with pytest.raises(DataError, match="DataFrame holds 344 rows, labels holds 10 labels"):
        machine.fit(rows, species[:10])
    with pytest.raises(LabelError, match="expected two classes, found 1 class, 'Adelie'"):
        machine.fit(rows[:50], species[:50])
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        machine.fit(rows, np.linspace(0.0, 1.5, len(rows)))
    with pytest.raises(UsageError, match="no column named 'specie'"):
        machine.fit(birds, "specie")


def test_words_are_not_for_arrays(birds: pd.DataFrame) -> None:
    """An array has no columns to speak of; {} says nothing of them, and changes nothing."""
    X, y = np.array([[0.0], [1.0], [3.0], [4.0]]), [0, 0, 1, 1]
    with pytest.raises(UsageError, match="categorical, dates, text and missing do not apply to array"):
        MarginCoresetClassifier(columns=COLUMNS).fit(birds.to_numpy(), birds["species"])
    nothing = MarginCoresetClassifier(columns={}).fit(X, y)
    np.testing.assert_array_equal(nothing.coef_, MarginCoresetClassifier().fit(X, y).coef_)


def test_frames_of_numbers_are_arrays_unless_something_is_said_of_columns(rng: np.random.Generator) -> None:
    """Without ``columns`` they have scikit-learn's checks; with {} they have columns, put in order by name."""
    frame = pd.DataFrame(rng.normal(size=(50, 2)), columns=["u", "v"]).assign(seen=rng.random(50) < 0.5)
    y = (frame["u"] > 0).to_numpy()
    plain = MarginCoresetClassifier().fit(frame, y)
    assert plain.model_.feature_names == ("u", "v", "seen")
    np.testing.assert_array_equal(plain.coef_, MarginCoresetClassifier().fit(frame.to_numpy(float), y).coef_)
    with pytest.raises(ValueError, match="feature names should match"):
        plain.predict(frame[["v", "u", "seen"]])
    tabular = MarginCoresetClassifier(columns={}).fit(frame, y)
    np.testing.assert_array_equal(tabular.predict(frame[["v", "seen", "u"]]), tabular.predict(frame))
    np.testing.assert_allclose(tabular.coef_, plain.coef_, rtol=1e-2, atol=1e-3)
    plain.fit(frame.astype(object), y)  # numbers in objects are numbers
    assert plain.model_.feature_names == ("u", "v", "seen")
    assert plain.fit(frame.to_numpy(float), y).model_.columns is None


def test_columns_of_files_batches_and_stores_are_found_by_the_names_of_a_frame_of_numbers(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    """Whatever their order; other names are refused, and rows without names go by place."""
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=list("abc"))
    machine = MarginCoresetClassifier().fit(frame, frame["a"] > 0)
    expected, turned = machine.decision_function(frame), frame[list("cab")]
    turned.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_csv(tmp_path / "plain.csv", index=False, header=False)
    coremargin.ingest(turned, tmp_path / "rows.zarr", unlabelled=True, dtype="float64")
    batches = pa.Table.from_pandas(turned).to_reader()
    for rows in (tmp_path / "rows.csv", tmp_path / "plain.csv", tmp_path / "rows.zarr", batches):
        np.testing.assert_allclose(machine.decision_function(rows), expected, rtol=1e-9, atol=1e-9)
    frame.rename(columns={"a": "d"}).to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(DataError, match="'a' is missing, 'd' is not known"):
        machine.predict(tmp_path / "rows.csv")


def test_rows_beyond_memory_are_read_from_their_store(rng: np.random.Generator) -> None:
    """Then no support is known, as of a store, and weights of several classes cannot be made."""
    frame, label = small(rng)
    poor = MarginCoresetClassifier(columns=SMALL, memory="32 KiB", epsilon=1e-6).fit(frame, label)
    assert not {"support_", "coreset_", "_partial_fit_state"} & set(vars(poor))
    large = MarginCoresetClassifier(columns=SMALL, epsilon=1e-6).fit(frame, label)
    np.testing.assert_allclose(poor.coef_, large.coef_, atol=1e-2)
    assert poor.certificate_.store_digest == large.certificate_.store_digest
    with pytest.raises(UsageError, match="of more rows than memory holds; give more memory, or sample_weight"):
        poor.set_params(class_weight="balanced").fit(frame, np.arange(400) % 3)
    with pytest.raises(UsageError, match="sample_weight: expected one for each row, or the name of their column"):
        poor.set_params(class_weight=None).fit(frame, label, 2.0)


@pytest.mark.parametrize("kind", ["fit", "partial_fit", "kernel", "train", "train with columns"])
def test_models_of_frames_of_numbers_keep_the_names_of_columns_and_label(
    kind: str, rng: np.random.Generator, tmp_path: Path
) -> None:
    """What is saved finds them later, in whatever order, and is verified by stores of the array and of the table."""
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=list("abc"))
    label = pd.Series(np.where(frame["a"] + 2 * frame["b"] > 0, "ja", "nein"), name="answer")
    fit: dict[str, Callable[[], Any]] = {
        "fit": lambda: MarginCoresetClassifier(loss="hinge").fit(frame, label).model_,
        "partial_fit": lambda: MarginCoresetClassifier(loss="hinge").partial_fit(frame, label).model_,
        "kernel": lambda: KernelCoresetClassifier().fit(frame, label).model_,
        "train": lambda: coremargin.train(frame, label, loss="hinge"),
        "train with columns": lambda: coremargin.train(frame.astype("float32"), label, loss="hinge", columns={}),
    }
    model = fit[kind]()
    assert (model.feature_names, model.columns.label) == (("a", "b", "c"), "answer")
    whole = frame.assign(answer=label)[["answer", "c", "a", "b"]]
    np.testing.assert_allclose(model.decision_function(whole), model.decision_function(frame), rtol=1e-6, atol=1e-9)
    model.save(tmp_path / "rows.model")
    whole.to_csv(tmp_path / "rows.csv", index=False)
    assert evaluate(coremargin.load(tmp_path / "rows.model"), tmp_path / "rows.csv").rows == 60
    dtype = "float32" if "columns" in kind else "float64"
    for place, rows in (("array", frame.to_numpy()), ("frame", frame)):
        coremargin.ingest(rows, tmp_path / place, labels=label.to_numpy(), dtype=dtype)
        assert coremargin.verify(tmp_path / "rows.model", tmp_path / place).ok


@pytest.mark.parametrize("form", ["array", "objects", "list", "sparse", "unsigned"])
def test_arrays_with_whole_numbers_that_float64_does_not_hold_are_refused(form: str) -> None:
    """To train on and to predict, as two rows would become one."""
    X = np.array([[0, 2**53 + 1], [0, 2**53], [1, 5], [1, 6]])
    forms: dict[str, Any] = {
        "array": X, "objects": X.astype(object), "list": X.tolist(), "sparse": csr_array(X), "unsigned": X.astype("u8")
    }  # fmt: skip
    machine = MarginCoresetClassifier(loss="hinge").fit(X[2:], [0, 1])
    for act in (lambda: machine.fit(forms[form], [0, 0, 1, 1]), lambda: machine.predict(forms[form])):
        with pytest.raises(BadRow, match=r"row 0, column 1 .*: found 9007199254740993, expected whole numbers"):
            act()
    if form != "objects":
        with pytest.raises(BadRow, match="found 9007199254740993"):
            coremargin.train(forms[form], [0, 0, 1, 1], loss="hinge")
        with pytest.raises(BadRow, match="found 9007199254740993"):
            machine.model_.predict(forms[form])
