"""What is kept for retraining: no more than allowed, part of the time that is reported, never needed for a proof."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

import coremargin
from coremargin.cli import main
from coremargin.data.local_storage import LocalStorage
from coremargin.data.resident import MOST_BYTES, Resident, fits
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.allowance import KEPT_BYTES, Allowance
from coremargin.engine.executors import InProcess
from coremargin.learn import train as train_module
from coremargin.learn.record import summary_of
from coremargin.learn.train import train_job
from coremargin.models.kept import FILE, kept_bytes
from coremargin.problems.hard.kind import KIND as HARD
from coremargin.problems.registry import new_job
from coremargin.problems.soft import make
from coremargin.problems.soft.near_margin import SoftMargin
from coremargin.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KINDS: dict[str, dict[str, Any]] = {
    "hard": {},
    "hinge": {"loss": "hinge", "C": 0.1},
    "squared hinge": {"loss": "squared_hinge", "C": 0.1},
    "auto": {"loss": "auto", "C": 0.1},
    "outliers": {"outliers": 2},
    "fleet": {"loss": "hinge", "C": [0.05, 0.1]},
    "squared fleet": {"loss": "squared_hinge", "C": [0.05, 0.1]},
    "hard fleet": {"classes": "ovr"},
    "classes": {"classes": "crammer-singer"},
    "classes with a loss": {"classes": "crammer-singer", "loss": "hinge", "C": 0.001},
    "kernel": {"kernel": "rbf", "loss": "hinge", "C": 0.1},
}
SEPARABLE = ("hard", "outliers", "hard fleet", "classes")


def rows(count: int, seed: int, *, classes: int, wrong: float) -> tuple[np.ndarray, list[int]]:
    """Normal rows pushed apart, a share of them with another label."""
    rng, V = np.random.default_rng(seed), np.random.default_rng(0).standard_normal((classes, 5))
    X = rng.standard_normal((count, 5))
    y = (X @ V.T).argmax(axis=1)
    X += 0.3 * (V[y] - V.mean(axis=0))
    flipped = rng.random(count) < wrong
    y[flipped] = (y[flipped] + 1) % classes
    return X.astype(np.float32), y.tolist()


def stored(path: Path, name: str, count: int = 3000) -> Callable[[int], None]:
    """A store for a kind of problem, and what appends to it."""
    several = "classes" in KINDS[name]
    made = partial(rows, classes=3 if several else 2, wrong=0.0 if name in SEPARABLE else 0.1)
    with StoreWriter.create(path, features=5, dtype="float32", chunk_rows=100) as writer:
        writer.write(*made(count, 1), origin="test")

    def append(more: int) -> None:
        with StoreWriter.append(path) as writer:
            writer.write(*made(more, 2), origin="test")

    return append


def run_of(out: Path) -> dict[str, Any]:
    """What a run has written down."""
    found: dict[str, Any] = json.loads((out / "run.json").read_text())
    return found


def certificates(model: Any) -> list[Any]:
    """Of a model, or of those of a fleet."""
    return [one.certificate for one in (model.members.values() if hasattr(model, "members") else [model])]


@pytest.mark.specimens(2)
@pytest.mark.parametrize("keep", [0, 6000, 30_000])
@pytest.mark.parametrize("name", KINDS)
def test_no_more_is_kept_than_allowed(tmp_path: Path, name: str, keep: int) -> None:
    """Whatever little was kept, the retrained model is verified, and as good as one that is trained from scratch."""
    path, first, again = tmp_path / "rows.zarr", tmp_path / "first", tmp_path / "again"
    append = stored(path, name)
    words = {**KINDS[name], "epsilon": 5e-3, "cluster": "threads", "memory": "64 MiB"}
    coremargin.train(path, out=first, keep_for_retraining=keep, **words)
    assert (kept_bytes(first) or 0) <= max(keep, 400)
    about = run_of(first).get("retraining")
    if name == "kernel" or not keep:  # always trained from scratch; or nothing is to be kept
        assert about is None
        assert not (first / FILE).exists()
    else:
        assert about["most_bytes"] == keep
        assert about["bytes"] in (0, kept_bytes(first))
        assert about["bytes"] or about.get("wanted_bytes", keep + 1) > keep
    append(60)
    found = coremargin.retrain(first, path, out=again, cluster="threads", keep_for_retraining="1 MB")
    assert verify(again, path).ok
    for one, other in zip(
        certificates(found), certificates(coremargin.train(path, out=tmp_path / "anew", **words)), strict=True
    ):
        assert one.kind == other.kind
        if one.lower is not None:  # else no hyperplane separates the class
            assert one.lower <= other.upper * (1 + 1e-9)
            assert other.lower <= one.upper * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_rows_that_do_not_fit_join_the_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str) -> None:
    """Half of the rows near the margin are kept, the others as sums: an update still reads only what is new."""
    path, words = tmp_path / "rows.zarr", {"loss": loss, "C": 0.1, "epsilon": 5e-3, "cluster": "threads"}
    append = stored(path, "hinge", 20_000)
    monkeypatch.setattr(make, "SoftMargin", partial(SoftMargin, sample_bytes=40_000))
    monkeypatch.setattr("coremargin.problems.soft.near_margin.NEAR_BYTES_LEAST", 60_000)
    coremargin.train(path, out=tmp_path / "all", **words)
    assert run_of(tmp_path / "all")["stages"] > 1
    with np.load(tmp_path / "all" / FILE) as kept:
        less = (kept_bytes(tmp_path / "all") or 0) - kept["reading_near_rows"].nbytes // 2
    coremargin.train(path, out=tmp_path / "half", keep_for_retraining=less, **words)
    assert 0 < (kept_bytes(tmp_path / "half") or 0) <= less
    for name in ("model.json", "arrays.npz"):
        assert (tmp_path / "half" / name).read_bytes() == (tmp_path / "all" / name).read_bytes()
    append(500)
    coremargin.retrain(tmp_path / "half", path, out=tmp_path / "next", cluster="threads")
    run = run_of(tmp_path / "next")
    assert "from_scratch" not in run["retrained"]
    assert run["bytes_read"] < 0.1 * run["store_bytes"]
    assert verify(tmp_path / "next", path).status == "certified"
    assert (kept_bytes(tmp_path / "next") or 0) <= less  # as the training before it was asked


def test_sums_that_cost_are_kept_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows fit into memory sums are more work: by default only if it is little, and a retraining says why not."""
    path, words = tmp_path / "rows.zarr", {"loss": "squared_hinge", "C": 0.1, "epsilon": 5e-3, "cluster": "threads"}
    append = stored(path, "squared hinge")
    coremargin.train(path, out=tmp_path / "cheap", **words)
    monkeypatch.setattr("coremargin.engine.allowance.FREE_WORK", 100.0)
    coremargin.train(path, out=tmp_path / "default", **words)
    coremargin.train(path, out=tmp_path / "asked", keep_for_retraining="64 MiB", **words)
    assert run_of(tmp_path / "default")["retraining"]["bytes"] == 0
    assert run_of(tmp_path / "cheap")["retraining"]["bytes"] == run_of(tmp_path / "asked")["retraining"]["bytes"] > 0
    append(60)
    coremargin.retrain(tmp_path / "default", path, out=tmp_path / "1", cluster="threads")
    assert "keep_for_retraining" in run_of(tmp_path / "1")["retrained"]["from_scratch"]
    append(60)  # who retrains once is likely to do so again
    coremargin.retrain(tmp_path / "1", path, out=tmp_path / "2", cluster="threads")
    assert "from_scratch" not in run_of(tmp_path / "2")["retrained"]


