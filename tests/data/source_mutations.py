"""Good files of every kind of source, changed at random, and judges that read them with code of other people.

A file that `ingest` takes must be what the judge reads, value by value and label by label; one that it refuses must be
refused by one of our errors, with the file's name, in bounded time and memory, and leave nothing behind.

As a script, it does that in a process whose memory is limited: ``source_mutations.py KIND,... START STOP`` prints a
line for each case that did otherwise, and for each kind how many were taken, refused, and wrong.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import resource
import shutil
import signal
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from coremargin.data.ingest import ingest
from coremargin.data.store import Store
from coremargin.errors import CoremarginError

Rng = np.random.Generator
Judge = Callable[[], tuple[np.ndarray, list[Any] | None]]  #: rows (n, d) float64 and labels (n,), None: not judged

ROWS, FEATURES = 40, 5
MEMORY = 3 << 30
SECONDS = 20


@dataclass
class Case:
    """What is given to ingest, and who knows what must come of it."""

    source: Any
    judge: Judge | None
    options: dict[str, Any] = field(default_factory=dict)
    note: str = ""


WORDS = [bytes([byte]) for byte in b'\0\r\n\t ,;|"\'#:+-.eEx_1\x1a\x1c\x7f\x85\xff'] + [
    b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc2\xa0", b"\xe2\x80\xa8", b"\xd9\xa1", b"nan", b"inf", b"1e400", b"1e-400",
    b"0x10", b"1_0", b"9" * 400, b"9" * 5000, b"True", b"spam", b" spam", b'"spam', b"qid:3", b" 3:1", b" 0:1",
    b" -1:1", b" 999999999:1",
    b"9007199254740993", b"0.10000000000000000001", b"(1+2j)", b"\n\n", b"\xff" * 4, b"\0" * 8, b"\xff\xff\xff\x7f",
]  # fmt: skip


def mutated(rng: Rng, data: bytes) -> bytes:
    """One to three changes: a bit, a byte, a cut, a hole, a word, a copy."""
    found = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        near = [len(found), min(len(found), 128), 100][rng.integers(3)]
        at = int(rng.integers(max(1, near))) if rng.random() < 0.7 else max(0, len(found) - 1 - int(rng.integers(100)))
        other, count = int(rng.integers(max(1, len(found)))), int(rng.integers(1, 30))
        change = rng.integers(7)
        if change == 0 and at < len(found):
            found[at] ^= 1 << int(rng.integers(8))
        elif change == 1 and at < len(found):
            found[at] = int(rng.integers(256))
        elif change == 2:
            del found[at:]
        elif change == 3:
            del found[at : at + count]
        elif change == 4:
            found[at:at] = found[other : other + count]
        else:
            word = WORDS[rng.integers(len(WORDS))]
            found[at : at + (len(word) if change == 5 else 0)] = word
    return bytes(found)


def table(rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    """Rows with few digits, and three classes."""
    return np.round(rng.normal(size=(ROWS, FEATURES)), 3), rng.integers(0, 3, ROWS)


DESCR = [
    "'<f8'", "'<f4'", "'>f8'", "'|b1'", "'<i8'", "'<c16'", "'|O'", "'|S5'", "'<U3'", "'<M8[s]'", "'|V8'", "'|S0'",
    "'<f2'",
    "[('a', '<f8')]", "[('a', '|O')]", "('<f8', (3,))", "'<f8, <f8'", "'f0'", "None", "'|S99999999999'",
    "'<M8[100000000000Y]'",
    "__import__('os')", "'T'", "()",
]  # fmt: skip
SHAPES = [
    "(40, 5)", "(40,)", "(200,)", "(40, -5)", "(-1, 5)", "(4611686018427387904, 5)", "(18446744073709551616, 1)",
    "(0, 5)",
    "(40, 0)", "(4611686018427387904, 0)", "()", "(40, 5, 1)", "40", "[40, 5]", "(40.0, 5)", "(True, 5)",
    "(False, True)",
    "(40L, 5L)", "(" + "1, " * 70 + ")", "(" + "9" * 4400 + ", 5)", "(9**9**9, 5)", "(3037000500, 3037000500)",
    "(40, 5",
    "(1000000000, 1)", "(67108865, 0)",
]  # fmt: skip
HEADERS = ["{}", "", "(" * 500, "-" * 3000 + "1", "~" * 60000, "{'descr': '<f8'}", "[" * 5000, "\0" * 80]


def header(rng: Rng, shape: str = "(40, 5)", descr: str = "'<f8'") -> bytes:
    """A header of NumPy's format that lies about one thing or another, with its magic and length."""
    kind = rng.integers(5)
    descr = DESCR[rng.integers(len(DESCR))] if kind in (0, 3) else descr
    shape = SHAPES[rng.integers(len(SHAPES))] if kind in (1, 3) else shape
    fortran = ["False", "True", "0", "None"][rng.integers(4)] if kind == 2 else "False"
    text = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n"
    if kind == 4:
        text = HEADERS[rng.integers(len(HEADERS))]
    major = int(rng.choice([1, 1, 2, 3, 0, 4, 255]))
    count = min(len(text), 65535) if rng.random() < 0.9 else int(rng.choice([0, 1, 65535, 2**16 - 1]))
    return b"\x93NUMPY" + bytes([major, 0]) + count.to_bytes(2 if major == 1 else 4, "little") + text.encode()


