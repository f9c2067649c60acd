"""The ellipsoid as users meet it: trained, verified, forged, used, exported, interrupted, retrained, refused."""

from __future__ import annotations

import json
from functools import partial, partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

import coremargin
from coremargin.cli import main
from coremargin.data.amend import set_weights
from coremargin.data.store import Store
from coremargin.engine.executors import InProcess
from coremargin.errors import BadRow, ClaimRefuted, CoremarginError, DataError, Interrupted, SpecError, UsageError
from coremargin.learn.train import Progress, train_job
from coremargin.models.registry import load
from coremargin.problems.ellipsoid import enclosing_ellipsoid
from coremargin.problems.registry import new_job
from coremargin.verify.examine import examine
from model_kit import altered

if TYPE_CHECKING:
    from coremargin.engine.protocols import Executor

EPSILON = 1e-6
train = partial(coremargin.train, one_class="ellipsoid", epsilon=EPSILON)


@pytest.fixture
def rows(rng: np.random.Generator) -> np.ndarray:
    """600 correlated rows, each coordinate of another size."""
    return (rng.standard_normal((600, 3)) @ [[1, 2, 0], [0, 3, 0.1], [0, 0, 0.5]] + 5).astype(np.float32)


@pytest.fixture
def store(tmp_path: Path, rows: np.ndarray) -> Path:
    """The rows, with two labels, in chunks of 16."""
    coremargin.ingest(rows, tmp_path / "s.zarr", labels=np.arange(600) % 2, chunk_bytes=16 * 12)
    return tmp_path / "s.zarr"


@pytest.fixture
def flat(rows: np.ndarray) -> np.ndarray:
    """600 rows of 5 columns and rank 3."""
    return np.c_[rows, rows[:, 0] + 2 * rows[:, 1] + 1, np.full(600, 3)].astype(np.float32)


