"""Models of several classes at once, end to end: trained from a store, verified, refuted when altered, used."""

from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.sparse import csr_array
from sklearn.svm import LinearSVC

import coremargin
from coremargin.cli import main
from coremargin.data.store import Store
from coremargin.engine.executors import InProcess
from coremargin.errors import ClaimRefuted, DataError, LabelError, SpecError
from coremargin.learn.train import train_job
from coremargin.models.decision import leads
from coremargin.models.evaluate import evaluate
from coremargin.models.model import Model
from coremargin.models.predict import predict
from coremargin.models.registry import load
from coremargin.problems.common import sizes
from coremargin.problems.multiclass import crammer_singer, kesler
from coremargin.problems.registry import new_job
from coremargin.verify import verify
from coremargin.verify.examine import examine
from model_kit import altered, store_of

NAMES = ["a", "b", "c", "d"]


def rows(seed: int, n: int, d: int, flip: float) -> tuple[np.ndarray, list[Any]]:
    """Rows named by the largest of four scores, nearly undecided ones left out, some renamed, one without name."""
    rng = np.random.default_rng(seed)
    V, X = rng.standard_normal((4, d)), rng.standard_normal((20 * n, d)).astype(np.float32)
    scores = np.sort(X @ V.T, axis=1)
    X = X[scores[:, -1] - scores[:, -2] > 0.2][:n]
    y = (X @ V.T).argmax(axis=1)
    y = np.where(rng.random(n) < flip, rng.integers(0, 4, n), y)
    return X, [None, *(NAMES[k] for k in y[1:])]


def make_store(path: Path, X: np.ndarray, labels: list[Any], chunk_rows: int = 25) -> Path:
    """A store in small chunks."""
    return store_of(path, X, labels, chunk_rows)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """(model, store) of a hard margin and of a soft one, the latter with most rows summed up."""
    folder = tmp_path_factory.mktemp("classes")
    clean = make_store(folder / "clean.zarr", *rows(0, 600, 4, 0.0))
    noisy = make_store(folder / "noisy.zarr", *rows(1, 600, 4, 0.1))
    coremargin.train(clean, out=folder / "hard", classes="crammer-singer", cluster="threads", scaling="standard")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crammer_singer, "NEAR_BYTES_LEAST", 1)
        patch.setattr(crammer_singer, "FEW", 0)
        coremargin.train(
            noisy, out=folder / "soft", classes="crammer-singer", loss="hinge", C=0.1, class_weight="balanced",
            epsilon=0.01, cluster="threads",
        )  # fmt: skip
    return {"hard": (folder / "hard", clean), "soft": (folder / "soft", noisy)}


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_models_are_verified(places: dict[str, tuple[Path, Path]], kind: str) -> None:
    """Every claim holds, and the bounds found are those claimed but for rounding."""
    model, store = places[kind]
    found = verify(model, store)
    assert found.status == "certified"
    assert found.problem == "crammer_singer"
    loaded = load(model)
    assert isinstance(loaded, Model)
    claims = loaded.certificate
    assert found.lower == pytest.approx(claims.lower, rel=1e-9)
    assert found.upper == pytest.approx(claims.upper, rel=1e-9)
    if kind == "soft":
        assert claims.coreset_rows < 0.5 * loaded.rows


def one(index: Any, change: Any) -> Any:
    """A change of one entry; None: of the first that is not zero."""

    def changed(values: np.ndarray) -> np.ndarray:
        values = values.copy()
        at = tuple(part[0] for part in np.nonzero(values)) if index is None else index
        values[at] = change(values[at])
        return values

    return changed


def doubled(values: np.ndarray) -> np.ndarray:
    """The second entry is the first."""
    values = values.copy()
    values[1] = values[0]
    return values


