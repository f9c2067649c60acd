"""NPY files that are broken, or lie: refused with what is wrong about their header."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from coremargin.data.ingest import ingest
from coremargin.data.store import Store
from coremargin.errors import DataError, UsageError

Refused = Callable[..., str]
PLAIN = "{'descr': '<f8', 'fortran_order': False, 'shape': (4, 3), }"
BROKEN = "X.npy: not a whole .npy file: "


def npy(header: str = PLAIN, values: int = 12, *, version: int = 1, length: int | None = None) -> bytes:
    """A file in NumPy's format with this header, however wrong."""
    text = header.encode()
    count = (len(text) if length is None else length).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + count + text + np.arange(float(values)).tobytes()


NPY: dict[str, tuple[bytes, type[Exception], str]] = {
    "another magic": (b"\x93NUMPX" + bytes(99), DataError, BROKEN + "the magic string is not correct"),
    "a newer version": (npy(version=4), DataError, BROKEN + "found format version (4, 0)"),
    "a header of gigabytes": (npy(version=2, length=2**32 - 1), DataError, BROKEN + "EOF: reading array header"),
    "an end within the header": (npy(length=500), DataError, BROKEN + "EOF: reading array header"),
    "no dictionary": (npy("(" * 500), DataError, BROKEN),
    "a deep nest": (npy("-" * 9000 + "1"), DataError, BROKEN),
    "a sum": (npy(PLAIN.replace("(4, 3)", "(2 + 2, 3)")), DataError, BROKEN + "malformed node"),
    "a key too few": (npy("{'descr': '<f8', 'shape': (4, 3)}"), DataError, BROKEN + "Header does not contain"),
    "a negative size": (npy(PLAIN.replace("4", "-4")), DataError, BROKEN + "found the shape (-4, 3)"),
    "true for a size": (npy(PLAIN.replace("4", "True")), DataError, BROKEN + "found 168 bytes, expected"),
    "fields": (npy(PLAIN.replace("'<f8'", "[('a', '<f8')]")), UsageError, "expected real numbers"),
    "a type that there is not": (npy(PLAIN.replace("f8", "f7")), DataError, BROKEN + "descr is not a valid dtype"),
    "objects": (npy(PLAIN.replace("<f8", "|O")), UsageError, "X.npy: holds Python objects, which are never unpickled"),
    "a hundred axes": (npy(PLAIN.replace("(4, 3)", f"({'1, ' * 100})")), DataError, BROKEN),
    "more than any file": (
        npy(PLAIN.replace("4", str(2**62))),
        DataError,
        f"expected {24 * 2**62 + 69 + 18:,} for a header and float64 of shape ({2**62}, 3); write it again",
    ),
    "one value too few": (npy(values=11), DataError, BROKEN + "found 157 bytes, expected 165 for a header and"),
    "one value too many": (npy(values=13), DataError, BROKEN + "found 173 bytes, expected 165 for a header and"),
    "no value": (
        npy(PLAIN.replace("4", "0"), 0),
        DataError,
        "found float64 of shape (0, 3), expected at least one value",
    ),
    "no axis": (npy(PLAIN.replace("4, 3", ""), 1), UsageError, "X.npy: shape (): expected two dimensions"),
    "texts": (npy(PLAIN.replace("<f8", "<U2")), UsageError, "X.npy: dtype <U2: expected real numbers"),
}


@pytest.mark.parametrize(("content", "kind", "message"), NPY.values(), ids=NPY)
def test_a_broken_npy_is_named(
    refused: Refused, tmp_path: Path, content: bytes, kind: type[Exception], message: str
) -> None:
    """A header that is none, lies about bytes or promises what no memory holds is refused, as rows and as labels."""
    (tmp_path / "X.npy").write_bytes(content)
    assert message in refused(tmp_path / "X.npy", kind, unlabelled=True)
    if kind is DataError and content.startswith(b"\x93NUMPY"):
        assert message in refused(np.ones((4, 3)), kind, labels=tmp_path / "X.npy")
        assert message in refused(np.ones((4, 3)), kind, labels=[0, 1, 0, 1], weights=tmp_path / "X.npy")


@pytest.mark.parametrize(
    "header", ["{'shape': (4L, 3L), \"descr\": '<f8', 'fortran_order':False}\n", PLAIN + " " * 63 + "\n"]
)
def test_headers_of_other_writers_are_read(tmp_path: Path, header: str) -> None:
    """Any order of the keys, either quote, and the long integers of Python 2 are NumPy's format, too."""
    (tmp_path / "X.npy").write_bytes(npy(header))
    ingest(tmp_path / "X.npy", tmp_path / "rows.zarr", unlabelled=True, dtype="float64")
    assert Store.open(tmp_path / "rows.zarr").read(0)[0].tolist() == np.arange(12.0).reshape(4, 3).tolist()
