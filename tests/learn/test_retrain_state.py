"""What a model keeps for retraining, as another version may have written it: it is refused whole, for every kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coremargin
from coremargin import retrain
from coremargin.data.folder import write_arrays
from coremargin.data.lazy_arrays import fingerprint
from coremargin.data.local_storage import LocalStorage
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.formats.model_files import NEAR_ROWS
from coremargin.formats.npz import read_arrays
from coremargin.models import kept as room
from coremargin.verify.examine import examine as verify

Arrays = dict[str, np.ndarray]
KINDS: dict[str, dict[str, Any]] = {
    "hard": {},
    "hinge": {"loss": "hinge", "C": 0.1},
    "squared hinge": {"loss": "squared_hinge", "C": 0.1},
    "auto": {"loss": "auto", "C": 0.1},
    "outliers": {"outliers": 1},
    "fleet": {"classes": "ovr", "loss": "hinge", "C": 0.1},
    "hard fleet": {"classes": "ovr"},
    "crammer-singer": {"classes": "crammer-singer"},
    "soft crammer-singer": {"classes": "crammer-singer", "loss": "hinge", "C": 0.1},
}
HARMS: dict[str, Callable[[np.ndarray], dict[str, np.ndarray]]] = {
    "missing": lambda _: {},
    "shorter": lambda values: {"": values[:-1] if values.ndim and len(values) else values[None]},
    "of another type": lambda values: {"": values.astype(np.float16)},
    "more": lambda values: {"": values, "_more": values},
}


def rows(count: int, seed: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows around a centre for each class, which a hyperplane tells from all others."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, count)
    centres = np.array([[3.0, 0.0, 0.0], [-3.0, 0.5, 0.0], [0.0, 4.0, 1.0]])
    return (centres[y] + rng.uniform(-0.7, 0.7, (count, 3))).astype(np.float32), y


@pytest.fixture(params=KINDS)
def trained(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """A store, and a model of its rows but for those that came later."""
    store, model, options = tmp_path / "rows.zarr", tmp_path / "first", KINDS[request.param]
    classes = 3 if "classes" in options else 2
    with StoreWriter.create(store, features=3, dtype="float32", chunk_rows=50) as writer:
        writer.write(*rows(600, 1, classes), origin="test")
    coremargin.train(store, out=model, epsilon=1e-2, **options)
    with StoreWriter.append(store) as writer:
        writer.write(*rows(30, 2, classes), origin="test")
    return store, model


def resealed(model: Path, harm: Callable[[Arrays], object]) -> None:
    """Rewrite what a model keeps, with a seal that fits."""
    with (model / room.FILE).open("rb") as file:
        arrays = {name: np.array(values) for name, values in read_arrays(file, "x", 10_000).items() if name != "seal"}
    harm(arrays)
    seal = room._seal(room._digest(LocalStorage(model)), arrays)
    (model / room.FILE).unlink()
    write_arrays(model / room.FILE, {**arrays, "seal": seal})


def assert_from_scratch(store: Path, model: Path, out: Path) -> None:
    """It is retrained, says that and why it is trained from scratch, and is proven."""
    retrain(model, store, out=out)
    assert "another version" in json.loads((out / "run.json").read_text())["retrained"]["from_scratch"]
    assert verify(out, store).ok


def cases(model: Path, share: int) -> Iterator[tuple[str, str]]:
    """Arrays to harm, and how."""
    with (model / room.FILE).open("rb") as file:
        names = sorted(set(read_arrays(file, "x", 10_000)) - {"seal", "form"})
    found = [(name, harm) for name in names for harm in HARMS]
    yield from found[len(model.parent.name) % share :: share]


@pytest.mark.specimens(3)
@pytest.mark.parametrize("share", [211, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_other_arrays_than_these_are_not_gone_on_from(trained: tuple[Path, Path], tmp_path: Path, share: int) -> None:
    """An array that is missing, shorter, of another type or one too many makes the whole file unusable."""
    store, model = trained
    if not (model / room.FILE).exists():
        pytest.skip("this kind keeps nothing")
    whole = (model / room.FILE).read_bytes()
    for number, (name, harm) in enumerate(cases(model, share)):
        (model / room.FILE).write_bytes(whole)

        def replace(arrays: Arrays, name: str = name, harm: str = harm) -> None:
            arrays |= {name + more: values for more, values in HARMS[harm](arrays.pop(name)).items()}

        resealed(model, replace)
        assert_from_scratch(store, model, tmp_path / f"m{number}")


@pytest.mark.specimens(2)
def test_files_without_a_form_or_of_another_version(trained: tuple[Path, Path], tmp_path: Path) -> None:
    """What was written before there were forms, or will be by later versions, costs a training from scratch."""
    store, model = trained
    if not (model / room.FILE).exists():
        pytest.skip("this kind keeps nothing")
    resealed(model, lambda arrays: arrays.update(form=np.frombuffer(b"[9, {}]", np.uint8)))
    assert_from_scratch(store, model, tmp_path / "later")
    resealed(model, lambda arrays: arrays.pop("form"))
    assert_from_scratch(store, model, tmp_path / "earlier")


@pytest.mark.parametrize("change", ["missing", "shorter", "narrower"])
def test_near_rows_of_another_version(tmp_path: Path, change: str) -> None:
    """They are lost, as damaged ones are, and the store is read for what they held."""
    store, model = tmp_path / "rows.zarr", tmp_path / "first"
    with StoreWriter.create(store, features=3, dtype="float32", chunk_rows=50) as writer:
        writer.write(*rows(600, 1, 2), origin="test")
    coremargin.train(store, out=model)
    with (model / NEAR_ROWS).open("rb") as file:
        arrays = {name: np.array(values) for name, values in read_arrays(file, "x").items()}
    ((name, values),) = arrays.items()
    arrays = {"missing": {"other": values}, "shorter": {name: values[:-1]}, "narrower": {name: values[:, :2]}}[change]
    (model / NEAR_ROWS).unlink()
    write_arrays(model / NEAR_ROWS, arrays)
    mark = fingerprint(arrays) + (model / NEAR_ROWS).stat().st_size.to_bytes(8, "little")
    resealed(model, lambda kept: kept.update({f"near_rows_filed@{NEAR_ROWS}": np.frombuffer(mark, np.uint8)}))
    with StoreWriter.append(store) as writer:  # they break the margin: rows near it are needed
        writer.write(np.array([[0.3, 0.2, 0.0], [-0.3, 0.2, 0.0]], np.float32), [0, 1], origin="test")
    retrain(model, store, out=tmp_path / "m")
    assert verify(tmp_path / "m", store).ok
    assert coremargin.load(tmp_path / "m").status == "certified"
    assert Store.open(store).rows == 602