def test_more_of_a_large_store_is_not_kept(tmp_path: Path) -> None:
    """However many rows there are, those near a hard margin that stay take no more than is allowed."""
    path = tmp_path / "rows.zarr"
    stored(path, "hard")
    store = Store.open(path)
    store.rows = 1 << 40  # type: ignore[misc]  # as the problem sees it
    problem = HARD.problem(new_job(store=path, out=tmp_path / "m"), store)
    assert 0 < problem.near_share * store.rows * 20 <= KEPT_BYTES
    job: Any = new_job(store=path, out=tmp_path / "m", keep_for_retraining=0)
    assert HARD.problem(job, store).near_share == 0


def test_time_is_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept, the report and files that take long to be written are in the time that is reported."""
    path, out = tmp_path / "rows.zarr", tmp_path / "model"
    stored(path, "hard")

    def slow(real: Any, seconds: float) -> Any:
        def done(*given: Any, **named: Any) -> Any:
            time.sleep(seconds)
            return real(*given, **named)

        return done

    monkeypatch.setattr(train_module, "write_kept", slow(train_module.write_kept, 0.2))
    monkeypatch.setattr(LocalStorage, "create", slow(LocalStorage.create, 0.1))
    monkeypatch.setattr(train_module, "problem_of", slow(train_module.problem_of, 0.3))
    job = new_job(store=path, out=out)
    done = train_job(job, Store.open(path), InProcess(1), report=lambda _: time.sleep(0.1))
    run, told = run_of(out), summary_of(done)
    assert run["seconds"] == told["seconds"] >= 0.7
    assert 0.3 <= run["retraining"]["seconds"] <= run["seconds"] - 0.4
    assert told["retraining_seconds"] == run["retraining"]["seconds"]
    assert told["retraining_bytes"] == kept_bytes(out)


@pytest.mark.parametrize("keep", [None, "0", "3 kB"])
def test_people_are_told(tmp_path: Path, keep: str | None) -> None:
    """Size and time stand in their own line; where nothing is kept it says why, or that is what was asked for."""
    path, out = tmp_path / "rows.zarr", tmp_path / "model"
    stored(path, "hinge")
    words = [] if keep is None else ["--keep-for-retraining", keep]
    found = CliRunner().invoke(main, ["train", str(path), "--out", str(out), "--loss", "hinge", "-q", *words])
    lines = [line for line in found.output.splitlines() if line.startswith("state ")]
    assert len(lines) == (keep != "0")
    if keep is None:
        assert "for retraining" in lines[0]
        assert lines[0].endswith("of that time")
    elif keep != "0":
        assert "none for retraining: it needs" in lines[0]


def test_a_store_that_stays_mapped_is_not_copied(tmp_path: Path) -> None:
    """Chunks in open maps, and arrays, are read from there; others are copied where all fit into memory."""
    path = tmp_path / "rows.zarr"
    stored(path, "hard", 500)
    resident = Resident(Store.open(path))
    first = [resident.read(chunk)[0] for chunk in range(resident.chunks)]
    assert resident.held() == frozenset(range(resident.chunks))
    assert all(np.shares_memory(rows, resident.read(chunk)[0]) for chunk, rows in enumerate(first))
    assert not any(resident._kept.values())


def test_memory_for_rows_does_not_grow_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of larger stores no more rows stay in memory, unless somebody gave the memory for it."""
    path = tmp_path / "rows.zarr"
    stored(path, "hard", 500)
    store: Any = Store.open(path)
    assert fits(store, 1 << 40, requested=False)
    monkeypatch.setattr(type(store), "nbytes", property(lambda _: MOST_BYTES + 1))
    assert not fits(store, 1 << 40, requested=False)
    assert fits(store, 1 << 40, requested=True)


