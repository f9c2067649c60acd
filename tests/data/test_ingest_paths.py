"""Files whose names are bytes that are no text: read from, written to, and named in messages."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from coremargin.data.check import check_store
from coremargin.data.ingest import ingest
from coremargin.data.store import Store
from coremargin.errors import ColumnsUnclear, UsageError

Refused = Callable[..., str]
ODD = os.fsdecode(b"\xff")  #: what Python makes of a byte that is not UTF-8


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """The same two rows in files of every kind, and how to take them."""
    X, y = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0, 1])
    name = str(tmp_path / ODD)
    (tmp_path / f"{ODD}.csv").write_text("1,2,0\n3,4,1\n")
    Path(f"{name}.csv.gz").write_bytes(gzip.compress(b"1,2,0\n3,4,1\n"))
    Path(f"{name}.svm").write_text("0 1:1 2:2\n1 1:3 2:4\n")
    Path(f"{name}.txt").write_text("0\n1\n")
    np.save(f"{name}.npy", X)
    np.save(f"{name}.y.npy", y)
    with open(f"{name}.npz", "wb") as file:
        sp.save_npz(file, sp.csr_matrix(X))
    found: dict[str, dict[str, Any]] = {f"{name}.csv": {}, f"{name}.csv.gz": {}, f"{name}.svm": {}}
    found |= {f"{name}.npy": {"labels": f"{name}.y.npy"}, f"{name}.npz": {"labels": f"{name}.txt", "sparse": False}}
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return found
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "label": y}), tmp_path / "rows.parquet")
    (tmp_path / "rows.parquet").rename(f"{name}.parquet")
    return found | {f"{name}.parquet": {}}


def test_every_kind_of_file_is_read_and_written(tmp_path: Path, sources: dict[str, dict[str, Any]]) -> None:
    """Such files make such stores, whether their names come as text, paths or bytes, or match a pattern."""
    digests = set()
    for number, (source, options) in enumerate(sources.items()):
        store = tmp_path / f"{ODD}{number}.zarr"
        for given in (source, Path(source), os.fsencode(source), [source], source.replace(ODD, "?")):
            report = ingest(given, os.fsencode(store), overwrite=store.exists(), **options)
            assert report.source == source
        assert check_store(store).whole
        digests.add(Store.open(store).digest)
    assert len(digests) == 1


def test_messages_name_such_files(refused: Refused, tmp_path: Path) -> None:
    """What is wrong in such a file is said with its name, which any terminal and JSON can show."""
    path = tmp_path / f"{ODD}.csv"
    path.write_text("1,2,0\nx,4,1\n")
    message = refused(path, ColumnsUnclear)
    assert message.startswith(f"{ODD}.csv, line 2, column 0: found 'x', expected a number")
    assert json.loads(json.dumps(message)) == message
    assert refused(tmp_path / f"{ODD}2.csv", UsageError).startswith(f"{ODD}2.csv: expected a readable file")


NAMES = {
    "a NUL": ("a\0b.csv", "'a\\x00b.csv': no file can have this name"),
    "half a character": ("\ud800.csv", "'\\ud800.csv': no file can have this name"),
    "nothing": ("", "'': no file can have this name"),
    "too long": ("a" * 300 + ".csv", "cannot be looked up: File name too long; give another path"),
    "a pattern too long": ("*" * 300, "cannot be looked up: File name too long; give another path"),
    "nobody's home": ("~nobody-of-this-name/a.csv", "expected a home folder, found no user of that name"),
}


@pytest.mark.parametrize(("name", "message"), NAMES.values(), ids=NAMES)
def test_names_that_no_file_has_are_refused(refused: Refused, tmp_path: Path, name: str, message: str) -> None:
    """A name that the system cannot look up is a usage error, as rows, labels, weights and as store."""
    assert message in refused(name, UsageError)
    assert message in refused(np.eye(2), UsageError, labels=name)
    assert message in refused(np.eye(2), UsageError, labels=[0, 1], weights=name)
    with pytest.raises(UsageError) as caught:
        ingest(np.eye(2), name, labels=[0, 1])
    assert message in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "utf-8:strict"},
        {"PYTHONIOENCODING": "latin-1:strict"},
    ],
    ids=["C", "ASCII", "UTF-8", "Latin-1"],
)
def test_the_command_prints_such_names(tmp_path: Path, env: dict[str, str]) -> None:
    """Whatever the locale, `ingest` says what it did to such a store, and what is wrong with such a file."""
    (tmp_path / f"{ODD}.csv").write_bytes("1,2,\u20ac\n3,4,\u00e9\n".encode())
    (tmp_path / f"{ODD}bad.csv").write_text("1,2,0\nx,4,1\n")

    def run(*words: str) -> tuple[int, bytes, bytes]:
        command = [sys.executable, "-m", "coremargin", "ingest", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, env=os.environ | env, check=False)
        return done.returncode, done.stdout, done.stderr

    code, out, errors = run(f"{ODD}.csv", f"{ODD}.zarr")
    assert (code, errors) == (0, b"")
    assert out.startswith(b"wrote 2 rows of 2 features (float32, 24 B) to ")
    assert len(out.splitlines()) == 5
    code, out, errors = run(f"{ODD}.csv", f"{ODD}2.zarr", "--json")
    assert (code, json.loads(out)["source"], json.loads(out)["store"]) == (0, f"{ODD}.csv", f"{ODD}2.zarr")
    code, out, errors = run(f"{ODD}bad.csv", f"{ODD}3.zarr")
    assert (code, out) == (3, b"")
    assert b"bad.csv, line 2, column 0: found 'x', expected a number" in errors
    assert b"Traceback" not in errors
