"""Models of stores in narrow types: the same to the bit as of float32, and no type passes for another."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import crc32c
import numpy as np
import pytest

import coremargin
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import DamagedChunk
from coremargin.verify.examine import examine
from coremargin.verify.files import bfloat16_numbers

if TYPE_CHECKING:
    from forge_specimens import Specimens

ROWS, FEATURES = 700, 6
JOBS: dict[str, dict[str, Any]] = {
    "hinge": {"loss": "hinge", "C": 0.5},
    "scaled": {"loss": "squared_hinge", "scaling": "standard"},
    "rownorm": {"loss": "logistic", "scaling": "rownorm"},
    "map": {"loss": "hinge", "map": "fourier", "components": 12},
    "ball": {"one_class": "ball", "nu": 0.1},
}


def narrow_rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two noisy classes that a type holds, those of bfloat16 in float32, and labels."""
    rng = np.random.default_rng(46)
    X = rng.standard_normal((ROWS, FEATURES))
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(ROWS) > 0, "yes", "no")
    if name == "float16":
        return X.astype(np.float16), y
    if name == "bfloat16":
        return (X.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32), y
    low, middle, high = (0, 128, 255) if name == "uint8" else (-127, 0, 127)
    return np.clip(np.rint(25 * X) + middle, low, high).astype(name), y


def store_of(path: Path, X: np.ndarray, y: np.ndarray, name: str) -> Path:
    """A store of these rows in chunks of 100."""
    with StoreWriter.create(path, features=FEATURES, dtype=name, chunk_rows=100) as writer:
        writer.write(X, y)
    return path


@pytest.mark.parametrize(
    ("name", "job"),
    [("float16", job) for job in JOBS] + [(name, "hinge") for name in ("bfloat16", "int8", "uint8", "int16")],
)
def test_certificates_are_those_of_float32(tmp_path: Path, name: str, job: str) -> None:
    """The model of a narrow store verifies, and all its numbers are those of the float32 store, to the bit."""
    X, y = narrow_rows(name)
    stores = [store_of(tmp_path / f"{kind}.zarr", X, y, kind) for kind in (name, "float32")]
    models = [coremargin.train(store, out=f"{store}.model", **JOBS[job]) for store in stores]
    for store in stores:
        assert examine(f"{store}.model", store).ok
    kept = [dict(np.load(f"{store}.model/arrays.npz")) for store in stores]
    assert {key: values.tobytes() for key, values in kept[0].items()} == {
        key: values.tobytes() for key, values in kept[1].items()
    }
    assert models[0].record["dtype"] == "float32"
    reads = [json.loads((Path(f"{store}.model") / "run.json").read_text()) for store in stores]
    assert reads[0]["bytes_read"] * reads[1]["store_bytes"] == reads[1]["bytes_read"] * reads[0]["store_bytes"]
    width = 1 if name in ("int8", "uint8") else 2
    assert reads[0]["store_bytes"] == ROWS * (FEATURES * width + 4)
    wide = X.astype(np.float32)
    assert (models[0].decision_function(X) == models[1].decision_function(wide)).all()
    assert not examine(f"{stores[0]}.model", stores[1]).ok  # the same numbers, not the content that it names


@pytest.mark.parametrize(("held", "as_if"), [("int8", "uint8"), ("float16", "int16"), ("bfloat16", "float16")])
def test_bytes_of_another_type(tmp_path: Path, held: str, as_if: str) -> None:
    """A store of the same bytes with another type in all metadata, its digests computed anew, proves nothing."""
    X, y = narrow_rows(held)
    store = store_of(tmp_path / "a.zarr", X, y, held)
    coremargin.train(store, loss="hinge").save(tmp_path / "a.model")
    raw = np.concatenate([Store.open(store).read_stored(chunk)[0] for chunk in range(7)])
    forged = raw.view(np.float16 if as_if == "float16" else as_if)
    shutil.rmtree(store)
    store_of(store, forged, y, as_if)
    assert (
        np.concatenate([Store.open(store).read_stored(chunk)[0] for chunk in range(7)]).view(raw.dtype) == raw
    ).all()
    found = {check.name: check.ok for check in examine(tmp_path / "a.model", store).checks}
    assert not found["content"]
    record = json.loads((tmp_path / "a.model" / "model.json").read_text())
    opened = Store.open(store)
    record["certificate"]["store_digest"] = opened.digest
    record["certificate"]["store_sha256"] = {"chunk_rows": 100, "digest": opened.sha256}
    (tmp_path / "a.model" / "model.json").write_text(json.dumps(record))
    found = examine(tmp_path / "a.model", store)
    assert {check.name: check.ok for check in found.checks}["content"]
    assert not found.ok


@pytest.mark.parametrize(("specimen", "bits"), [("half", 0x7C00), ("half", 0xFE01), ("bits", 0x7F80)])
def test_values_that_are_not_finite(tmp_path: Path, specimens: Specimens, specimen: str, bits: int) -> None:
    """An infinity or NaN behind right checksums is refused by row, before anything is concluded."""
    made = specimens[specimen]
    shutil.copytree(made.store, tmp_path / "a.zarr")
    path = tmp_path / "a.zarr" / "X" / "c.1.0"
    values = np.frombuffer(path.read_bytes()[:-4], "<u2").copy()
    values[3 * 5 + 1] = bits
    path.write_bytes(values.tobytes() + int(crc32c.crc32c(values.tobytes())).to_bytes(4, "little"))
    entry = tmp_path / "a.zarr" / "blocks" / "000000" / "digest" / "c.0"
    digests = np.frombuffer(entry.read_bytes()[:-4], "<u8").copy()
    digests[1] = int(crc32c.crc32c(values.tobytes())) << 32 | int(digests[1]) & 0xFFFFFFFF
    entry.write_bytes(digests.tobytes() + int(crc32c.crc32c(digests.tobytes())).to_bytes(4, "little"))
    with pytest.raises(DamagedChunk, match="row 21 is not finite"):
        examine(made.model, tmp_path / "a.zarr")


def test_bfloat16_of_the_verifier() -> None:
    """All patterns are the upper halves of float32 numbers."""
    bits = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)
    found = bfloat16_numbers(bits)
    assert found.shape == (256, 256)
    assert found.dtype == np.float32
    assert (np.ascontiguousarray(found).view(np.uint32) == bits.astype(np.uint32) << 16).all()
