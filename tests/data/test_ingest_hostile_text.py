"""Text that is gigabytes in kilobytes, one line without end, or columns without number: refused within seconds."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from coremargin.data.ingest import ingest
from coremargin.data.sources import text as texts
from coremargin.data.store import Store
from coremargin.data.tables import dialect
from coremargin.errors import BadRow, DataError, NoRows, UsageError

Refused = Callable[..., str]
Text = Callable[[str, str | bytes], Path]
MIB = 1 << 20


def repeated(path: Path, start: bytes, unit: bytes, size: int) -> Path:
    """A .gz of ``start`` and then ``unit`` again and again, about ``size`` bytes."""
    pack = zlib.compressobj(1, zlib.DEFLATED, 31)
    block = unit * (MIB // len(unit))
    with path.open("wb") as file:
        file.write(pack.compress(start))
        for _ in range(size // len(block)):
            file.write(pack.compress(block))
        file.write(pack.flush())
    return path


@pytest.mark.parametrize("unit", [b"1", b"1,", b"1 ", b"1:1 ", b"\0", b'"', b"x,\t"])
@pytest.mark.parametrize("name", ["rows.csv", "rows.svm", "rows.txt"])
def test_a_line_without_end_is_refused(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, unit: bytes
) -> None:
    """A line longer than any row can be is refused with its number, before it is split into what it may hold."""
    monkeypatch.setattr(texts, "LONGEST_LINE", 3 * MIB)
    for start, line in ((b"", 1), (b"1 1:2\n", 2)):
        path = repeated(tmp_path / name, start, unit, 9 * MIB)
        assert path.stat().st_size < 300_000
        options = {"labels": path} if name == "rows.txt" else {}
        message = refused(np.ones((2, 2)) if options else path, BadRow, **options)
        assert f"{name}, line {line}: longer than 3,145,728 bytes: expected one row per line" in message


def test_the_parts_of_a_long_line_are_joined_once(tmp_path: Path) -> None:
    """A line of 48 MiB in 49,152 parts takes no time: joined again at each part, it would take the test's time."""
    path = repeated(tmp_path / "rows.csv", b"", b"1" * 1023 + b" ", 48 * MIB)
    assert [len(piece.data) for piece in texts.read_pieces(path, 1024)] == [48 * MIB]