HARD = [
    ("lower bound", {"certificate.lower": lambda v: v * (1 + 1e-11)}, {}),
    ("lower bound", {}, {"hypothesis": one((0, 0), lambda v: v + 1e-6)}),
    ("hypothesis", {}, {"hypothesis": lambda v: v * 1.001}),
    ("upper bound", {"certificate.upper": lambda v: v * (1 - 1e-9)}, {}),
    ("dual weights", {}, {"duals": one(None, lambda v: v + 1e-6)}),
    ("dual weights", {}, {"duals": one(None, lambda v: -v)}),
    ("coreset", {}, {"coreset_x": one((0, 0), lambda v: v + 1e-9)}),
    ("coreset", {}, {"coreset_ids": one(0, lambda v: v + 1)}),
    ("coreset", {}, {"coreset_classes": one(0, lambda v: (v + 1) % 4)}),
    ("radius", {"certificate.radius": lambda v: v / 2}, {}),
    ("classes", {"classes": ["a", "b", "c", "e"]}, {}),
    ("rows", {"rows": lambda v: v - 1}, {}),
    ("epsilon", {"certificate.epsilon": 1e-9}, {}),
    ("status", {"certificate.epsilon": 1e-15, "parameters.epsilon": 1e-15}, {}),
    ("status", {"status": "not_separable", "certificate.kind": "not_separable"}, {}),
    ("hypothesis", {"constant": 0.0}, {}),
    ("content", {"certificate.store_digest": f"sha256:{0:064}"}, {}),
    ("scaling", {}, {"factor": one(0, lambda v: v * 1.01)}),
    ("ratio", {"certificate.ratio": 0.5}, {}),
]
SOFT = [
    ("value", {"certificate.upper": lambda v: v * (1 - 1e-9)}, {}),
    ("value", {}, {"hypothesis": one((0, 0), lambda v: v + 0.1)}),
    ("dual bound", {"certificate.lower": lambda v: v * (1 + 1e-9)}, {}),
    ("dual bound", {}, {"reference": lambda v: v * 0.5}),
    ("dual bound", {"parameters.C": lambda v: v / 2}, {}),
    ("dual weights", {}, {"duals": one(None, lambda v: v + 1.0)}),
    ("dual weights", {}, {"duals": one(None, lambda v: -v)}),
    ("coreset", {}, {"coreset_ids": doubled}),
    ("coreset", {}, {"coreset_ids": one(0, lambda v: 0)}),  # the row without label
    ("status", {"certificate.epsilon": 1e-9, "parameters.epsilon": 1e-9}, {}),
]


@pytest.mark.specimens(6)
@pytest.mark.parametrize(
    ("kind", "check", "record", "arrays"), [("hard", *case) for case in HARD] + [("soft", *case) for case in SOFT]
)
def test_false_claims_are_refuted(
    places: dict[str, tuple[Path, Path]], tmp_path: Path, kind: str, check: str, record: dict[str, Any],
    arrays: dict[str, Any],
) -> None:  # fmt: skip
    """Whatever is changed in a model, the check that is about it says so."""
    model, store = places[kind]
    found = examine(altered(model, tmp_path / "m", record, **arrays), store)
    assert check in {failed.name for failed in found.failures}, [c.text for c in found.failures]
    with pytest.raises(ClaimRefuted):
        verify(tmp_path / "m", store)


def test_other_rows_are_refuted(places: dict[str, tuple[Path, Path]]) -> None:
    """A model says nothing about another store."""
    with pytest.raises(ClaimRefuted, match="content"):
        verify(places["hard"][0], places["soft"][1])


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_predictions_are_the_largest_scores(places: dict[str, tuple[Path, Path]], tmp_path: Path, kind: str) -> None:
    """predict, evaluate, exports and the model in memory agree."""
    model, store = places[kind]
    loaded = load(model)
    X, codes = Store.open(store).rows_at(np.arange(600))
    truth = np.array([*Store.open(store).classes, None])[codes]
    given = loaded.predict(X)
    assert loaded.decision_function(X).shape == (600, 4)
    told = evaluate(model, store)
    assert told.rows == 599
    assert told.accuracy == pytest.approx(float((given == truth)[1:].mean()))
    assert told.accuracy == 1.0 if kind == "hard" else told.accuracy > 0.85
    assert (loaded.to_sklearn().predict(X) == given).all()
    result = predict(model, store, tmp_path / "p.zarr")
    assert result.counts == {name: int((given == name).sum()) for name in NAMES}


