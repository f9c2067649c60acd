"""What belongs to rows and may lie beside them: files of labels, weights, and what a store says of its features."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.data.sources.npy import companion
from coremargin.data.sources.npz import holds_labels
from coremargin.data.sources.python_objects import AnyTable, carries_labels, kinds_of
from coremargin.data.sources.weights import WeightStream
from coremargin.errors import LabelError, UsageError

if TYPE_CHECKING:
    from coremargin.data.store import Store


def label_files(source: Any, *, unlabelled: bool | None) -> list[Path] | None:
    """The label files beside ``X.npy`` files; None for sources that carry their labels themselves, or may have none."""
    kinds = kinds_of(source)
    if carries_labels(source):
        return None
    if kinds is not None and not {kind for _, kind in kinds} <= {"npy", "npz"}:
        return None
    if kinds is None and unlabelled is None:
        return None
    if kinds is None:
        raise LabelError("labels are missing: expected one per row; give labels=..., or say unlabelled=True")
    found = [companion(path) for path, _ in kinds]
    own = [path for path, kind in kinds if kind == "npz" and holds_labels(path)]
    if own and any(found):
        raise UsageError(f"{own[0]}: holds labels, and y.npy lies beside: give the ones that count, --labels FILE")
    if len(own) == len(kinds):
        return None
    for (path, _), separate in zip(kinds, found, strict=True):
        if separate is None and unlabelled is None:
            return None
        if separate is None:
            raise LabelError(
                f"{path}: labels are missing: expected them in --labels FILE, or in y.npy beside X.npy; or --unlabelled"
            )
    return [separate for separate in found if separate is not None]


def svmlight_features(source: Any, base: Store) -> int | None:
    """How many features a store says that rows of SVMlight have; None of other sources, which say it themselves."""
    kinds = kinds_of(source)
    return base.features if kinds and kinds[0][1] == "svmlight" else None


def weights_of(source: Any, weights: Any) -> tuple[str | int | None, WeightStream | None]:
    """The column that holds the weights, or what reads them from beside the rows."""
    if weights is None:
        return None, None
    kinds = {kind for _, kind in kinds_of(source) or ()}
    if (kinds & {"csv", "parquet"} or isinstance(source, AnyTable)) and isinstance(weights, str | int):
        return weights, None
    return None, WeightStream(weights)


def key_of(base: Store | None, key: str | int | None) -> str | int | None:
    """The column of keys; of rows that join others the one that has the name of theirs. Raises UsageError."""
    columns = None if base is None else base.columns
    if base is None or (columns is not None and columns.key is not None and key is not None):
        return key
    if key is not None:
        raise UsageError(f"{base.name}: its rows have no keys: leave --key out, or give it when the store is made")
    return None if columns is None or columns.key is None else columns.key if columns.named else int(columns.key)
