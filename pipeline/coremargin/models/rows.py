"""Rows that a model is asked about: a store, or files, whose columns become the model's in a store for the moment."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from coremargin.data.ingest import GROUP_OF_COLUMNS, ingest
from coremargin.data.locked import Locked
from coremargin.data.source import Source, is_source
from coremargin.data.store import Store
from coremargin.data.store_paths import is_store
from coremargin.errors import CoremarginError, UsageError
from coremargin.formats.column_kinds import Numbers
from coremargin.formats.columns import ColumnsRecord

if TYPE_CHECKING:
    from coremargin.data.sources.base import OnProgress
    from coremargin.models.fleet import AnyModel


_PREFIX = ".coremargin-rows-"
_NEW_S = 60.0  # seconds; a folder may not have been locked yet


@contextmanager
def rows_for(
    model: AnyModel,
    source: Any,
    *,
    labelled: bool,
    drop: Sequence[str] = (),
    weights: str | int | None = None,
    next_to: Path | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[Source]:
    """The source, opened where it is the path of a store, or files, tables or batches, all that ``ingest`` takes.

    Rows of these lie in a store until the end, which messages call as the files; its place is a folder in ``next_to``,
    None: that of temporary files. They have the model's columns, besides those to ``drop`` and the ``weights``, where
    ``ingest`` finds some. labelled: they must have labels, else they may. Raises
    DataError for rows of other columns, UsageError for weights of a store, and as ``ingest`` does.
    """
    if is_source(source) or (isinstance(source, str | os.PathLike) and is_store(source)):
        if weights is not None:
            raise UsageError("--weights goes with files only: a store has its own weights, or none; leave it out")
        yield Store.open(source) if isinstance(source, str | os.PathLike) else source
    else:
        with rows_in_columns(
            source,
            model.columns,
            model.features,
            str(model.record["dtype"]),
            "the model",
            labelled=labelled,
            drop=drop,
            weights=weights,
            group=GROUP_OF_COLUMNS if model.grouped else None,
            next_to=next_to,
            on_progress=on_progress,
        ) as rows:
            yield rows


@contextmanager
def rows_in_columns(  # noqa: PLR0913 - rows, what they become, and where
    source: Any,
    columns: ColumnsRecord | None,
    features: int,
    dtype: str,
    columns_of: str,
    *,
    labelled: bool = False,
    drop: Sequence[str] = (),
    weights: str | int | None = None,
    group: Any = None,
    next_to: Path | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[Store]:
    """A store, for the moment, of what ``ingest`` takes, with these columns, or without so many features.

    columns_of: whose columns they are, for messages. Others as of ``rows_for``.
    """
    with TemporaryDirectory(prefix=_PREFIX, dir=next_to) as folder, Locked(Path(folder) / "rows", "rows"):
        _sweep(Path(folder))
        place = Path(folder) / "rows.zarr"
        report = ingest(
            source,
            place,
            columns=columns or _by_number(features),
            columns_of=columns_of,
            unlabelled=False if labelled else None,
            dtype=dtype,
            drop=drop,
            weights=weights,
            group=group,
            on_progress=on_progress,
        )
        yield Store.open(place, name=report.source)


def _sweep(own: Path) -> None:
    """Remove the folders in the parent of ``own`` that killed processes have left: their locks are free."""
    for other in own.parent.glob(f"{_PREFIX}*"):
        with suppress(OSError, CoremarginError):
            found = other.lstat()
            ours = other != own and stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
            if ours and time.time() - found.st_mtime > _NEW_S:
                with Locked(other / "rows", "rows"):
                    shutil.rmtree(other)


def _by_number(features: int) -> ColumnsRecord:
    """Columns without names: all that are not the label, in their order."""
    return ColumnsRecord(columns=[Numbers(name=f"{number}") for number in range(features)], named=False)