@pytest.fixture
def _in_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even small stores are read in stages."""
    problem = enclosing_ellipsoid.EnclosingEllipsoid
    monkeypatch.setattr(problem, "__init__", partialmethod(problem.__init__, sample_bytes=500))


def say(*words: object, code: int = 0) -> str:
    """What a command prints; code: that it ends with."""
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.usefixtures("_in_stages")
def test_it_is_trained_verified_shown_and_reported(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """A job file, a certificate to 1e-6 of the volume, and the commands about models, none of which finds classes."""
    job, model = tmp_path / "job.toml", tmp_path / "m"
    job.write_text(f'job = "train"\nstore = "s.zarr"\nout = "m"\none_class = "ellipsoid"\nepsilon = {EPSILON}\n')
    assert "one_class" in say("plan", job)
    text = say("run", job, "--cluster", "threads", "--quiet")
    assert text.startswith("certified: all 600 rows lie in an ellipsoid with the volume of a ball of radius")
    ellipsoid: Any = load(model)
    claims, x = ellipsoid.certificate, rows.astype(np.float64)
    off = x - ellipsoid.centre
    squares = np.einsum("ij,jk,ik->i", off, np.linalg.inv(ellipsoid.covariance), off)
    assert squares.max() <= ellipsoid.radius**2 * (1 + 1e-12)
    assert claims.ratio == pytest.approx((claims.lower / claims.upper) ** 3, abs=1e-12)
    assert claims.ratio >= 1 - EPSILON
    assert claims.upper == pytest.approx(ellipsoid.radius * np.linalg.det(ellipsoid.covariance) ** (1 / 6))
    assert (claims.kind, ellipsoid.kind, ellipsoid.rank, ellipsoid.labels) == ("volume_radius", "ellipsoid", 3, (-1, 1))
    assert coremargin.verify(model, store).ok
    assert "no ellipsoid that contains the rows has a volume below" in say("verify", model, store, "--quiet")
    assert f"at most {claims.upper!r} for all 600 rows" in say("show", model)
    page = (model / "report.html").read_text()
    assert "The ellipsoid of least volume around all 600 rows" in page
    assert 'class="outline"' not in page
    assert json.loads(say("show", model, "--json"))["certificate"]["kind"] == "volume_radius"


def test_of_two_features_the_page_has_a_picture(tmp_path: Path, rng: np.random.Generator) -> None:
    """The ellipse, its centre and the rows on it."""
    train(rng.standard_normal((50, 2)), out=tmp_path / "m")
    assert 'class="outline"' in (tmp_path / "m" / "report.html").read_text()


def test_linear_maps_and_scalings_change_nothing(rows: np.ndarray, rng: np.random.Generator) -> None:
    """Distances of rows are the same after a linear map, so no scaling of columns matters."""
    x = rows.astype(np.float64)
    known, turned = train(x), rng.standard_normal((3, 3))
    others = [(train(x @ turned + 10), x @ turned + 10), (train(x, scaling="standard"), x), (train(x * 1e6), x * 1e6)]
    for other, mapped in others:
        assert np.allclose(other.distances(mapped), known.distances(x), atol=1e-4)


def test_distances_are_lengths_of_transformed_rows(rows: np.ndarray, flat: np.ndarray) -> None:
    """Of rows in a flat too, of which there are as many coordinates as dimensions; of one dimension, of no row."""
    for x, rank in ((rows, 3), (flat, 3), (rows[:, :1], 1)):
        model: Any = train(x)
        z = model.transform(x)
        assert z.shape == (600, rank)
        assert np.allclose(np.linalg.norm(z, axis=1), model.distances(x), rtol=1e-12)
        assert model.transform(x[:0]).shape == (0, rank)
        assert np.allclose(model.row_duals @ np.square(model.transform(x[model.coreset_ids])), 1.0)
    with pytest.raises(BadRow):
        model.transform([[np.nan]])


def test_an_ellipsoidal_machine_does_not_depend_on_the_scales_of_columns(rng: np.random.Generator) -> None:
    """Predictions are the same after any invertible affine map of the rows; those of a plain soft margin are not."""
    x = rng.standard_normal((300, 3)) * [1, 30, 1]
    y = x @ [1, 0.02, 1] + 0.5 * rng.standard_normal(300) > 0
    moved = x @ (rng.standard_normal((3, 3)) @ np.diag([1, 1, 300])) + [1, -50, 7]

    def decisions(own: np.ndarray) -> np.ndarray:
        z = train(own).transform(own)  # type: ignore[attr-defined]
        return coremargin.train(z, y, loss="hinge", C=0.01, epsilon=1e-8).decision_function(z)

    first, second = decisions(x), decisions(moved)
    assert np.allclose(first, second, atol=1e-3)
    sure = np.abs(first) > 2e-3
    assert sure.mean() > 0.98
    assert ((first > 0) == (second > 0))[sure].all()
    plain = [coremargin.train(own, y, loss="hinge", C=0.01, epsilon=1e-6).predict(own) for own in (x, moved)]
    assert (plain[0] != plain[1]).any()


@pytest.mark.usefixtures("_in_stages")
def test_rows_in_a_flat_have_the_ellipsoid_of_their_span(tmp_path: Path, flat: np.ndarray) -> None:
    """The output, the record and the verifier say so; rows off the flat are outside; forgeries of the flat fail."""
    coremargin.ingest(flat, tmp_path / "s.zarr", unlabelled=True, chunk_bytes=16 * 20)
    words = ("--one-class", "ellipsoid", "--epsilon", EPSILON, "--cluster", "threads", "--quiet")
    text = say("train", tmp_path / "s.zarr", "--out", tmp_path / "m", *words)
    assert "in 3 of 5 columns, of which the others are linear functions" in text
    assert "in 3 of 5 columns" in say("verify", tmp_path / "m", tmp_path / "s.zarr")
    assert "3, in 3 of 5 columns" in say("show", tmp_path / "m")
    assert "a flat of dimension 3" in (tmp_path / "m" / "report.html").read_text()
    model: Any = load(tmp_path / "m")
    assert (model.rank, model.features, len(model.span_columns)) == (3, 5, 3)
    assert model.certificate.ratio >= 1 - EPSILON
    assert (model.predict(flat) == 1).all()
    moves = np.zeros((3, 5))
    moves[1, 3] = moves[2, 4] = 1e-2
    assert model.predict(flat[np.argmin(model.distances(flat))] + moves).tolist() == [1, -1, -1]
    for refused in (model.to_sklearn, model.to_onnx):
        with pytest.raises(UsageError, match="span 3 of 5 dimensions"):
            refused()
    changes = (
        {"span_residuals": lambda v: v * 0.5},
        {"span_slopes": lambda v: v + 1e-3},
        {"span_offsets": lambda v: v + 1e-3},
        {"span_columns": lambda v: np.array([0, 1, 3]) if 2 in v else np.array([0, 1, 2])},
    )
    for k, change in enumerate(changes):
        assert not examine(altered(tmp_path / "m", tmp_path / f"f{k}", {}, **change), tmp_path / "s.zarr").ok
    bent = flat.copy()
    bent[-3, 4] = 4
    coremargin.ingest(bent, tmp_path / "b.zarr", unlabelled=True, chunk_bytes=16 * 20)
    again = train(tmp_path / "b.zarr", out=tmp_path / "b")
    assert again.rank == 4  # type: ignore[attr-defined]
    assert coremargin.verify(tmp_path / "b", tmp_path / "b.zarr").ok


@pytest.mark.parametrize("how", ["residual", "slopes"])
def test_rows_that_fill_the_space_are_in_no_flat(tmp_path: Path, rng: np.random.Generator, how: str) -> None:
    """An ellipsoid of fewer columns is none of the rows, however far a forged model lets the other columns be off."""
    a, near = rng.standard_normal(400), 1e-9 * rng.standard_normal(400)
    flat = np.c_[a, a + near, 2 * a]
    coremargin.ingest(flat, tmp_path / "flat.zarr", dtype="float64", unlabelled=True, chunk_bytes=16 * 24)
    honest: Any = train(tmp_path / "flat.zarr", out=tmp_path / "m")
    assert coremargin.verify(tmp_path / "m", tmp_path / "flat.zarr").ok
    rank, full = len(honest.span_columns), rng.standard_normal((400, 3))
    assert rank == 2
    full[:, honest.span_columns] = flat[:, honest.span_columns]
    coremargin.ingest(full, tmp_path / "full.zarr", dtype="float64", unlabelled=True, chunk_bytes=16 * 24)
    longest = float(np.linalg.norm(full, axis=1).max()) * (1 + 1e-12)
    record = {
        "certificate.store_digest": Store.open(tmp_path / "full.zarr").digest, "certificate.radius": longest,
    }  # fmt: skip
    steep = np.zeros((3 - rank, rank)) + (1e9 if how == "slopes" else 0.0)
    forged = altered(
        tmp_path / "m", tmp_path / "f", record, coreset_x=lambda x: full[honest.coreset_ids],
        span_slopes=steep, span_residuals=np.full(3 - rank, 1e12),
    )  # fmt: skip
    found = examine(forged, tmp_path / "full.zarr")
    assert [check.name for check in found.failures] == ["flat"]
    assert "to be a function of others" in found.failures[0].text


def test_fewer_rows_than_columns_span_less(tmp_path: Path, rng: np.random.Generator) -> None:
    """A simplex in its span."""
    few = rng.standard_normal((5, 9))
    coremargin.ingest(few, tmp_path / "s.zarr", dtype="float64", unlabelled=True)
    model: Any = train(tmp_path / "s.zarr", out=tmp_path / "m")
    assert model.rank == 4
    assert np.allclose(model.row_duals, 0.2)
    assert coremargin.verify(tmp_path / "m", tmp_path / "s.zarr").ok


@pytest.mark.usefixtures("_in_stages")
def test_only_the_rows_of_one_class_are_enclosed(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """By its label or, on a command line, by its text."""
    model = train(store, only=1, out=tmp_path / "m")
    assert (model.only, model.parameters["only"]) == (1, "1")  # type: ignore[attr-defined]
    assert model.certificate.upper == pytest.approx(train(rows[1::2]).certificate.upper, rel=1e-6)
    assert coremargin.verify(tmp_path / "m", store).ok
    words = ("--one-class", "ellipsoid", "--only", "1", "--epsilon", EPSILON, "--cluster", "threads", "--quiet")
    assert "all 300 rows of class 1 lie in" in say("train", store, "--out", tmp_path / "c", *words)
    assert "of the rows of class 1" in say("verify", tmp_path / "c", store)
    page = (tmp_path / "c" / "report.html").read_text()
    assert "around all 300 rows of class <bdi>1</bdi></h1>" in page
    assert "300 of 600 rows of 3 features" in page
    other = altered(tmp_path / "m", tmp_path / "o", {"only": 0, "parameters.only": 0})
    assert "coreset" in {check.name for check in examine(other, store).failures}
    with pytest.raises(DataError, match="only: expected one of its labels"):
        train(store, only="7")


@pytest.mark.parametrize("scaling", [None, "standard", "rownorm"])
def test_exports_predict_the_same(rows: np.ndarray, scaling: Any) -> None:
    """ONNX and scikit-learn's EllipticEnvelope: labels, and decision values to rounding."""
    x = rows + np.random.default_rng(0).standard_normal(rows.shape).astype(np.float32) * (scaling == "rownorm")
    model = train(x, scaling=scaling)
    asked = np.concatenate([x, x + 0.5]).astype(np.float64)
    decision = model.decision_function(asked)
    sure = np.abs(decision) > 1e-6
    envelope = model.to_sklearn()
    assert (envelope.predict(asked) == model.predict(asked))[sure].all()
    squares = model.radius**2 - model.distances(asked) ** 2  # type: ignore[attr-defined]
    assert np.allclose(envelope.decision_function(asked), squares, rtol=1e-6, atol=1e-6 * np.abs(squares).max())
    pytest.importorskip("onnxruntime")
    import onnxruntime

    session = onnxruntime.InferenceSession(model.to_onnx().SerializeToString())
    label, values = session.run(None, {"X": asked})
    assert np.allclose(values, decision, atol=1e-7 * np.abs(decision).max())
    assert (label == model.predict(asked))[sure].all()


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize(("scale", "far"), [(1e-120, 0), (1e120, 0), (1.0, 1e7), (1e-30, 1e-25)])
def test_claims_hold_whatever_the_numbers(tmp_path: Path, form: str, scale: float, far: float) -> None:
    """Rows that are tiny, huge, far from the origin, in columns of unlike scales: claims may be weak, never false."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4)) * [1, 1e-4, 1, 10] * scale + far
    made = sp.csr_array(X) if form == "sparse" else X
    coremargin.ingest(made, tmp_path / "s.zarr", dtype="float64", unlabelled=True, chunk_bytes=10 * 32)
    model = train(tmp_path / "s.zarr", epsilon=1e-3, out=tmp_path / "m")
    result = examine(tmp_path / "m", tmp_path / "s.zarr")
    assert result.ok, [check.text for check in result.failures]
    assert model.status == "certified"
    assert (model.predict(X) == 1).all()


CHANGES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"certificate.upper": lambda v: v * (1 - 1e-10)}, {}, "upper bound"),
    ({"certificate.lower": lambda v: v * (1 + 1e-6), "certificate.ratio": 1.0}, {}, "lower bound"),
    ({"certificate.lower": None, "certificate.ratio": None}, {}, "status"),
    ({"certificate.upper": None, "certificate.ratio": None}, {}, "status"),
    ({"certificate.ratio": 0.5}, {}, "ratio"),
    ({"certificate.radius": lambda v: v * 2}, {}, "radius"),
    ({"certificate.epsilon": 1e-12}, {}, "epsilon"),
    ({"certificate.epsilon": 1e-15, "parameters.epsilon": 1e-15}, {}, "status"),
    ({"status": "not_separable"}, {}, "status"),
    ({}, {"centre": lambda c: c + 1e-3}, "upper bound"),
    ({}, {"centre": lambda c: c * 1e300}, "upper bound"),
    ({}, {"axes": lambda a: a * np.where(np.eye(3), 1, 1.01)}, "upper bound"),
    ({}, {"axes": lambda a: a @ np.diag([0.5, 2.0, 1.0])}, "upper bound"),
    ({}, {"axes": lambda a: a * 1e-308}, "upper bound"),
    ({}, {"axes": lambda a: a + np.tril(np.full(a.shape, 1e13), -1)}, "upper bound"),
    ({}, {"alpha": lambda a: a * 2}, "weights"),
    ({}, {"alpha": lambda a: np.eye(len(a))[0]}, "lower bound"),
    ({}, {"coreset_ids": lambda i: i + 1}, "coreset"),
    ({}, {"coreset_ids": lambda i: i * 0 + 10**6}, "coreset"),
    ({}, {"coreset_ids": lambda i: np.full_like(i, i[0])}, "coreset"),
    ({}, {"coreset_x": lambda x: x * 2}, "coreset"),
]


def test_false_claims_are_named(tmp_path: Path, store: Path) -> None:
    """Each by the check that it fails."""
    train(store, out=tmp_path / "m")
    for k, (record, arrays, name) in enumerate(CHANGES):
        forged = altered(tmp_path / "m", tmp_path / f"f{k}", record, **arrays)
        assert name in {check.name for check in examine(forged, store).failures}, CHANGES[k]


def test_what_is_no_record_of_an_ellipsoid_is_refused(tmp_path: Path, store: Path) -> None:
    """Before a row is read, by models and by the verifier."""
    changes: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"certificate.kind": "radius"}, {}),
        ({"classes": ["a", "b"]}, {}),
        ({"parameters.one_class": "ball"}, {}),
        ({"only": 1}, {}),
        ({"rank": 2}, {}),
        ({"rank": 4}, {}),
        ({}, {"alpha": lambda a: -a}),
        ({}, {"axes": lambda a: a.T.copy()}),
        ({}, {"axes": lambda a: -a}),
        ({}, {"axes": lambda a: a[:-1]}),
        ({}, {"centre": lambda c: c * np.nan}),
        ({}, {"centre": None}),
    ]
    train(store, out=tmp_path / "m")
    for k, (record, arrays) in enumerate(changes):
        forged = altered(tmp_path / "m", tmp_path / f"f{k}", record, **arrays)
        for read in (partial(examine, store_path=store), load):
            with pytest.raises(CoremarginError):
                read(forged) if read is load else examine(forged, store)


def test_it_is_verified_with_its_own_rows_only(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """Of another store the content is another one."""
    train(store, out=tmp_path / "m")
    coremargin.ingest(rows[::-1], tmp_path / "o.zarr", labels=np.arange(600) % 2, chunk_bytes=16 * 12)
    with pytest.raises(ClaimRefuted):
        coremargin.verify(tmp_path / "m", tmp_path / "o.zarr")


@pytest.mark.usefixtures("_in_stages")
def test_it_is_killed_and_resumed_and_stopped(tmp_path: Path, store: Path, embedded: Executor) -> None:
    """On threads, in processes, interrupted within each scan: the same bytes; stopped at a limit, claims that hold."""

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    def job(name: str) -> Any:
        return new_job(store=store, out=tmp_path / name, one_class="ellipsoid", epsilon=EPSILON, block=1)

    alone, broken, processes = job("a"), job("b"), job("p")
    assert len(train_job(alone, Store.open(store), InProcess(1)).rounds) > 3
    for interrupted in range(5):
        begin = "resume" if interrupted else "new"
        with pytest.raises(Interrupted):
            train_job(broken, Store.open(store), InProcess(1), begin=begin, progress=Progress(on_block=stop))  # type: ignore[arg-type]
    assert train_job(broken, Store.open(store), InProcess(2), begin="resume").run["resumed"] == 5
    train_job(processes, Store.open(store), embedded)
    for name in ("model.json", "arrays.npz"):
        assert Path(broken.out, name).read_bytes() == Path(alone.out, name).read_bytes()
        assert Path(processes.out, name).read_bytes() == Path(alone.out, name).read_bytes()
    stopped = train(store, time_limit=1e-9, out=tmp_path / "c")
    assert stopped.status == "stopped"
    assert coremargin.verify(tmp_path / "c", store).ok


@pytest.mark.usefixtures("_in_stages")
def test_retraining_reads_new_rows_and_what_they_leave_unproven(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """Rows inside cost a read of their chunks, a row outside more; removed rows shrink the ellipsoid."""

    def ingest(new: np.ndarray) -> None:
        coremargin.ingest(new.astype(np.float32), store, append=True, labels=np.zeros(len(new), int))

    train(store, out=tmp_path / "m0")
    support = load(tmp_path / "m0").coreset_ids  # type: ignore[attr-defined]
    steps: list[tuple[Any, float]] = [
        (lambda: ingest(rows[:20] * 0.5 + 2.5), 0.3),
        (lambda: ingest(rows[:1] + 9), 1.3),
        (lambda: say("remove", store, 620), 1.3),
        (lambda: say("remove", store, *support), 1.3),
        (lambda: set_weights(store, support, np.ones(len(support))), 1.3),
        (lambda: None, 0.01),
    ]
    for k, (change, most) in enumerate(steps, 1):
        change()
        model = coremargin.retrain(tmp_path / f"m{k - 1}", store, out=tmp_path / f"m{k}")
        run = json.loads((tmp_path / f"m{k}" / "run.json").read_text())
        assert model.status == "certified"
        assert "from_scratch" not in run["retrained"], k
        assert run["bytes_read"] < most * run["store_bytes"], k
        assert coremargin.verify(tmp_path / f"m{k}", store).ok
        assert model.certificate.upper == pytest.approx(train(store).certificate.upper, rel=1e-6)


def test_what_it_cannot_do_is_refused_by_name(tmp_path: Path, store: Path, rows: np.ndarray) -> None:
    """Options of other kinds, maps, equal rows, rows whose squares overflow, more columns than memory."""
    for options, text in (
        ({"loss": "hinge"}, r"loss: the least ellipsoid has none.*it belongs to .*a soft margin"),
        ({"C": 1.0}, "C: the least ellipsoid has none"),
        ({"folds": 3}, "folds: the least ellipsoid has none"),
        ({"map": "polynomial"}, "map: an ellipsoid is about columns as they are.*one_class ball"),
        ({"epsilon": 0.0}, "epsilon: expected a number between 0 and 1"),
    ):
        with pytest.raises(SpecError, match=text):
            new_job(store=store, out=store, one_class="ellipsoid", **options)  # type: ignore[arg-type]
    with pytest.raises(BadRow, match="all rows are equal.*choose one_class ball"):
        train(np.ones((5, 2)))
    with pytest.raises(BadRow, match="all rows are equal"):
        train([[1.0, 2.0]])
    with pytest.raises(BadRow, match="rescale the features"):
        train([[1e200], [2e200]])
    with pytest.raises(CoremarginError):
        train(np.zeros((0, 3)))
    with pytest.raises(UsageError, match="expected at most .* features for an ellipsoid in"):
        train(np.random.default_rng(0).standard_normal((50, 300)), memory="64 MiB")
    assert "ellipsoid" in say("train", "--help")