def saved(array: Any, version: tuple[int, int] | None = None) -> bytes:
    """What a .npy file of this array holds."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), version=version)
    return file.getvalue()


def npy(rng: Rng, folder: Path) -> Case:
    """X.npy, its bytes or its header changed."""
    X, y = table(rng)
    kinds = [X, X.astype("f4"), np.asfortranarray(X), X > 0, (X * 100).astype("i2"), X.astype(">f4"), X.astype("f2")]
    data = saved(kinds[rng.integers(len(kinds))], [(1, 0), (2, 0), (3, 0)][rng.integers(3)])
    data = mutated(rng, data) if rng.random() < 0.5 else header(rng) + X.tobytes()
    path = folder / "X.npy"
    path.write_bytes(data)
    return Case(path, lambda: (np.load(path, allow_pickle=False).astype(float), y.tolist()), {"labels": y})


def npz(rng: Rng, folder: Path) -> Case:
    """X.npz: bytes, arrays, headers, members or the archive's own fields changed."""
    X, y = table(rng)
    kind = ["csr", "csr", "csc", "coo", "dia", "bsr"][rng.integers(6)]
    file = io.BytesIO()
    sp.save_npz(file, sp.csr_matrix(X * (rng.random(X.shape) < 0.4)).asformat(kind), compressed=bool(rng.integers(2)))
    with zipfile.ZipFile(file) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    change, at = rng.integers(6), int(rng.integers(len(members)))
    how = int(rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
    name, content = members[at]
    if change == 0:
        data = mutated(rng, file.getvalue())
    elif change == 1:
        odd: list[Any] = [
            5,
            [],
            [1.5],
            ["csr"],
            [b"csr"],
            [-1, 5],
            [2**62, 2],
            [40, 2**40],
            [2**41, 5],
            [[40, 5]],
            np.nan,
            [1j],
        ]
        array = odd[rng.integers(len(odd))]
        members[at] = (name, saved(array))
    elif change == 2:
        members[at] = (name, header(rng, "(40,)", "'<i4'") + b"\0" * 160)
    elif change == 3:
        members[at] = [
            (name, b""),
            ("x" * 300, content),
            (name[:-4], content),
            (name, content[:-1]),
            (name, mutated(rng, content)),
        ][rng.integers(5)]
    elif change == 4:
        members = [members[:at] + members[at + 1 :], [*members, ("é" * 90 + ".npy", content)], []][rng.integers(3)]
    else:
        how = int(rng.choice([zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2]))
    if change:
        data = archive_of(members, how)
    if change == 4 and rng.random() < 0.5:
        data = field_changed(rng, data)
    path = folder / "X.npz"
    path.write_bytes(data)
    return Case(path, lambda: (sp.load_npz(path).toarray().astype(float), y.tolist()), {"labels": y}, kind)


def archive_of(members: list[tuple[str, bytes]], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An archive with these members."""
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", how) as archive:
        warnings.simplefilter("ignore")  # names that are there twice are meant
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


FIELDS = {"version": (6, 2), "flags": (8, 2), "method": (10, 2), "crc": (16, 4), "packed": (20, 4), "size": (24, 4),
          "name": (28, 2), "extra": (30, 2), "comment": (32, 2), "offset": (42, 4)}  # fmt: skip


def field_changed(rng: Rng, data: bytes) -> bytes:
    """An archive with another number in one field of its table of contents."""
    entries = [at for at in range(len(data)) if data[at : at + 4] == b"PK\1\2"]
    if not entries:
        return data
    at, size = FIELDS[list(FIELDS)[rng.integers(len(FIELDS))]]
    start = entries[rng.integers(len(entries))] + at
    value = int(rng.choice([0, 1, 8, 9, 12, 14, 65, 93, 99, 0x2001, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF])) % 256**size
    return data[:start] + value.to_bytes(size, "little") + data[start + size :]


def packed(rng: Rng, path: Path, data: bytes) -> Path:
    """The file, now and then compressed, and the compressed bytes changed."""
    how: list[tuple[str, Callable[[bytes], bytes]]] = [
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
    ]
    if rng.random() < 0.25:
        ending, compress = how[rng.integers(3)]
        path, data = path.with_name(path.name + ending), compress(data)
        data = mutated(rng, data) if rng.random() < 0.6 else data
    path.write_bytes(data)
    return path


def unpacked(path: Path) -> str:
    """The text of a file, however compressed, without its byte order mark."""
    opened = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(path.suffix, open)
    with opened(path, "rb") as file:  # type: ignore[operator]
        return str(file.read().decode("utf-8").removeprefix("\ufeff")).replace("\r\n", "\n")


def delimited(rng: Rng, folder: Path) -> Case:
    """rows.csv, with or without header, quotes and words as labels."""
    X, y = table(rng)
    mark, words = [",", ";", "\t", "|"][rng.integers(4)], ["spam", "ham", "eggs"]
    named = rng.random() < 0.5
    rows = [
        [*(str(value) for value in row), words[k] if named else str(k)] for row, k in zip(X.tolist(), y, strict=True)
    ]
    rows = [[f'"{word}"' for word in row] for row in rows] if rng.random() < 0.3 else rows
    rows = [[*"abcde", "label"], *rows] if rng.random() < 0.4 else rows
    text = "\n".join(mark.join(row) for row in rows) + "\n"
    path = packed(rng, folder / "rows.csv", mutated(rng, text.encode()) if rng.random() < 0.9 else text.encode())

    def judge() -> tuple[np.ndarray, list[Any]]:
        lines = unpacked(path).split("\n")
        first = next(line for line in lines if line.strip())
        records = csv.reader((line + "\n" for line in lines), delimiter=next(m for m in "\t;|," if m in first))
        found = [record for record in records if len(record) > 1 or "".join(record).strip()]
        try:
            [float(word.strip()) for word in found[0][:-1]]
        except ValueError:
            found = found[1:]
        return np.array([[float(word.strip()) for word in row[:-1]] for row in found]), [row[-1] for row in found]

    return Case(path, judge, {"label": -1})


def svmlight(rng: Rng, folder: Path) -> Case:
    """rows.svm."""
    X, y = table(rng)
    pairs = [" ".join(f"{j + 1}:{v}" for j, v in enumerate(row) if rng.random() < 0.7) for row in X.tolist()]
    text = "".join(f"{k} {line}\n" for k, line in zip(y, pairs, strict=True))
    path = packed(rng, folder / "rows.svm", mutated(rng, text.encode()) if rng.random() < 0.9 else text.encode())

    def judge() -> tuple[np.ndarray, list[Any]]:
        lines = [line.split("#")[0].split() for line in unpacked(path).split("\n")]
        rows = [
            (line[0], [tuple(word.split(":")) for word in line[1:] if not word.startswith("qid")])
            for line in lines
            if line
        ]
        base = 0 if any(int(index) == 0 for _, line in rows for index, _ in line) else 1
        width = max(int(index) for _, line in rows for index, _ in line) + 1 - base
        found = np.zeros((len(rows), width))
        for k, (_, line) in enumerate(rows):
            for index, value in line:
                found[k, int(index) - base] = float(value)
        return found, [label for label, _ in rows]

    return Case(path, judge, {"sparse": bool(rng.integers(2))})


def parquet(rng: Rng, folder: Path) -> Case:
    """rows.parquet, its bytes changed, or its columns of any types and names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    X, y = table(rng)
    path = folder / "rows.parquet"
    columns: list[Any] = [pa.array(X[:, 0]), pa.array(X[:, 1:3].tolist()), pa.array([["x", "y", "z"][k] for k in y])]
    names = ["a", "b", "label"]
    change = rng.integers(3)
    if change:
        odd = odd_columns()
        columns = [odd[rng.integers(len(odd))] for _ in range(rng.integers(2, 5))]
        names = [*"abcdef"[: len(columns) - 1], "label"]
        if rng.random() < 0.2:
            names[0] = ["label", "", "a.b", "b"][rng.integers(4)]
    try:
        pq.write_table(
            pa.Table.from_arrays(columns, names=names), path, compression=["none", "snappy", "zstd"][rng.integers(3)]
        )
    except (pa.ArrowException, ValueError):  # a column that pyarrow does not write
        path.write_bytes(b"PAR1" * 4)
    if change == 0:
        path.write_bytes(mutated(rng, path.read_bytes()))

    def judge() -> tuple[np.ndarray, list[Any]]:
        read = pq.read_table(path)
        lists = [
            [value if isinstance(value, list) else [value] for value in read[name].to_pylist()]
            for name in read.column_names[:-1]
        ]
        rows = [[float(value) for part in row for value in part] for row in zip(*lists, strict=True)]
        return np.array(rows), [v.decode() if isinstance(v, bytes) else v for v in read["label"].to_pylist()]

    return Case(path, judge, {"label": "label"})


def odd_columns() -> list[Any]:
    """Columns of every type that Parquet has, most of them of no use."""
    from datetime import date, datetime, timedelta
    from decimal import Decimal

    import pyarrow as pa

    half = ROWS // 2
    bad = pa.Array.from_buffers(
        pa.string(),
        ROWS,
        [None, pa.py_buffer(np.arange(ROWS + 1, dtype="i4").tobytes()), pa.py_buffer(b"\xff\xfe" * half)],
    )
    plain: list[Any] = [
        [1.5, 2.5], [1, 2], [True, False], ["a", "b"], [b"a", b"b"], [b"\xff", b"\xfe"], [1.5, None],
        ["a", None], ["a", "a "],
        [[1.0, 2.0]] * 2, [[]] * 2, [[1.0], [1.0, 2.0]], [[1.0, None]] * 2, [None, [1.0]], [["a"]] * 2, [[[1.0]]] * 2,
        [{"int": 1}] * 2, [Decimal("1.5"), Decimal("2.5")], [date(2020, 1, 1)] * 2, [timedelta(1)] * 2, ["a", "a\0"],
        ["", "a"],
        [datetime(2020, 1, 1), datetime(2021, 1, 1)],  # noqa: DTZ001 - as Parquet has them
        [float("nan"), 1.0], [2**60 + 1, 1], [float("inf"), 1.0],
    ]  # fmt: skip
    found = [pa.array(values * half) for values in plain]
    typed = [
        ([1.0, 2.0], pa.list_(pa.float64(), 2)),
        ([], pa.list_(pa.float64(), 0)),
        ([1.0], pa.large_list(pa.float32())),
    ]
    found += [pa.array([value] * ROWS, kind) for value, kind in typed]
    found += [pa.array(["a", "b"] * half).dictionary_encode(), pa.array([1.5, 2.5] * half).dictionary_encode(), bad]
    found += [
        pa.array([[("k", 1)]] * ROWS, pa.map_(pa.string(), pa.int32())),
        pa.nulls(ROWS),
        pa.array([2**64 - 1] * ROWS, pa.uint64()),
    ]
    return [*found, pa.array(np.arange(ROWS, dtype="f2")), pa.array([b"aa", b"bb"] * half, pa.binary(2))]


def beside(rng: Rng, folder: Path) -> Case:
    """Labels or weights in a file of their own, .npy or text."""
    X, y = table(rng)
    words = ["spam", "ham", "eggs"]
    arrays = [
        y,
        y.astype(float),
        y.astype("f2"),
        y > 0,
        np.array([words[k] for k in y]),
        np.array([words[k].encode() for k in y]),
    ]
    array = arrays[rng.integers(len(arrays))]
    if rng.random() < 0.5:
        data = saved(array)
        data = mutated(rng, data) if rng.random() < 0.6 else header(rng, "(40,)", "'<i4'") + b"\0\1\2\3" * ROWS
        path = folder / "y.npy"
        path.write_bytes(data)
    else:
        text = "".join(f"{words[k] if array.dtype.kind in 'US' else k}\n" for k in y)
        path = packed(rng, folder / "y.txt", mutated(rng, text.encode()))

    def judge() -> tuple[np.ndarray, list[Any]]:
        if path.suffix == ".npy":
            return X, [
                v.decode() if isinstance(v, bytes) else v
                for v in np.load(path, allow_pickle=False).reshape(-1).tolist()
            ]
        lines = unpacked(path).split("\n")
        return X, [line.strip() for line in (lines[:-1] if not lines[-1] else lines)]

    if rng.random() < 0.3:
        return Case(X, lambda: (X, y.tolist()), {"labels": y, "weights": path})
    return Case(X, judge, {"labels": path})


KINDS: dict[str, Callable[[Rng, Path], Case]] = {
    "npy": npy, "npz": npz, "csv": delimited, "svmlight": svmlight, "parquet": parquet, "beside": beside
}  # fmt: skip


def same_label(found: Any, expected: Any) -> bool:
    """Whether the label of a store is what a file says, maybe as text."""
    if found == expected or str(found) == str(expected).strip().strip('"'):
        return True
    try:
        return bool(not isinstance(found, str) and float(found) == float(expected))
    except ValueError:
        return False


def tried(kind: str, seed: int, folder: Path) -> tuple[str, str]:
    """One case: "taken", "refused" or "wrong", and for the last what is wrong."""
    rng = np.random.default_rng([seed, *kind.encode()])
    case = KINDS[kind](rng, folder)
    out = folder / "out.zarr"
    try:
        ingest(case.source, out, dtype="float64", **case.options)
    except CoremarginError as error:
        named = [case.source, *case.options.values()]
        names = [path.name for path in named if isinstance(path, Path)]
        # pyarrow allocates what the damaged header of a page says, 2 GiB at most.
        memory = isinstance(error.__cause__, MemoryError) and kind != "parquet"
        if error.exit_code not in (2, 3) or out.exists() or memory:
            return "wrong", f"exit {error.exit_code}, store left: {out.exists()}: {error}"
        if not any(name in str(error) for name in [*names, "array"]):
            return "wrong", f"no name in: {error}"
        return "refused", str(error)
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return "wrong", f"{type(error).__name__}: {error}"
    return judged(case, Store.open(out))


def judged(case: Case, store: Store) -> tuple[str, str]:
    """Whether a store holds what the judge reads."""
    assert case.judge is not None
    rows, codes = store.rows_at(np.arange(store.rows))
    labels = [store.classes[code] for code in codes]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected, names = case.judge()
    except Exception as error:  # noqa: BLE001 - whatever others raise about such a file
        return "wrong", f"taken, but others say {type(error).__name__}: {error}"
    found = rows.toarray() if store.sparse else rows
    if not np.array_equal(found, expected):
        return "wrong", f"found rows of shape {found.shape}, others read {expected.shape} and other values"
    if names is not None and not all(same_label(a, b) for a, b in zip(labels, names, strict=True)):
        at = next(k for k, (a, b) in enumerate(zip(labels, names, strict=True)) if not same_label(a, b))
        return "wrong", f"row {at}: found the label {labels[at]!r}, others read {names[at]!r}"
    if names is not None and len(set(map(str, names))) < len(set(labels)):
        return "wrong", f"{len(set(labels))} classes of {len(set(names))} labels"
    return "taken", ""


def too_long(*_: Any) -> None:
    """End a case that takes no end."""
    raise TimeoutError(f"more than {SECONDS} seconds")


def main(kinds: str, start: int, stop: int) -> None:
    """Try the cases and print what is wrong."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, too_long)
    warnings.simplefilter("error")
    for kind in kinds.split(","):
        counts = {"taken": 0, "refused": 0, "wrong": 0}
        for seed in range(start, stop):
            folder = Path(tempfile.mkdtemp())
            signal.alarm(SECONDS)
            try:
                end, why = tried(kind, seed, folder)
            finally:
                signal.alarm(0)
                shutil.rmtree(folder)
            counts[end] += 1
            if end == "wrong":
                sys.stdout.write(f"{kind} {seed}: wrong: {why!a}\n")
        sys.stdout.write(f"{kind}: {counts['taken']} {counts['refused']} {counts['wrong']}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
