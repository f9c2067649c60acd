"""What a scan needs to know about rows: the ``Source`` protocol.

A source is a sequence of *chunks* (storage units: rows ``[start, stop)``). A store on disk and a pair of arrays
in memory are both sources, so that the mathematics never asks where rows lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, runtime_checkable

if TYPE_CHECKING:
    import numpy as np

    from coremargin.data.groups import Groups
    from coremargin.data.statistics import ChunkScalars, ChunkStatistics


@runtime_checkable
class Source(Protocol):
    """Rows in chunks. Everything but ``read`` and ``rows_at`` is known without touching the rows."""

    name: str  #: for messages: a path, or "arrays"
    rows: int  #: committed rows, frozen when the source was opened
    features: int
    dtype: np.dtype[Any]  #: float32 or float64
    sparse: bool  #: rows come as CSR arrays
    classes: tuple[
        Any, ...
    ]  #: labels as given at ingest (str, int, float or bool), in order of first appearance: code = index
    chunk_rows: int  #: rows per chunk (the last one may hold fewer)
    chunks: int

    @property
    def digest(self) -> str:
        """Identity of the committed content ("sha256:...")."""

    @property
    def groups(self) -> Groups | None:
        """The groups of rows, see groups.py; None where they are in none."""

    @property
    def nbytes(self) -> int:
        """Bytes of all committed rows, labels and weights as ``read`` hands them out; a view may hand out more or fewer

        than are read (``bytes_read`` of view.py).
        """

    def span(self, chunk: int) -> tuple[int, int]:
        """Row ids ``[start, stop)`` of a chunk."""

    def read(self, chunk: int) -> tuple[Any, np.ndarray]:
        """Rows (n, d) in ``dtype``, read-only, and label codes (n,) int32; -1 is unlabelled.

        Rows are an array in C order, or with ``sparse`` a csr_array: indices ascending, none twice, no explicit zeros.
        Raises DamagedChunk with the place when the chunk is missing, truncated or altered.
        """

    def labels(self, chunk: int) -> np.ndarray:
        """Label codes (n,) int32 of a chunk as ``read`` gives them, without reading its rows."""

    def weights(self, chunk: int) -> np.ndarray | None:
        """Sample weights (n,) float64 of a chunk, finite and not negative; None: all are 1, in every chunk."""

    def rows_at(self, ids: np.ndarray) -> tuple[Any, np.ndarray]:
        """Rows (m, d) float64, an array or csr_array, and codes (m,) int32 of the row ids, in the order given."""

    def statistics(self, start: int = 0, stop: int | None = None) -> ChunkStatistics:
        """What ingest counted, per chunk of [start, stop): 5 d numbers each."""

    def scalars(self) -> ChunkScalars:
        """The entries of ``statistics`` that are a number per chunk or per class and chunk; cheap at any size."""

    def centres(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Mean rows (stop - start, d) float64 of the chunks [start, stop), dense whatever the rows are."""

    def handle(self) -> Any:
        """A small picklable value from which ``open_source`` makes the same source in another process."""


def is_source(value: object) -> TypeGuard[Source]:
    """Whether a value that people hand over is a source.

    What only sources have is asked for first: a protocol's attributes are looked for in any order, and those of other
    classes may raise (``nbytes`` of Dask's data frames).
    """
    return hasattr(value, "chunk_rows") and hasattr(value, "rows_at") and isinstance(value, Source)
