"""Data frames of pandas as tables: slices become Arrow's arrays as they are read.

pandas is not imported here. The index of a frame is no column, unless an option names it; rows are numbered from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.labels import refuse_mixed
from coremargin.data.sources.column_choice import refuse_same_names
from coremargin.data.tables.arrow import UNNAMED_INDEX, simplify_array, simplify_type
from coremargin.data.tables.arrow_arrays import first_length
from coremargin.data.tables.table import INDEX, NO_HINTS, Hint, TableBatch, TypedTable, numbered
from coremargin.errors import BadRow, UsageError

if TYPE_CHECKING:
    from coremargin.data.sources.options import SourceOptions

_SHOWN = 80  # characters of a value that a message shows


class FrameTable(TypedTable):
    """A DataFrame of pandas."""

    def __init__(self, frame: Any, name: str = "DataFrame") -> None:
        levels = int(frame.columns.nlevels)
        if levels > 1:
            raise UsageError(
                f"{name}: its columns have {levels} levels of names, expected one; join them, for instance by "
                "frame.columns = ['_'.join(map(str, names)) for names in frame.columns]"
            )
        self.name, self._given = name, frame
        self.rows = len(frame)
        self.total_bytes = int(frame.memory_usage(index=False).sum())
        refuse_same_names([str(one) for one in frame.columns], name)
        self.reveal(())

    def every_type(self, columns: Sequence[int]) -> list[Any]:
        """None: lists are of the type of the first one, as far as is known."""
        del columns
        return []

    def reveal(self, requested: Collection[str]) -> None:
        """Show levels of the index that are requested for as columns, and columns that were an index elsewhere."""
        frame, index = self._given, self._given.index
        levels = [f"__index_level_{k}__" if one is None else str(one) for k, one in enumerate(index.names)]
        wanted = [k for k, one in enumerate(levels) if one in requested and levels.count(one) == 1]
        wanted = [k for k in wanted if levels[k] not in map(str, frame.columns)]
        if wanted:
            frame = frame.assign(**{levels[k]: index.get_level_values(k) for k in wanted})
        were = [str(one) for one in frame.columns if UNNAMED_INDEX.fullmatch(str(one)) and str(one) not in requested]
        if were:
            frame = frame.loc[:, [str(one) not in were for one in frame.columns]]
        self._frame, self._columns = frame, dict[int, Any]()
        names = [str(one) for one in frame.columns]
        self._show(names, _LazyTypes(len(names), self._type))
        numbered = index.nlevels == 1 and index.name is None and type(index).__name__ == "RangeIndex"
        left = [] if numbered else [one for one in levels if one not in names]
        self.hidden = dict.fromkeys([*left, *were], INDEX)

    def refuse_numbers(self, options: SourceOptions) -> None:
        """Raise UsageError for a number that is one column's name and another one's position."""
        named = {name: at for at, name in enumerate(self._frame.columns) if isinstance(name, int)}
        for number in (options.label, options.weights, options.key, options.group, *options.drop):
            if isinstance(number, int) and named.get(number, number) != number:
                raise UsageError(
                    f"{self.name}: {number} is the name of column {named[number]} and the number of another one, "
                    f"expected one meaning; say '{number}' for the name"
                )

    @property
    def frame(self) -> Any:
        """The columns that are shown."""
        return self._frame

    def plain_matrix(self) -> np.ndarray | None:
        """The columns side by side, where all of them are of NumPy's types of numbers, and none would be rounded."""
        kinds = set(self._frame.dtypes)
        plain = all(isinstance(kind, np.dtype) and kind.kind in "biuf" for kind in kinds)
        rounded = len(kinds) > 1 and any(kind.kind in "iu" and kind.itemsize == 8 for kind in kinds) if plain else True
        return None if rounded else np.asarray(self._frame)

    def check_label(self, column: int) -> None:
        """Raise LabelError for a column of objects of several kinds (True and 1.0), which Arrow would make one."""
        values = self._column(column)
        if values.dtype == object:
            refuse_mixed(values, lambda row: f"{self.name}, row {row}, {self.named(column)}")

    def pieces(self, columns: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Where slices begin and end."""
        size, rows = self._batch_rows(columns), len(self._frame)
        for start in range(0, rows, size):
            yield start, min(start + size, rows)

    def batch(self, piece: tuple[int, int], columns: Sequence[int], hints: Mapping[int, Hint] = NO_HINTS) -> TableBatch:
        """The columns of a slice."""
        del hints  # types are what they are
        start, stop = piece
        found = {column: self._values(column, start, stop) for column in columns}
        done = (self.total_bytes or 0) * stop // (self.rows or 1)
        return TableBatch(found, stop - start, self.name, numbered(self.name, start), done)

    def lengths(self, columns: Sequence[int]) -> dict[int, int]:
        """How long the first list of each of some columns is, 1 where that is missing. UsageError: it is empty."""
        return {column: first_length(self._values(column, 0, 1), self._names[column], self.name) for column in columns}

    def _type(self, column: int) -> Any:
        """Arrow's type of a column, of one of objects that of all its values."""
        import pyarrow as pa

        values = self._column(column)
        try:
            if values.dtype == object:
                return simplify_type(pa.infer_type(values, from_pandas=True))
            return simplify_type(pa.array(_slice(values, 0, 0), from_pandas=True).type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise UsageError(
                f"{self.name}, {self.named(column)}: found values of type {values.dtype}, expected numbers, booleans, "
                f"texts or dates ({str(error)[:_SHOWN]}); convert it, or leave it out with --drop {self._names[column]}"
            ) from error

    def _column(self, column: int) -> Any:
        """A column as an array of NumPy where it is one, which is sliced in a tenth of the time; else of pandas."""
        if column not in self._columns:
            values = self._frame.iloc[:, column]
            sparse = getattr(values, "sparse", None)
            values = values if sparse is None else sparse.to_dense()
            self._columns[column] = values.to_numpy() if isinstance(values.dtype, np.dtype) else values
        return self._columns[column]

    def _values(self, column: int, start: int, stop: int) -> Any:
        """A slice of a column as an array of Arrow's. BadRow: a value of another kind than the column's."""
        import pyarrow as pa

        values = _slice(self._column(column), start, stop)
        kind = (self.types or ())[column] if values.dtype == object else None
        try:
            return simplify_array(pa.array(values, type=kind, from_pandas=True))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            row = _first_odd(values, kind)
            raise BadRow(
                f"{self.name}, row {start + row}, {self.named(column)}: found {_shown(_slice(values, row, row + 1))}, "
                f"expected values of one kind, here {kind or values.dtype}; convert the column, for instance by "
                f".astype(str), or leave it out with --drop {self._names[column]}"
            ) from error


class _LazyTypes(Sequence[Any]):
    """Types of columns, found when they are read: columns that are dropped may hold anything."""

    def __init__(self, width: int, find: Callable[[int], Any]) -> None:
        self._width, self._find = width, find
        self._found: dict[int, Any] = {}

    def __len__(self) -> int:
        return self._width

    def __getitem__(self, column: Any) -> Any:
        if column not in self._found:
            self._found[column] = self._find(range(self._width)[column])
        return self._found[column]


def _slice(values: Any, start: int, stop: int) -> Any:
    """Some values of a column."""
    return values[start:stop] if isinstance(values, np.ndarray) else values.iloc[start:stop]


def _shown(value: Any) -> str:
    """One value as messages show it."""
    return repr(next(iter(value)))[:_SHOWN]


def _first_odd(values: Any, kind: Any) -> int:
    """The first of some values that does not become this type alone."""
    import pyarrow as pa

    for row in range(len(values)):
        try:
            pa.array(_slice(values, row, row + 1), type=kind, from_pandas=True)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            return row
    return 0
