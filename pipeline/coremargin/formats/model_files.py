"""A model's folder on disk: its record and its arrays, checked against each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coremargin.errors import DataError
from coremargin.formats.columns import FILE as COLUMNS
from coremargin.formats.columns import LARGEST as MOST_COLUMNS_BYTES
from coremargin.formats.columns import ColumnsRecord, read_columns
from coremargin.formats.model_arrays import check_arrays
from coremargin.formats.model_record import FILE, ModelRecord
from coremargin.formats.npz import read_arrays
from coremargin.formats.registry import typed_record
from coremargin.formats.storage import MISSING, ReadableStorage, opened_object
from coremargin.formats.strict_json import LARGEST, read_object

ARRAYS = "arrays.npz"
#: Rows near a hard margin, part of the warm-start state: no claim depends on them.
NEAR_ROWS = "near-rows.npz"
_ADVICE = "get a whole copy of the model"


@dataclass(frozen=True)
class ModelFiles:
    """path: of the folder, or its address; content: the record as it is written; record: the same with kinds.

    arrays: by name. columns: what the features come from, where the rows had names.
    """

    path: str
    content: dict[str, Any]
    record: ModelRecord
    arrays: dict[str, np.ndarray]
    columns: ColumnsRecord | None = None


def read_content(model: ReadableStorage, key: str) -> dict[str, Any]:
    """The JSON object in an object of a model. Raises DataError; ``MISSING`` pass."""
    return read_object(_read(model, key, LARGEST), f"{model.name}/{key}")


def read_model_files(model: ReadableStorage, below: str = "") -> ModelFiles:
    """The files of a model, or of one of many whose keys begin with ``below``.

    Raises DataError that names the file, and what in it is not as a model's; ``MISSING`` pass.
    """
    start = f"{below}/" if below else ""
    content = read_content(model, start + FILE)
    record = typed_record(content, f"{model.name}/{start}{FILE}")
    with opened_object(model, start + ARRAYS, advice=_ADVICE) as file:
        arrays = read_arrays(file, f"{model.name}/{start}{ARRAYS}")
    check_arrays(record, arrays, f"{model.name}/{start}{ARRAYS}")
    place = f"{model.name}/{below}" if below else model.name
    return ModelFiles(place, content, record, arrays, read_own_columns(model, below, record.features))


def read_own_columns(model: ReadableStorage, below: str = "", features: int | None = None) -> ColumnsRecord | None:
    """What the columns of a model's rows are, None where they had no names; features: how many there must be.

    Raises DataError: broken, or of other features.
    """
    key = f"{below}/{COLUMNS}" if below else COLUMNS
    try:
        data = _read(model, key, MOST_COLUMNS_BYTES)
    except MISSING:
        return None
    found = read_columns(data, f"{model.name}/{key}")
    if features is not None and found.width != features:
        raise DataError(
            f"{model.name}/{key}: expected columns of {features:,} features, found {found.width:,}; get an unaltered "
            "copy"
        )
    return found


def _read(model: ReadableStorage, key: str, largest: int) -> bytes:
    with opened_object(model, key, advice=_ADVICE) as file:
        return file.read(largest + 1)
