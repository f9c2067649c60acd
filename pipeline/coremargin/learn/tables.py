"""Training from Python on tables: they become a store as ``ingest`` makes it, for the moment or beside the model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from coremargin.data.ingest import ingest
from coremargin.data.source import Source
from coremargin.data.store_paths import is_store, store_beside
from coremargin.data.tables.words import COLUMN_WORDS
from coremargin.errors import UsageError
from coremargin.learn.files import ingest_beside

if TYPE_CHECKING:
    from coremargin.learn.train import Begin

_WORDS = (*COLUMN_WORDS, "drop")


@contextmanager
def store_of(
    source: Any, y: Any, weights: Any, columns: Mapping[str, Any] | None, out: Path | None, begin: Begin, **flags: bool
) -> Iterator[tuple[Any, Any, Any]]:
    """Source, y and weights as they are, or the path of the store that they became, which is gone at the end.

    y: labels, or the name or number of a column; columns: what ``ingest`` is to do with columns. out: of the model,
    beside which the store stays then, as that of files does. flags: overwrite. Raises UsageError, and as ``ingest``.
    """
    if not _is_table(source, y, columns):
        yield source, y, weights
        return
    words = dict(columns or {})
    strange = sorted(words.keys() - set(_WORDS))
    if strange:
        raise UsageError(f"columns: found {strange[0]!r}, expected some of {', '.join(_WORDS)}; correct it")
    words |= {"label" if y is None or _names_column(y) else "labels": y, "weights": weights}
    if out is not None:
        ingest_beside(source, out, begin, overwrite=flags["overwrite"], **words)
        yield store_beside(out), None, None
        return
    with TemporaryDirectory(prefix="coremargin-rows-") as folder:
        store = Path(folder) / "rows.zarr"
        ingest(source, store, **words)
        yield store, None, None


def _is_table(source: Any, y: Any, columns: Mapping[str, Any] | None) -> bool:
    """Whether ``ingest`` has to read the source first: columns are meant, or files."""
    own = isinstance(source, Source) or (isinstance(source, str | os.PathLike) and is_store(source))
    if own and columns is not None:
        raise UsageError("columns: a store has its own; give columns only with tables and files")
    if isinstance(source, str | os.PathLike):
        return not own
    return not own and (columns is not None or _names_column(y))


def _names_column(y: Any) -> bool:
    return isinstance(y, str | int)