def test_a_registry_asks_for_what_its_next_run_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its trainings keep sums, whatever work they are, unless its job says another size."""
    from coremargin.registry.nightly import NightlyJob
    from coremargin.registry.registry import Registry
    from coremargin.registry.training import train_version

    monkeypatch.setattr("coremargin.engine.allowance.FREE_WORK", 0.0)
    path = tmp_path / "rows.zarr"
    stored(path, "hinge", 1000)
    for name, words, most in (("a", {}, KEPT_BYTES), ("b", {"keep_for_retraining": "200 MiB"}, 200 << 20)):
        job = NightlyJob(store=path, registry=tmp_path / name, train={"loss": "hinge", **words})
        _, run = train_version(job, Registry.create(job.registry), None)
        assert run["retraining"]["most_bytes"] == most
        assert run["retraining"]["bytes"] > 0


def test_the_default_is_bounded() -> None:
    """64 MiB, of what is cheap."""
    assert Allowance() == new_job(store="s", out="m").allowance == Allowance(64 << 20, requested=False)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("loss", [None, "hinge", "squared_hinge"])
def test_larger_stores_take_no_more_memory(tmp_path: Path, loss: str | None) -> None:
    """By default the peak of a training, in a process of its own, is the same for stores of 0.6 and 1.5 GB."""
    peaks = []
    for size in ("600 MB", "1500 MB"):
        store, out = tmp_path / "rows.zarr", tmp_path / "model"
        noise = [] if loss is None else ["--noise", "0.05"]
        done = partial(subprocess.run, check=True, capture_output=True, text=True)
        command = [sys.executable, "-m", "coremargin"]
        done([*command, "synth", str(store), "--size", size, "--features", "50", "--overwrite", "-q", *noise])
        words = [] if loss is None else ["--loss", loss]
        told = done([*command, "train", str(store), "--out", str(out), "--overwrite", "--json", *words]).stdout
        peaks.append(json.loads(told)["peak_rss_bytes"])
        assert (kept_bytes(out) or 0) <= KEPT_BYTES
    assert peaks[1] <= 1.12 * peaks[0]
