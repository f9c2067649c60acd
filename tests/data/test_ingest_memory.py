"""Ingest needs the same memory for any size of source."""

from __future__ import annotations

import gzip
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

MIB = 2**20

MEASURE = """
import os, sys
from coremargin.data.ingest import ingest
from coremargin.engine.task import high_water_bytes  # ru_maxrss begins with that of whoever started this process
import pyarrow.parquet
start = high_water_bytes(os.getpid())
report = ingest(sys.argv[1], sys.argv[2])
print(report.rows, high_water_bytes(os.getpid()) - start)
"""


def csv_gz(path: Path, rows: int) -> None:
    """Text that is small on disk and large in memory."""
    line = ",".join(["0.25"] * 99)
    with gzip.open(path, "wt", compresslevel=1) as file:
        for k in range(0, rows, 100):
            file.write(f"{line},{k % 2}\n" * 100)


def svmlight(path: Path, rows: int) -> None:
    """A line of 40 bytes becomes a row of 400."""
    with path.open("w") as file:
        for k in range(rows):
            file.write(f"{k % 2} 1:0.5 {k % 90 + 2}:1.5 100:{k}\n")


def sparse_svmlight(path: Path, rows: int) -> None:
    """Lines of sixty pairs of many features: 300 MB of text for 500,000 rows, of CSR 360 MB."""
    with path.open("w") as file:
        pairs = [" ".join(f"{700 * j + 11 * k + 1}:{0.5 + k}" for j in range(60)) for k in range(50)]
        for k in range(rows):
            file.write(f"{k % 2} {pairs[k % 50]}\n")


def parquet(path: Path, rows: int) -> None:
    """Row groups larger than a batch."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    schema = pa.schema([*((f"f{j}", pa.float32()) for j in range(99)), ("label", pa.int8())])
    column = np.arange(50_000)
    with pq.ParquetWriter(path, schema) as writer:
        for _ in range(0, rows, 50_000):
            columns = [*[column.astype("f4")] * 99, (column % 2).astype("i1")]
            writer.write_table(pa.table(columns, schema=schema))


def npz(path: Path, rows: int) -> None:
    """CSR of 40 values a row, and labels beside it: of 1,000,000 rows 480 MB, written in pieces."""
    row = {"data": np.ones(40), "indices": np.arange(40, dtype="i4") * 7}
    whole = {"indptr": np.arange(rows + 1) * 40, "format": np.array("csr"), "shape": np.array([rows, 300])}
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in (row | whole).items():
            with archive.open(f"{name}.npy", "w") as file:
                shape = (40 * rows,) if name in row else part.shape
                facts = {"descr": part.dtype.str, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, facts)
                for _ in range(rows // 1000 if name in row else 1):
                    file.write((np.tile(part, 1000) if name in row else part).tobytes())
    np.save(path.with_name("y.npy"), np.arange(rows) % 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "make", "rows", "limit"),
    [
        ("X.npz", npz, 1_000_000, 320 * MIB),
        ("x.svm", svmlight, 400_000, 100 * MIB),
        pytest.param(
            "x.svm", sparse_svmlight, 500_000, 230 * MIB, marks=pytest.mark.slow
        ),  # pieces of 32 MiB, in threads: 188 to 198 MiB seen
        # pieces in threads: 106 to 116 MiB seen, of half as many rows and of twice
        pytest.param("x.csv.gz", csv_gz, 400_000, 130 * MIB, marks=pytest.mark.slow),
        # pyarrow holds buffers for each of the hundred columns: 300 to 324 MiB seen, of half as many rows and of twice
        pytest.param("x.parquet", parquet, 1_200_000, 360 * MIB, marks=pytest.mark.slow),
    ],
)
def test_memory_does_not_grow_with_the_source(
    name: str, make: Callable[[Path, int], None], rows: int, limit: int, tmp_path: Path
) -> None:
    """Rows of 160 MB, sparse ones and Parquet of 360 to 480 MB, pass through less memory than they fill."""
    pytest.importorskip("pyarrow.parquet")
    make(tmp_path / name, rows)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / name), str(tmp_path / "rows.zarr")],
        capture_output=True,
        text=True,
        check=True,
        timeout=150,
    )
    ingested, grown = (int(word) for word in done.stdout.split())
    assert ingested == rows
    assert grown < limit
