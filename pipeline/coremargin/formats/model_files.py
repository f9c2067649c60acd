"""A model's folder on disk: its record and its arrays, checked against each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coremargin.errors import DataError, raise_if_limit
from coremargin.formats.columns import FILE as COLUMNS
from coremargin.formats.columns import LARGEST as MOST_COLUMNS_BYTES
from coremargin.formats.columns import ColumnsRecord, read_columns
from coremargin.formats.model_arrays import check_arrays
from coremargin.formats.model_record import FILE, ModelRecord
from coremargin.formats.npz import read_arrays
from coremargin.formats.open_folder import opened
from coremargin.formats.registry import typed_record
from coremargin.formats.strict_json import LARGEST, read_object

ARRAYS = "arrays.npz"
#: Rows near a hard margin, part of the warm-start state: no claim depends on them.
NEAR_ROWS = "near-rows.npz"


@dataclass(frozen=True)
class ModelFiles:
    """path: of the folder; content: the record as it is written; record: the same with kinds; arrays: by name.

    columns: what the features come from, where the rows had names.
    """

    path: Path
    content: dict[str, Any]
    record: ModelRecord
    arrays: dict[str, np.ndarray]
    columns: ColumnsRecord | None = None


def read_content(folder: int, path: Path, name: str) -> dict[str, Any]:
    """The JSON object in a file of an open folder. Raises DataError; FileNotFoundError passes."""
    with opened(folder, path, name) as file:
        return read_object(_read(file, path, name), f"{path}/{name}")


def read_model_files(folder: int, path: Path, below: str = "") -> ModelFiles:
    """The files of a model in an open folder, or in a folder ``below`` it; path: of the open one, for messages.

    Raises DataError that names the file, and what in it is not as a model's; FileNotFoundError passes.
    """
    here = path / below
    content = read_content(folder, path, str(Path(below, FILE)))
    record = typed_record(content, f"{here}/{FILE}")
    with opened(folder, path, str(Path(below, ARRAYS))) as file:
        arrays = read_arrays(file, f"{here}/{ARRAYS}")
    check_arrays(record, arrays, f"{here}/{ARRAYS}")
    return ModelFiles(here, content, record, arrays, read_own_columns(folder, path, below, record.features))


def read_own_columns(folder: int, path: Path, below: str = "", features: int | None = None) -> ColumnsRecord | None:
    """What the columns of an open model's rows are, None where they had no names; features: how many there must be.

    Raises DataError: broken, or of other features.
    """
    try:
        with opened(folder, path, str(Path(below, COLUMNS))) as file:
            data = _read(file, path, COLUMNS, MOST_COLUMNS_BYTES)
    except FileNotFoundError:
        return None
    found = read_columns(data, f"{path / below}/{COLUMNS}")
    if features is not None and found.width != features:
        raise DataError(
            f"{path / below}/{COLUMNS}: expected columns of {features:,} features, found {found.width:,}; get an "
            "unaltered copy"
        )
    return found


def _read(file: Any, path: Path, name: str, largest: int = LARGEST) -> bytes:
    try:
        data: bytes = file.read(largest + 1)
    except OSError as error:
        raise_if_limit(error, path / name)
        raise DataError(f"{path}/{name}: cannot be read: {error.strerror}; get a whole copy of the model") from error
    return data