def test_two_classes_decide_by_a_difference(tmp_path: Path) -> None:
    """One decision value a row, positive towards the second class, as everywhere."""
    X, labels = rows(2, 200, 3, 0.0)
    pair = ["p" if label in (None, "a", "b") else "q" for label in labels]
    model = coremargin.train(X, pair, classes="crammer-singer", loss="hinge", C=1.0)
    assert isinstance(model, Model)
    values = model.decision_function(X)
    assert values.shape == (200,)
    assert (model.predict(X) == np.where(values > 0, "q", "p")).all()
    machine = model.to_sklearn()
    np.testing.assert_allclose(machine.decision_function(X), values, atol=1e-9)
    model.save(tmp_path / "m")
    assert evaluate(tmp_path / "m", coremargin.data.arrays.ArraySource(X, pair)).roc_auc is not None


@pytest.mark.slow
@pytest.mark.parametrize("loss", [None, "hinge"])
def test_the_same_bits_everywhere(tmp_path: Path, loss: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one thread, in several, and stopped after each scan and resumed: the model's files are equal to the bit."""
    monkeypatch.setattr(crammer_singer, "NEAR_BYTES_LEAST", 1)
    monkeypatch.setattr(crammer_singer, "FEW", 0)
    monkeypatch.setattr(crammer_singer, "NEAR_SHARE", 0.02)
    monkeypatch.setattr(sizes, "KEEP_BYTES_LEAST", 400)
    monkeypatch.setattr(sizes, "KEEP_ROWS_LEAST", 20)
    store = make_store(tmp_path / "s.zarr", *rows(3, 400, 3, 0.0 if loss is None else 0.1))
    asked: dict[str, Any] = {"loss": loss, "C": 0.3} if loss else {}
    job = {"epsilon": 1e-2, "block": 2000, "sample": 0.05, "classes": "crammer-singer", **asked}
    for module, problem in ((kesler, "KeslerMargin"), (crammer_singer, "CrammerSinger")):
        made = getattr(module, problem)
        monkeypatch.setattr(module, problem, lambda *args, made=made, **given: made(*args, sample_bytes=2000, **given))
    spec = new_job(store=store, out=tmp_path / "one", **job)
    run = train_job(spec, Store.open(store), InProcess())
    assert run.model.status == "certified"
    assert run.run["scans"] > 1
    coremargin.train(store, out=tmp_path / "two", cluster="threads", **job)
    scans = 0
    while scans == 0 or load(tmp_path / "three").status == "stopped":
        scans += 1
        begin = "new" if scans == 1 else "resume"
        coremargin.train(store, out=tmp_path / "three", begin=begin, max_scans=scans, cluster="threads", **job)
    assert scans == run.run["scans"]
    for name in ("model.json", "arrays.npz"):
        bits = (tmp_path / "one" / name).read_bytes()
        assert bits == (tmp_path / "two" / name).read_bytes() == (tmp_path / "three" / name).read_bytes()
    verify(tmp_path / "one", store)


@pytest.mark.parametrize("loss", [None, "hinge"])
def test_sparse_and_weighted_stores(tmp_path: Path, loss: str | None) -> None:
    """CSR rows with weights are trained and verified as they are."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((300, 40)).astype(np.float32) * (rng.random((300, 40)) < 0.3)
    y = (X @ rng.standard_normal((40, 3))).argmax(axis=1)
    np.save(tmp_path / "w.npy", rng.integers(0, 3, 300).astype(float))
    from coremargin.data.ingest import ingest

    ingest(csr_array(X), tmp_path / "s.zarr", labels=y, weights=np.load(tmp_path / "w.npy"))
    assert Store.open(tmp_path / "s.zarr").sparse
    asked: dict[str, Any] = {"loss": loss, "C": 0.1, "class_weight": "balanced"} if loss else {}
    model = coremargin.train(
        tmp_path / "s.zarr", out=tmp_path / "m", classes="crammer-singer", cluster="threads", **asked
    )
    assert model.status == "certified"
    verify(tmp_path / "m", tmp_path / "s.zarr")


def test_what_is_for_two_classes_is_refused(tmp_path: Path) -> None:
    """What only two classes have is refused for several at once, each parameter with what there is instead."""
    store = make_store(tmp_path / "s.zarr", *rows(5, 60, 3, 0.0))
    for asked, words in (
        ({"loss": "squared_hinge"}, "has only 'hinge', found 'squared_hinge'; it belongs to .*a fleet"),
        ({"loss": "hinge", "class_weight": (1.0, 2.0)}, "class_weight: .*(balanced|str)"),
        ({"loss": "hinge", "C": (0.1, 1.0)}, "C: expected float"),
        ({"folds": 3}, "folds: a margin of several classes at once has none"),
        ({"strategy": "smo"}, "strategy: .* at once has only 'any-violator' or 'fast' or 'paper'"),
    ):
        with pytest.raises(SpecError, match=words):
            coremargin.train(store, classes="crammer-singer", **asked)  # type: ignore[arg-type]
    lonely = make_store(tmp_path / "l.zarr", np.eye(3, dtype=np.float32), ["a"] * 3)
    with pytest.raises(LabelError, match="expected at least two classes"):
        coremargin.train(lonely, classes="crammer-singer")


def test_altered_folders_are_refused(places: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """Shapes and keys that do not fit are named."""
    model, _ = places["hard"]
    for name, record, arrays, words in (
        ("a", {"classes": ["a", "a", "b", "c"]}, {}, "different labels"),
        ("b", {"constant": None}, {}, "constant"),
        ("c", {}, {"duals": lambda v: v[:-1]}, "duals: expected shape"),
        ("d", {}, {"coreset_classes": lambda v: v + 9}, "coreset_classes"),
    ):
        with pytest.raises(DataError, match=words):
            load(altered(model, tmp_path / name, record, **arrays))


def test_the_command_line_tells_it(places: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """train, show, verify and the report speak of all classes."""
    _, store = places["soft"]
    run = CliRunner().invoke
    done = run(main, ["train", str(store), "--out", str(tmp_path / "m"), "--classes", "crammer-singer", "--loss",
                      "hinge", "--C", "0.1", "--cluster", "threads"])  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "no hypothesis has less than" in done.output
    assert "'a', 'b', 'c', 'd'" in run(main, ["show", str(tmp_path / "m")]).output
    assert "verified: no hypothesis has a value below" in run(main, ["verify", str(tmp_path / "m"), str(store)]).output
    page = (tmp_path / "m" / "report.html").read_text()
    assert "4 classes at once" in page
    assert "What is taken for what" in page
    hard = run(main, ["train", str(store), "--out", str(tmp_path / "h"), "--classes", "crammer-singer",
                      "--cluster", "threads"])  # fmt: skip
    assert hard.exit_code == 4
    assert "rows contradict each other" in hard.output
    assert "No hypothesis predicts the class of all" in (tmp_path / "h" / "report.html").read_text()


def digits(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """A real table with ten classes, where it is at hand."""
    path = folder / "uci" / f"{name}.tsv.gz"
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    with gzip.open(path, "rt") as file:
        head = file.readline().split()
        table = np.loadtxt(file, delimiter="\t")
    place = head.index("target")
    return np.delete(table, place, axis=1).astype(np.float32), table[:, place].astype(int)


@pytest.mark.slow
def test_real_digits_are_separated_and_proven(tmp_path: Path, real_data: Path) -> None:
    """All 5,620 rows of optdigits have their own class, by a margin that LinearSVC's solution does not exceed."""
    X, y = digits(real_data, "optdigits")
    store = make_store(tmp_path / "s.zarr", X, y.tolist(), chunk_rows=500)
    model = coremargin.train(store, out=tmp_path / "m", classes="crammer-singer", intercept=False, epsilon=1e-6,
                             cluster="threads")  # fmt: skip
    assert model.status == "certified"
    verify(tmp_path / "m", store)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = LinearSVC(multi_class="crammer_singer", fit_intercept=False, C=10.0, random_state=0).fit(X, y)
    scores = X.astype(np.float64) @ other.coef_.T
    theirs = leads(scores, y).min() / np.linalg.norm(other.coef_)
    assert theirs <= model.certificate.upper


@pytest.mark.slow
def test_real_digits_that_overlap_are_proven_to(tmp_path: Path, real_data: Path) -> None:
    """Pendigits: no hypothesis gives all rows their class, and the hinge's value is LinearSVC's within the gap."""
    X, y = digits(real_data, "pendigits")
    store = make_store(tmp_path / "s.zarr", X / 100, y.tolist(), chunk_rows=500)
    hard = coremargin.train(store, out=tmp_path / "h", classes="crammer-singer", cluster="threads")
    assert hard.status == "not_separable"
    verify(tmp_path / "h", store)
    soft = coremargin.train(store, out=tmp_path / "m", classes="crammer-singer", intercept=False, loss="hinge", C=0.1,
                            epsilon=1e-5, cluster="threads")  # fmt: skip
    assert soft.status == "certified"
    verify(tmp_path / "m", store)
    rows = (X / 100).astype(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = LinearSVC(multi_class="crammer_singer", fit_intercept=False, C=0.1, tol=1e-6, random_state=0)
        coef = other.fit(rows, y).coef_
    theirs = 0.5 * (coef**2).sum() + 0.1 * np.maximum(0, 1 - leads(rows @ coef.T, y)).sum()
    claims = soft.certificate
    assert claims.lower <= theirs
    assert claims.upper <= theirs * (1 + 1e-5)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("memory", "most_scans"), [(256 << 20, 1), (64 << 20, 8)])
def test_all_of_mnist_is_proven(tmp_path: Path, real_data: Path, memory: int, most_scans: int) -> None:
    """60,000 rows of ten classes: where memory holds them one scan proves what is solved, else a few; LinearSVC's value
    is not below the lower bound, and the value reached at most a thousandth above it.
    """
    names = [real_data / "mnist" / f"train-{name}.gz" for name in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    if not all(name.exists() for name in names):
        pytest.skip("MNIST is not here")
    images, labels = (np.frombuffer(gzip.decompress(name.read_bytes()), "u1") for name in names)
    X, y = images[16:].reshape(-1, 784).astype(np.float32) / np.float32(255), labels[8:].astype(int)
    store = make_store(tmp_path / "s.zarr", X, y.tolist(), chunk_rows=2600)
    model = coremargin.train(store, out=tmp_path / "m", classes="crammer-singer", intercept=False, loss="hinge",
                             C=0.001, memory=memory, cluster="threads")  # fmt: skip
    assert model.status == "certified"
    verify(tmp_path / "m", store)
    assert json.loads((tmp_path / "m" / "run.json").read_text())["scans"] <= most_scans
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = LinearSVC(multi_class="crammer_singer", fit_intercept=False, C=0.001, tol=0.1, random_state=0)
        coef = other.fit(X.astype(np.float64), y).coef_
    theirs = 0.5 * (coef**2).sum() + 0.001 * np.maximum(0, 1 - leads(X.astype(np.float64) @ coef.T, y)).sum()
    claims = model.certificate
    assert claims.lower <= theirs
    assert claims.upper <= theirs * (1 + 1e-3)


@pytest.mark.parametrize(("epsilon", "enough"), [("3e-2", True), ("1e-5", False)])
def test_the_read_is_told_in_its_stages(tmp_path: Path, epsilon: str, enough: bool) -> None:
    """A sample of many rows proves it with the rest of the read, one of few does not; command and report say which."""
    store = make_store(tmp_path / "s.zarr", *rows(6, 3000, 4, 0.1), chunk_rows=50)
    asked = ["--classes", "crammer-singer", "--loss", "hinge", "--C", "0.1", "--epsilon", epsilon, "--memory", "600KB"]
    told = CliRunner().invoke(main, ["train", str(store), *asked, "--cluster", "threads", "--out", str(tmp_path / "m")])
    assert told.exit_code == 0, told.output
    run = json.loads((tmp_path / "m" / "run.json").read_text())
    lines = [json.loads(line) for line in (tmp_path / "m" / "rounds.jsonl").read_text().splitlines()]
    assert [(line["kind"], line.get("stage")) for line in lines[:2]] == [("stage", 1), ("stage", 2)]
    assert sum(line["bytes_read"] for line in lines[:2]) == pytest.approx(Store.open(store).nbytes, rel=1e-6)
    assert (run["stages"], run["scans"] == 1) == (2, enough)
    assert ("one read in 2 stages\n" in told.output) == enough
    assert "segment" not in told.output
    assert ("That was enough" in (tmp_path / "m" / "report.html").read_text()) == enough
