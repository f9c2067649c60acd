"""Numbers as people write them, against pandas and plain Python: recognised, read where that is said, never guessed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coremargin.data.ingest import ingest
from coremargin.data.store import Store
from coremargin.data.tables.number_text import number_pattern, read_numbers
from coremargin.errors import BadRow, ColumnsUnclear, UsageError
from coremargin.formats.columns import TextFormat

Write = Callable[[Callable[[float], str]], Path]
VALUES = np.random.default_rng(3).integers(-3_000_000, 3_000_000, 60) / 100


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """``write(form)``: a table of the values, written so, with a column of words and labels."""

    def write(form: Callable[[float], str]) -> Path:
        lines = [f"{form(value)};{'uv'[k % 2]};{'pn'[k % 3 == 0]}" for k, value in enumerate(VALUES.tolist())]
        (tmp_path / "rows.csv").write_text("x;city;label\n" + "\n".join(lines) + "\n")
        return tmp_path / "rows.csv"

    return write


def in_groups(value: float, thousands: str, decimal: str) -> str:
    """A number as people write it."""
    return f"{value:,.2f}".translate({ord(","): thousands, ord("."): decimal})


FORMS: dict[str, tuple[Callable[[float], str], dict[str, str]]] = {
    "decimal commas": (lambda x: f"{x:.2f}".replace(".", ","), {"decimal": ","}),
    "German": (lambda x: in_groups(x, ".", ","), {"decimal": ",", "thousands": "."}),
    "English": (lambda x: in_groups(x, ",", "."), {"thousands": ","}),
    "French": (lambda x: in_groups(x, "\u202f", ","), {"decimal": ",", "thousands": "space"}),
    "spaces that do not break": (lambda x: in_groups(x, "\u00a0", ","), {"decimal": ",", "thousands": "space"}),
    "Swiss": (lambda x: in_groups(x, "\u2019", "."), {"thousands": "'"}),
    "euros": (lambda x: in_groups(x, ".", ",") + " €", {"decimal": ",", "thousands": "."}),
    "a typographic minus": (lambda x: in_groups(x, ",", ".").replace("-", "\u2212"), {"thousands": ","}),
}


@pytest.mark.parametrize("words", [{}, {"categorical": "auto"}])
@pytest.mark.parametrize(("form", "options"), FORMS.values(), ids=FORMS)
def test_numbers_are_recognised_and_read(
    write: Write, tmp_path: Path, form: Callable[[float], str], options: dict[str, str], words: dict[str, Any]
) -> None:
    """They are never made categories; the options that are suggested read them, and later files as well."""
    path = write(form)
    with pytest.raises(ColumnsUnclear) as caught:
        ingest(path, tmp_path / "rows.zarr", **words)
    found = dict(zip(caught.value.options[::2], caught.value.options[1::2], strict=True))
    found.pop("--categorical", None)
    assert found == {f"--{name}": value for name, value in options.items()}
    assert "--drop" not in caught.value.options
    ingest(path, tmp_path / "rows.zarr", categorical="city", **options)
    ingest(path, tmp_path / "rows.zarr", append=True)
    rows = Store.open(tmp_path / "rows.zarr").rows_at(np.arange(120))[0]
    assert rows[:, 0].tolist() == np.float32([*VALUES, *VALUES]).tolist()


@pytest.mark.parametrize("form", ["${:.2f}", "{:.2f}%", "EUR {:.2f}", "{:.2f} £"])
def test_a_unit_stands_beside_every_number_or_none(write: Write, tmp_path: Path, form: str) -> None:
    """Numbers that all have one sign are numbers; it is reported, kept, and demanded of later rows."""
    path = write(form.format)
    unit = form.replace("{:.2f}", "").strip()
    report = ingest(path, tmp_path / "rows.zarr", categorical="city")
    assert report.units == {"x": unit}
    rows = Store.open(tmp_path / "rows.zarr").rows_at(np.arange(60))[0]
    assert rows[:, 0].tolist() == np.float32(VALUES).tolist()
    for other in ("{:.2f}", "{:.2f} ¥"):
        with pytest.raises(BadRow, match=r"line 2, column 'x': found .*, expected a number with "):
            ingest(write(other.format), tmp_path / "rows.zarr", append=True)
    mixed = write(lambda x: form.format(x) if x > 0 else f"{x:.2f}")
    with pytest.raises(ColumnsUnclear, match=f"some with '[{unit}]+', some without: write all of the column in one"):
        ingest(mixed, tmp_path / "mixed.zarr", categorical="auto")


def test_what_may_mean_two_things_is_not_guessed(write: Write, tmp_path: Path) -> None:
    """1,234 is a thousand or one: both are shown, and no command is suggested that reads one of them."""
    path = write(lambda x: f"{int(abs(x)) % 9 + 1},{int(abs(x)) % 900 + 100}")
    with pytest.raises(
        ColumnsUnclear, match=r"is [\d.]+ with --decimal \",\" or \d+ with --thousands \",\": say"
    ) as caught:
        ingest(path, tmp_path / "rows.zarr", categorical="auto")
    assert caught.value.options == ()
    path.write_text("a;b;label\n1,5;1.234;p\n2,5;2.345;n\n")
    with pytest.raises(ColumnsUnclear, match=r"column 'b': numbers with .* \('1.234', '2.345', ...\); say --thousands"):
        ingest(path, tmp_path / "rows.zarr", decimal=",", categorical="auto")


def test_a_group_of_thousands_does_not_begin_with_a_zero(write: Write, tmp_path: Path) -> None:
    """0,250 is no 250, whatever separates thousands, and is not suggested to be one."""
    path = write(lambda x: f"{int(abs(x)) % 9 + 1}.{int(abs(x)) % 900 + 100}")
    ingest(path, tmp_path / "rows.zarr", decimal=",", thousands=".", categorical="auto")
    path = write(lambda x: f"0.{int(abs(x)) % 900 + 100}")
    with pytest.raises(BadRow, match=r"found '0\.\d{3}', expected a number"):
        ingest(path, tmp_path / "rows.zarr", append=True)
    with pytest.raises(ColumnsUnclear) as caught:
        ingest(write(lambda x: f"0,{int(abs(x)) % 900 + 100}"), tmp_path / "other.zarr", categorical="auto")
    assert caught.value.options == ("--decimal", ",")


def test_numbers_in_two_notations_are_no_categories_however_few_they_are(write: Write, tmp_path: Path) -> None:
    """1,5 beside 2.5 is a number that is written otherwise; named as categories they are some."""
    path = write(lambda x: ("1,5", "2.5", "3")[int(abs(x)) % 3])
    with pytest.raises(ColumnsUnclear, match="others are written otherwise, such as '1,5': write all numbers"):
        ingest(path, tmp_path / "rows.zarr", categorical="auto")
    assert ingest(path, tmp_path / "rows.zarr", categorical="x,city").features == 5


def test_dashes_and_parentheses_are_named(write: Write, tmp_path: Path) -> None:
    """A dash among numbers may stand for no value, where that is said; parentheses for a minus are refused."""
    path = write(lambda x: f"{x:.2f}" if x > 0 else "-")
    with pytest.raises(ColumnsUnclear, match='and .-. where there may be no value; say --na-values "-"'):
        ingest(path, tmp_path / "rows.zarr", categorical="auto")
    ingest(path, tmp_path / "rows.zarr", categorical="auto", na_values="-", missing="median")
    path = write(lambda x: f"{x:,.0f}" if x > 0 else f"({-x:,.0f})")
    with pytest.raises(ColumnsUnclear, match=r"write negative numbers with a minus sign in front, not as '\("):
        ingest(path, tmp_path / "other.zarr", categorical="auto", thousands=",")


def test_numbers_in_texts_of_typed_tables_are_no_categories(tmp_path: Path) -> None:
    """Where columns have types, numbers with decimal commas are to be converted first; options do not apply."""
    frame = pd.DataFrame({"x": [f"{k},5" for k in range(20)], "label": list("ab" * 10)})
    with pytest.raises(
        ColumnsUnclear, match="column 'x': numbers with decimal commas .*, but its type is text: convert"
    ):
        ingest(frame, tmp_path / "a.zarr", categorical="auto")
    pq.write_table(pa.table({"x": [1.5, 2.5], "label": [0, 1]}), tmp_path / "rows.parquet")
    for source in (frame, tmp_path / "rows.parquet", np.ones((2, 1))):
        for words in ({"decimal": ","}, {"thousands": ","}, {"na_values": "-"}, {"keep_default_na": False}):
            with pytest.raises(
                UsageError, match="--decimal, --thousands, --na-values and --no-default-na say how delim"
            ):
                ingest(source, tmp_path / "b.zarr", unlabelled=True, **words)


def test_namibia(tmp_path: Path) -> None:
    """NA is missing by default, as in pandas, and a word where that is said; appended rows and labels follow."""
    path = tmp_path / "rows.csv"
    path.write_text("country,n,label\nNA,1,NA\nZA,2,x\n,3,x\n")
    words: dict[str, Any] = {"categorical": "country", "keep_default_na": False, "missing": "indicator"}
    ingest(path, tmp_path / "rows.zarr", **words)
    ingest(path, tmp_path / "rows.zarr", append=True)
    store = Store.open(tmp_path / "rows.zarr")
    assert store.classes == ("NA", "x")
    assert store.columns is not None
    assert list(store.columns.features)[:3] == ["country=NA", "country=ZA", "country (missing)"]
    expected = pd.read_csv(path, keep_default_na=False, na_values=[""])["country"]
    assert store.rows_at(np.arange(3))[0][:, 2].tolist() == expected.isna().astype(float).tolist()
    with pytest.raises(ColumnsUnclear, match="line 2, column 'country': found no value"):
        ingest(path, tmp_path / "other.zarr", categorical="country")


@pytest.mark.parametrize(
    "words", [{"decimal": "x"}, {"thousands": "-"}, {"decimal": ",", "thousands": ","}, {"decimal": ""}]
)
def test_notations_that_there_are_not_are_refused(write: Write, tmp_path: Path, words: dict[str, Any]) -> None:
    """One character cannot separate both, and few separate anything."""
    with pytest.raises(UsageError, match="--decimal|--thousands"):
        ingest(write(str), tmp_path / "rows.zarr", **words)


@given(st.floats(-1e15, 1e15).map(lambda x: round(x, 3)), st.sampled_from([",", ".", "_", "'", "space"]))
def test_what_is_written_is_read(value: float, thousands: str) -> None:
    """Any number in groups is read to the bit; a group too short or too long makes it none."""
    decimal = "," if thousands == "." else "."
    form = TextFormat(decimal=decimal, thousands=thousands)  # type: ignore[arg-type]
    mark = " " if thousands == "space" else thousands
    text = f"{value:,.3f}".translate({ord(","): mark, ord("."): decimal})
    found, odd = read_numbers(pa.array([text]), form)
    assert not odd.any()
    assert found.tolist() == [float(f"{value:.3f}")]
    assert read_numbers(pa.array([f"1{mark}2", f"1234{mark}567", f"1{mark}2345"]), form)[1].all()
    assert number_pattern(form).startswith("^")


def test_a_minus_may_be_an_en_dash_but_not_stand_behind(tmp_path: Path) -> None:
    """Word processors make dashes of minus signs; accounts write 1.5- for -1.5, which is named."""
    path = tmp_path / "rows.csv"
    path.write_text("a,label\n" + "".join(f"\u2013{number}.5,{'pn'[number % 2]}\n" for number in range(8)))
    ingest(path, tmp_path / "rows.zarr", categorical="auto")
    rows = Store.open(tmp_path / "rows.zarr").rows_at(np.arange(8))[0]
    assert rows[:, 0].tolist() == [-number - 0.5 for number in range(8)]
    path.write_text("a,label\n" + "".join(f"{number}.5-,{'pn'[number % 2]}\n" for number in range(8)))
    with pytest.raises(ColumnsUnclear, match=r"write negative numbers with a minus sign in front, not as '0\.5-'"):
        ingest(path, tmp_path / "rows.zarr", categorical="auto", overwrite=True)
