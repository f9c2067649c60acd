"""Models with other contents, for tests of who finds that out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from coremargin.data.writer import StoreWriter
from coremargin.models.model import Model


def store_of(path: Path, X: np.ndarray, labels: list[Any], chunk_rows: int) -> Path:
    """A store in small chunks."""
    chunk_bytes = chunk_rows * X.shape[1] * X.dtype.itemsize
    with StoreWriter.create(path, features=X.shape[1], dtype=X.dtype.name, chunk_bytes=chunk_bytes) as writer:
        writer.write(X, labels)
    return path


def altered(model: Path, place: Path, record: dict[str, Any] | None = None, **arrays: Any) -> Path:
    """A copy of a model's folder with other values: "a.b" is entry b of a in the record.

    A function changes what is there, None leaves an array out, anything else takes its place. A model with another
    digest of its store's rows names no SHA-256 and claims no compression scheme: tests are about what is false of these
    rows.
    """
    shutil.copytree(model, place)
    values = json.loads((place / "model.json").read_text())
    if "certificate.store_digest" in (record or {}):
        values["certificate"].pop("store_sha256", None)
        values.pop("compression", None)
    for key, value in (record or {}).items():
        entry, *path = values, *key.split(".")
        for part in path[:-1]:
            entry = entry[part]
        entry[path[-1]] = value(entry[path[-1]]) if callable(value) else value
    (place / "model.json").write_text(json.dumps(values))
    with np.load(place / "arrays.npz") as found:
        content = dict(found)
    for name, value in arrays.items():
        content[name] = value(content[name].copy()) if callable(value) else value
    np.savez(place / "arrays.npz", **{name: array for name, array in content.items() if array is not None})
    return place


def certified_record(store: dict[str, Any], **certificate: Any) -> dict[str, Any]:
    """The record of a model with margin 1, proven by two rows; store: its classes, features, rows and dtype."""
    claims = {
        "kind": "margin",
        "lower": 1.0,
        "upper": 1.0,
        "ratio": 1.0,
        "epsilon": 0.001,
        "coreset_rows": 2,
        "store_digest": f"sha256:{0:064}",
        "radius": 1.0,
    }
    values = {
        "format": "coremargin-model",
        "version": 1,
        "problem": "hard_margin",
        "status": "certified",
        "parameters": {"epsilon": 0.001, "intercept": True, "strategy": "fast"},
        "certificate": claims | certificate,
        "software": {"coremargin": "0.1.0"},
    }
    return values | store


def plane(w: np.ndarray, b: float, classes: tuple[Any, Any], dtype: str = "float64") -> Model:
    """A model of two classes of which nothing is proven: the sign of w.x + b."""
    certificate = {"lower": None, "upper": None, "ratio": None, "epsilon": 0.1, "coreset_rows": 0}
    record = certified_record({"classes": list(classes), "features": len(w), "rows": 1, "dtype": dtype}, **certificate)
    record |= {"status": "stopped", "parameters": record["parameters"] | {"epsilon": 0.1}}
    none = dict.fromkeys(("alpha", "coreset_ids", "coreset_y"), np.zeros(0, np.int8))
    return Model(record, {"w": w, "b": np.array([b]), **none}, np.zeros((0, len(w))))
