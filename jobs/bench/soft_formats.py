"""A store in the formats that others read: SVMlight text, Vowpal Wabbit's text, Parquet. Conversion is not counted.

Made once beside the store, and used again. Values have nine digits, from which float32 is read back exactly.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from coremargin.data.store import Store

CONVERTED = "peers"


def signs_of(store: Store, codes: np.ndarray) -> np.ndarray:
    """Labels as -1 and 1: the larger label is positive, as in every model here."""
    larger = max(range(len(store.classes)), key=lambda code: store.classes[code])
    return np.where(codes == larger, 1, -1).astype(np.int8)


def converted(store: Store, kind: str) -> Path:
    """The file or folder of a kind, made if it is not there: "svmlight", "vw", "parquet"."""
    place = Path(store.name).with_suffix(f".{CONVERTED}") / f"rows.{kind}"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        aside = place.with_suffix(".part")
        _WRITERS[kind](store, aside)
        aside.rename(place)
    return place


def _lines(store: Store, file: TextIO, start: str, first: int) -> None:
    """Label, ``start``, then column:value; zeros are left out, as these formats mean it."""
    for chunk in range(store.chunks):
        rows, codes = store.read(chunk)
        signs = signs_of(store, codes)
        if isinstance(rows, np.ndarray) and rows.all():
            template = "%+d" + start + "".join(f" {first + k}:%.9g" for k in range(rows.shape[1])) + "\n"
            file.writelines(template % (sign, *row) for sign, row in zip(signs.tolist(), rows.tolist(), strict=True))
        else:
            _sparse_lines(sparse.csr_array(rows), signs, file, start, first)


def _sparse_lines(rows: sparse.csr_array, signs: np.ndarray, file: TextIO, start: str, first: int) -> None:
    data, indices, indptr = rows.data.tolist(), rows.indices.tolist(), rows.indptr.tolist()
    for row, sign in enumerate(signs.tolist()):
        inside = range(indptr[row], indptr[row + 1])
        file.write(f"{sign:+d}{start}" + "".join(f" {indices[k] + first}:{data[k]:.9g}" for k in inside) + "\n")


def _svmlight(store: Store, path: Path) -> None:
    with path.open("w", encoding="ascii") as file:
        _lines(store, file, "", 1)


def _vowpal_wabbit(store: Store, path: Path) -> None:
    with path.open("w", encoding="ascii") as file:
        _lines(store, file, " |", 0)


def _parquet(store: Store, path: Path) -> None:
    """One column of labels and one of the features as a list, as Spark's vectors are made from."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("label", pa.float64()), ("values", pa.list_(pa.float32(), store.features))])
    with pq.ParquetWriter(path, schema) as writer:
        for chunk in range(store.chunks):
            rows, codes = store.read(chunk)
            labels = pa.array((signs_of(store, codes) > 0).astype(np.float64))
            values = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), store.features)
            writer.write_table(pa.Table.from_arrays([labels, values], schema=schema))


_WRITERS = {"svmlight": _svmlight, "vw": _vowpal_wabbit, "parquet": _parquet}
