"""The examples of a store: single rows, or sequences of rows that belong together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.data.group_parts import group_parts, groups_of
from coremargin.errors import BadRow, UsageError
from coremargin.formats.function import function_name
from coremargin.maths.rows import is_sparse, of_dense
from coremargin.maths.stopping import may_stop
from coremargin.maths.structures.chain import Sequences
from coremargin.maths.structures.user import CheckedStructure, StructureFault
from coremargin.problems.common.classes import mask_zero_weights

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from coremargin.data.group_parts import GroupPart
    from coremargin.data.source import Source
    from coremargin.maths.rows import Rows

Array = NDArray[np.float64]
Ids = NDArray[np.int64]


@contextmanager
def faults_named(source: Source, reader: ExampleReader) -> Iterator[None]:
    """Report what no structure returns with the names of the user's and of the example. Raises UsageError."""
    try:
        yield
    except StructureFault as fault:
        where = ""
        if fault.example is not None:
            where = f", {'group' if reader.chained else 'row'} {fault.example}"
        name = "" if reader.structure is None else reader.structure.name
        raise UsageError(f"{source.name}{where}: structure {name}: {fault.text}") from fault.__cause__


def checked_structure(structure: Any, place: str, features: int, classes: int) -> CheckedStructure:
    """A structure of the user for rows of so many features and classes. Raises UsageError."""
    found = CheckedStructure(structure, function_name(structure), classes)
    try:
        return found.sized(features)
    except StructureFault as fault:
        raise UsageError(f"{place}: structure {found.name}: {fault.text}") from fault.__cause__


@dataclass(frozen=True)
class ExampleReader:
    """Reads examples of a store, on the driver and on workers.

    place: label code -> class, -1 for rows without a label. cost: C, None for a hard margin. costs (K, K), constant,
    chained: of ``Sequences``. An example is a group of rows if ``chained``, else a row with a label and a weight above
    0; its id is the number of the group or of the row.
    """

    place: NDArray[np.int32]
    cost: float | None
    costs: Array
    constant: float
    chained: bool
    structure: CheckedStructure | None = None  #: of the user, in the place of the last three

    @property
    def hard(self) -> bool:
        """Whether there is no loss: c has no limit."""
        return self.cost is None

    def nothing(self, source: Source) -> Sequences:
        """No examples."""
        none = Sequences.nothing(source.features, source.dtype, self.costs, self.constant, chained=self.chained)
        return replace(none, structure=self.structure)

    def read(self, source: Source, chunks: Sequence[int]) -> Iterator[Sequences]:
        """The examples that begin in each of these chunks. Raises BadRow for a group with labels in some rows only."""
        if self.chained:
            for part in group_parts(source, chunks):
                yield self._sequences(source, part)
            return
        for chunk in chunks:
            start, (rows, codes), weights = source.span(chunk)[0], source.read(chunk), source.weights(chunk)
            labels = self.place[mask_zero_weights(codes, weights)]
            mine = np.flatnonzero(labels >= 0)
            c = np.ones(len(mine)) if weights is None else weights[mine]
            yield self._made(mine + start, rows[mine], labels[mine], np.arange(len(mine) + 1), c)

    def _made(self, ids: Ids, rows: Rows, labels: NDArray[np.int32], offsets: Ids, c: Array) -> Sequences:
        held = cast("csr_array", rows if is_sparse(rows) else of_dense(rows, sparse=True))
        return Sequences(
            ids,
            held,
            labels,
            offsets,
            np.full(len(c), np.inf) if self.cost is None else self.cost * c,
            self.costs,
            self.constant,
            self.chained,
            self.structure,
        )

    def _sequences(self, source: Source, part: GroupPart) -> Sequences:
        """The groups that have labels and a weight above 0."""
        labels, lengths = self.place[mask_zero_weights(part.codes, part.weights)], np.diff(part.offsets)
        labelled = np.add.reduceat(labels >= 0, part.offsets[:-1], dtype=np.int64)
        wrong = np.flatnonzero((labels < 0) & np.repeat(labelled > 0, lengths))
        if len(wrong):
            number = int(np.searchsorted(part.offsets, wrong[0], side="right")) - 1
            name = groups_of(source).ids(part.chunk)[number]
            raise BadRow(
                f"{source.name}: row {part.start + int(wrong[0])} (group {name!r}): expected labels in all rows of a "
                "group or in none, found one without; label it, or remove the group"
            )
        weights = np.ones(len(lengths)) if part.weights is None else part.weights[part.offsets[:-1]]
        ids = np.arange(part.first, part.first + len(lengths))
        every = self._made(ids, part.rows, labels, part.offsets, weights)
        mine = np.flatnonzero(labels[part.offsets[:-1]] >= 0)
        return every if len(mine) == len(ids) else every.take(mine)

    def read_all(self, source: Source, chunks: list[int]) -> Sequences:
        """The examples that begin in these chunks."""
        found = [self.nothing(source)]
        for examples in self.read(source, chunks):
            may_stop()
            found.append(examples)
        return Sequences.concatenate(found)
