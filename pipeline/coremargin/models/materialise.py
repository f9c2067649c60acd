"""Write the mapped rows of a store to disk once, for many trainings on them.

Labels, weights and the numbers of rows stay. A model of the new store is one of mapped rows: other rows have to be
mapped by the same model before it can decide about them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from coremargin.data.format import UNLABELLED
from coremargin.data.mapped import mapped
from coremargin.data.scaled import scaled_as
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import UsageError
from coremargin.formats.location import is_remote, location
from coremargin.models.matching import scorer_for
from coremargin.models.predict import opened_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.data.source import Source
    from coremargin.models.fleet import AnyModel


def materialise(
    model: AnyModel | str | os.PathLike[str],
    store: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    dtype: Literal["float64", "float32"] = "float64",
    overwrite: bool = False,
    on_rows: Callable[[int, int], object] | None = None,
) -> Store:
    """Write the rows of a store as a model scales and maps them into another store.

    Parameters
    ----------
    model : model or path-like
        One that maps rows.
    store : path-like
        Rows (n, d) as the model takes them.
    out : path-like
        The new store or its address, of rows (n, m) for m components. It appears whole or not at all.
    dtype : {"float64", "float32"}, default "float64"
        With "float64" a training on the new store is one on the rows as a map makes them as they are read; "float32"
        takes half of the disk, and is another problem by a rounding of each number.
    overwrite : bool, default False
        Replace a store that is there.
    on_rows : callable, optional
        Called with rows written and rows in all.

    Returns
    -------
    Store
        The new one.

    Raises
    ------
    UsageError
        The model maps no rows, or something is at ``out``, the rows themselves at that.
    StoreError, DataError, DamagedChunk, BadRow, OutputError
        Rows of other features, a chunk that cannot be read, a row that rounding decides about, no room.
    """
    given = Store.open(store)
    out = location(out)
    if given.storage.remote or is_remote(out):
        same = str(out) == str(given.storage.name)
    else:
        same = Path(out).resolve() == given.path.resolve()
    if same:
        raise UsageError(f"{out}: expected another place than that of the rows, which would be lost")
    source = _as_mapped(opened_model(model, None), given)
    labels: Any = np.empty(len(given.classes) + 1, dtype=object)
    labels[: len(given.classes)] = given.classes
    labels[UNLABELLED] = None
    with StoreWriter.create(
        out, features=source.features, dtype=dtype, weighted=given.weighted, classes=given.classes, overwrite=overwrite
    ) as writer:
        for chunk in range(source.chunks):
            rows, codes = source.read(chunk)
            writer.write(rows.astype(dtype, copy=False), labels[codes], source.weights(chunk))
            if on_rows is not None:
                on_rows(source.span(chunk)[1], source.rows)
    return Store.open(out)


def _as_mapped(model: AnyModel, store: Store) -> Source:
    """The rows as the model is about them. Raises UsageError, DataError."""
    scorer = scorer_for(model, store)
    if scorer.map is None:
        raise UsageError("expected a model that maps rows (coremargin train --map), found one of rows as they are")
    if getattr(scorer, "columns", None) is not None:
        raise UsageError(f"{store.name}: expected columns in the order of the model; ingest with --columns-of MODEL")
    how = scorer.scaling
    return mapped(store if how is None else scaled_as(store, how), scorer.map)
