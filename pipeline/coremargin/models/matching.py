"""Matching the columns of rows with those of a model: any order is accepted, other columns are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.sources.column_choice import difference
from coremargin.data.view import columns_of
from coremargin.errors import DataError

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.formats.column_kinds import Column
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.models.decision import Scorer
    from coremargin.models.fleet import AnyModel


def scorer_for(model: AnyModel, source: Source) -> Scorer:
    """The scorer for the rows of a source. Raises DataError for rows of other columns or features."""
    known, found = model.columns, columns_of(source)
    if known is None or found is None or not (known.named and found.named):
        _same_count(model, source)
        return model.scorer()
    problem = difference(known.names, found.names, "the model")
    if problem:
        raise DataError(
            f"{source.name}: {problem}; ingest rows with the model's columns: give the files themselves, or say "
            "--columns-of MODEL"
        )
    _same_meaning(known, found, source.name)
    _same_count(model, source)
    scorer = model.scorer()
    return scorer if known.names == found.names else _rearranged(scorer, known, found)


def _same_count(model: AnyModel, source: Source) -> None:
    if source.features != model.features:
        raise DataError(
            f"{source.name}: expected rows of {model.features:,} features as the model was trained on, "
            f"found {source.features:,}; give a store with the same columns"
        )


def _same_meaning(known: ColumnsRecord, found: ColumnsRecord, place: str) -> None:
    """Raises DataError for a column that became other features than the model's."""
    ours = {column.name: column for column in known.columns}
    for column in found.columns:
        own = ours[column.name]
        if own.meaning != column.meaning:
            raise DataError(
                f"{place}: column {column.name!r} became {_described(column)}, in the model it is {_described(own)}; "
                "ingest the rows with the model's columns: give the files themselves, or say --columns-of MODEL"
            )


def _described(column: Column) -> str:
    names = list(column.features)
    shown = ", ".join(repr(name) for name in names[:4])
    return f"{column.word} of {len(names):,} features ({shown}{', ...' if len(names) > 4 else ''})"


def _rearranged(scorer: Scorer, known: ColumnsRecord, found: ColumnsRecord) -> Scorer:
    """The same for rows whose columns come in another order."""
    start, places = 0, dict[str, np.ndarray]()
    for column in known.columns:
        places[column.name] = np.arange(start, start + column.width)
        start += column.width
    order = np.concatenate([places[name] for name in found.names])
    return scorer.rearranged(order)