@pytest.mark.slow
def test_blank_lines_without_end_are_refused(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Megabytes of blank lines before the first row are refused; behind it they are skipped."""
    monkeypatch.setattr(texts, "MOST_BLANK", MIB)
    monkeypatch.setattr(dialect, "MOST_BLANK", MIB)
    message = refused(repeated(tmp_path / "a.csv", b"", b" \n", 9 * MIB), DataError)
    assert message == (
        "a.csv: found 1,114,112 bytes of blank lines, expected rows; check what has written the file"
    )  # to the piece of 64 KiB
    for start, rows in ((b"1,2,0\n3,4,1\n", 2), (b"1,2,0\n", 1)):
        path = repeated(tmp_path / "b.csv", start, b"\n", 9 * MIB)
        assert ingest(path, tmp_path / f"{rows}.zarr", unlabelled=True).rows == rows
    assert [len(texts.read_first_lines(path, count)) for count in (1, 2, 20)] == [1, 1, 1]
    assert refused(repeated(tmp_path / "c.svm", b"", b"\n", 9 * MIB), NoRows).startswith("c.svm: no rows")


@pytest.mark.parametrize("delimiter", [",", " "])
def test_columns_without_number_are_refused(
    refused: Refused, text: Text, monkeypatch: pytest.MonkeyPatch, delimiter: str
) -> None:
    """A line of millions of fields is refused as the first one, and named as a later one."""
    monkeypatch.setattr("coremargin.data.tables.delimited.MOST_COLUMNS", 1000)
    wide = delimiter.join(["1"] * 1001)
    message = refused(text("a.csv", f"{wide}\n{wide}\n"), DataError)
    assert message.startswith(
        "a.csv: found more than 1,000 fields in the first line, expected fewer; check --delimiter"
    )
    narrow = delimiter.join(["1"] * 3)
    assert "a.csv, line 2: found more than 1,000 fields, expected 3 as" in refused(text("a.csv", f"{narrow}\n{wide}\n"))
    assert ingest(text("b.csv", f"{wide[2:]}\n"), text("b.csv", wide[2:]).with_suffix(".zarr")).features == 999


def test_xz_that_asks_for_gigabytes_is_refused(refused: Refused, text: Text) -> None:
    """A file of 100 bytes whose header asks for 3 GiB of memory to read it does not get them."""
    data = bytearray(lzma.compress(b"1,2,0\n3,4,1\n"))
    length = (data[12] + 1) * 4
    at = data.index(b"\x21\x01", 12) + 2  # the filter, one byte of options: the size of the dictionary
    data[at] = 39
    data[12 + length - 4 : 12 + length] = zlib.crc32(data[12 : 12 + length - 4]).to_bytes(4, "little")
    message = refused(text("rows.csv.xz", bytes(data)), DataError)
    assert message == (
        "rows.csv.xz: was compressed so that reading it takes more than 512.0 MiB of memory; compress it again with "
        "xz -9 or less"
    )


def test_xz_is_read_as_xz_reads_it(tmp_path: Path, refused: Refused, text: Text) -> None:
    """Streams one after the other, with padding between them, are one text; what is behind them is damage."""
    parts = [lzma.compress(b"1,2,0\n3,4"), lzma.compress(b",1\n" * 1), bytes(4 * 70_000)]
    ingest(text("rows.csv.xz", parts[0] + parts[2] + parts[1] + bytes(8)), tmp_path / "rows.zarr")
    assert Store.open(tmp_path / "rows.zarr").read(0)[0].tolist() == [[1, 2], [3, 4]]
    (tmp_path / "rows.zarr").rename(tmp_path / "kept.zarr")
    for content in (parts[0] + parts[1] + b"more", parts[0] + parts[1][:-9]):
        assert "rows.csv.xz: cannot be read to its end (" in refused(text("rows.csv.xz", content), DataError)


@pytest.mark.slow
def test_a_bad_pair_far_into_a_long_line_is_found(refused: Refused, text: Text) -> None:
    """The one token of a million that is wrong is named, whatever stands around it."""
    line = " ".join(f"{k}:{k}.5" for k in range(1, 400_000))
    for bad in ("7", "x:1", "400000:1e", "400000:1\0", ":1", "1234567890:1"):
        message = refused(text("rows.svm", f"1 1:1\n0 {line} {bad} 400001:+1E2 400002:nan\n"), BadRow)
        assert f"rows.svm, line 2: found {bad!r}, expected index:value" in message


def test_an_index_beyond_all_features_is_named(refused: Refused, text: Text) -> None:
    """An index that no store has a feature for is refused by its line, not by the number of features that it makes."""
    message = refused(text("rows.svm", "1 1:1\n# nothing\n0 3:1 67108865:1\n1 2:1\n"))
    assert message == "rows.svm, line 3: found index 67108865, expected at most 67,108,864; correct the line"
    assert "--features 67108865: expected 1 to 67,108,864" in refused(
        text("rows.svm", "1 1:1\n"), UsageError, features=67108865
    )


@pytest.mark.parametrize("line", ["1_0", "١", "0x10", "\n1", "1 2", "\x1c", "1e"])
def test_a_weight_is_a_number(refused: Refused, text: Text, line: str) -> None:
    """What Python takes for a number, but no other reader does, is no weight."""
    path = text("w.txt", gzip.compress(f"1\n{line}\n".encode()))
    message = refused(np.ones((2, 1)), BadRow, labels=[0, 1], weights=path)
    assert message.startswith("w.txt, line 2: found ")
