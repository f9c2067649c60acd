"""Tables from Python: whatever holds the rows, the store is that of the same rows in a Parquet file."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from coremargin.data.ingest import ingest
from coremargin.data.store import Store
from coremargin.errors import BadRow, ColumnsUnclear, DataError, LabelError, NoRows, UsageError
from store_kit import unnamed_files

Refused = Callable[..., str]

WORDS: dict[str, Any] = {"label": "income", "categorical": "auto", "dates": "auto", "missing": "median"}
STEP = 300  # rows of a batch


@pytest.fixture
def frame(rng: np.random.Generator) -> pd.DataFrame:
    """1,000 rows of pandas' kinds of columns, some values missing, under an index in no order."""
    n = 1_000
    frame = pd.DataFrame(
        {
            "age": pd.array(rng.integers(18, 90, n), dtype="Int64"),
            "job": rng.choice(["clerk", "nurse", "smith"], n),
            "hours": rng.random(n),
            "since": pd.date_range("2020-01-01", periods=n, freq="h", tz="Europe/Berlin"),
            "married": rng.random(n) < 0.5,
            "town": pd.Categorical(rng.choice(["Bern", "Uri"], n)),
            "income": rng.choice(["high", "low"], n),
        },
        index=rng.permutation(n),
    )
    frame.iloc[[3, 500], 2] = np.nan
    frame.iloc[[7, 900], 0] = pd.NA
    return frame


def slices(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows in parts."""
    return [frame.iloc[start : start + STEP] for start in range(0, len(frame), STEP)]


class Streamed:
    """What gives itself to Arrow as a stream of record batches, and says how long it is."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def views(frame: pd.DataFrame) -> Streamed:
    """Texts as polars gives them: views, and categories of views."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.set_column(1, "job", table["job"].cast(pa.string_view()))
    town = table["town"].combine_chunks()
    changed = pa.DictionaryArray.from_arrays(town.indices, town.dictionary.cast(pa.string_view()))
    return Streamed(table.set_column(5, "town", changed))


def dataset(frame: pd.DataFrame, folder: Path) -> pyarrow.dataset.Dataset:
    """A dataset of Arrow in two files."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    for number, part in enumerate((table.slice(0, 600), table.slice(600))):
        pq.write_table(part, folder / f"part-{number}.parquet")
    return pyarrow.dataset.dataset([folder / "part-0.parquet", folder / "part-1.parquet"])


class Dataset:
    """A Dataset of Hugging Face as far as it is used: columns, slices as tables, an order of its own."""

    __module__ = "datasets.arrow_dataset"

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.features = self  # which has arrow_schema

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._table.schema

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def with_format(self, kind: str) -> Dataset:
        assert kind == "arrow"
        return self

    def select_columns(self, names: list[str]) -> Dataset:
        return Dataset(self._table.select(names))

    def __getitem__(self, rows: slice) -> pa.Table:
        return self._table.take(pa.array(range(*rows.indices(len(self)))))


def pairs(frame: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, pd.Series]]:
    """Rows and labels side by side."""
    for part in slices(frame):
        yield part.drop(columns="income"), part["income"]


SOURCES: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "DataFrame": lambda frame, _: frame,
    "Table": lambda frame, _: pa.Table.from_pandas(frame, preserve_index=False),
    "RecordBatch": lambda frame, _: pa.RecordBatch.from_pandas(frame, preserve_index=False),
    "RecordBatchReader": lambda frame, _: pa.Table.from_pandas(frame, preserve_index=False).to_reader(STEP),
    "dataset": dataset,
    "stream": lambda frame, _: Streamed(pa.Table.from_pandas(frame, preserve_index=False)),
    "stream of views": lambda frame, _: views(frame),
    "Hugging Face": lambda frame, _: Dataset(pa.Table.from_pandas(frame, preserve_index=False)),
    "Dask": lambda frame, _: dd.from_pandas(frame.reset_index(drop=True), npartitions=3),
    "iterator": lambda frame, _: iter(slices(frame)),
    "iterator of tables": lambda frame, _: (pa.table(part.reset_index(drop=True)) for part in slices(frame)),
    "function": lambda frame, _: lambda: iter(slices(frame)),
    "list": lambda frame, _: slices(frame),
    "pairs": lambda frame, _: pairs(frame),
    "pairs of tables": lambda frame, _: ((pa.table(X.reset_index(drop=True)), y) for X, y in pairs(frame)),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_table_gives_the_store_of_the_file(frame: pd.DataFrame, tmp_path: Path, kind: str) -> None:
    """Rows in any object make the store, and the columns, of the same rows in a file, to the bit."""
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), tmp_path / "rows.parquet")
    ingest(tmp_path / "rows.parquet", tmp_path / "file.zarr", **WORDS)
    words = WORDS | ({"label": None} if kind.startswith("pairs") else {})
    report = ingest(SOURCES[kind](frame, tmp_path), tmp_path / "rows.zarr", **words)
    expected, found = Store.open(tmp_path / "file.zarr"), Store.open(tmp_path / "rows.zarr")
    assert report.rows == len(frame)
    assert report.label_from == "column 'income'"
    assert found.digest == expected.digest
    assert found.columns == expected.columns
    assert sorted(path.name for path in tmp_path.iterdir() if "part-" not in path.name) == [
        "file.zarr", "rows.parquet", "rows.zarr",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["DataFrame", "iterator", "Dask"])
def test_labels_and_weights_may_lie_beside_a_table(frame: pd.DataFrame, tmp_path: Path, kind: str) -> None:
    """Labels as an array, and weights as a column, go with the rows of a table as with those of an array."""
    income, rows = frame["income"].to_numpy(), frame.drop(columns="income").fillna({"hours": 0.5})
    words = WORDS | {"label": None, "labels": income, "weights": "hours"}
    ingest(SOURCES[kind](rows, tmp_path), tmp_path / "rows.zarr", **words)
    store = Store.open(tmp_path / "rows.zarr")
    assert store.weighted
    assert [store.classes[code] for code in store.read(0)[1][:5]] == income[:5].tolist()


def test_tables_of_numbers_are_read_once(tmp_path: Path) -> None:
    """Batches whose columns are all numbers are written as they come: nothing is kept, a function is called once."""
    calls = []

    def batches() -> Iterator[pd.DataFrame]:
        calls.append(1)
        yield pd.DataFrame({"a": [1, 2], "y": [0, 1]})
        yield pd.DataFrame({"y": [1.0], "a": [3.5]})

    ingest(batches, tmp_path / "rows.zarr")
    assert len(calls) == 1
    assert Store.open(tmp_path / "rows.zarr").read(0)[0].tolist() == [[1.0], [2.0], [3.5]]


def test_a_function_is_called_for_each_pass(frame: pd.DataFrame, tmp_path: Path) -> None:
    """Where columns must be looked at first, a function that gives batches is called twice."""
    calls = []

    def batches() -> Iterator[pd.DataFrame]:
        calls.append(1)
        return iter(slices(frame))

    ingest(batches, tmp_path / "rows.zarr", **WORDS)
    assert len(calls) == 2


def test_what_is_kept_of_an_iterator_has_no_name_and_goes(frame: pd.DataFrame, tmp_path: Path) -> None:
    """Rows that can be read once are kept in a file that no folder shows, and that is closed also after an error."""
    (tmp_path / "out").mkdir()
    seen, before = [], unnamed_files()

    def batches() -> Iterator[pd.DataFrame]:
        for part in slices(frame):
            seen.extend((tmp_path / "out").iterdir())
            yield part
        yield frame.iloc[:10].assign(age="old")

    with pytest.raises(DataError, match=r"batch 4, column 'age': found type string, expected int64 as in batch 0"):
        ingest(batches(), tmp_path / "out" / "rows.zarr", **WORDS)
    gc.collect()
    assert seen == []
    assert unnamed_files() <= before


def test_what_cannot_be_kept_says_so(frame: pd.DataFrame, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk ends the reading with what to do about it."""

    class Full:
        def write(self, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            pass

    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: Full())
    with pytest.raises(Exception, match=r"batches: its rows can be read once, .*: No space left on device; make room"):
        refused(iter(slices(frame)), **WORDS)


def test_columns_without_values_in_some_batches(tmp_path: Path) -> None:
    """A column that holds nothing in the first batch is what later batches say."""
    parts = [
        pd.DataFrame({"a": [None, None], "b": [1, 2], "y": [0, 1]}),
        pd.DataFrame({"a": [0.5, None], "b": [None, None], "y": [0, 1]}),
    ]
    ingest(iter(parts), tmp_path / "rows.zarr", missing="mean")
    assert Store.open(tmp_path / "rows.zarr").read(0)[0].tolist() == [[0.5, 1], [0.5, 2], [0.5, 1.5], [0.5, 1.5]]


def test_objects_of_numbers_and_lists_are_understood(tmp_path: Path) -> None:
    """Columns of objects are what their values are: decimals, lists and arrays of numbers, booleans."""
    frame = pd.DataFrame(
        {
            "money": [Decimal("1.5"), Decimal("22.25")],
            "list": [[1.0, 2.0], np.array([3.0, 4.0])],
            "mixed": pd.Series([1, 2.5], dtype=object),
            "true": pd.Series([True, False], dtype=object),
            "sparse": pd.array([0.0, 7.0], dtype="Sparse[float]"),
            "y": ["a", "b"],
        }
    )
    ingest(frame, tmp_path / "rows.zarr")
    assert Store.open(tmp_path / "rows.zarr").read(0)[0].tolist() == [[1.5, 1, 2, 1, 1, 0], [22.25, 3, 4, 2.5, 0, 7]]


def test_what_is_left_out_may_be_anything(tmp_path: Path) -> None:
    """A column that no table could hold is no matter where it is dropped."""
    frame = pd.DataFrame({"a": [1.0, 2.0], "odd": [object(), "x"], "y": [0, 1]})
    report = ingest(frame, tmp_path / "rows.zarr", drop="odd")
    assert report.features == 1
    report = ingest(iter([frame]), tmp_path / "again.zarr", drop="odd", missing="mean")
    assert report.features == 1


def frame_of(**columns: Any) -> pd.DataFrame:
    """A few rows with labels."""
    return pd.DataFrame({"a": [1.0, 2.0, 3.0], **columns, "y": [0, 1, 1]})


def two_names(name: str) -> pd.DataFrame:
    """Two columns of one name."""
    return pd.DataFrame([[1, 2, 0]], columns=[name, name, "y"])


BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "two columns of one name": (
        lambda: two_names("a"), DataError,
        "DataFrame: columns 0 and 1 are both named 'a', expected a name for each; rename one",
    ),
    "two columns of one name in Arrow": (
        lambda: pa.table([[1], [2], [0]], names=["a", "a", "y"]), DataError,
        "Table: columns 0 and 1 are both named 'a', expected a name for each; rename one",
    ),
    "levels of names": (
        lambda: pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")])), UsageError,
        "DataFrame: its columns have 2 levels of names, expected one; join them",
    ),
    "mixed kinds": (
        lambda: frame_of(b=[1, 2, "x"]), BadRow,
        "DataFrame, row 2, column 'b': found 'x', expected values of one kind, here int64; convert the column",
    ),
    "mixed texts": (
        lambda: frame_of(b=["x", 2, "y"]), BadRow,
        "DataFrame, row 1, column 'b': found 2, expected values of one kind, here string; convert the column",
    ),
    "objects": (
        lambda: frame_of(b=[object()] * 3), UsageError,
        "DataFrame, column 'b': found values of type object, expected numbers, booleans, texts or dates",
    ),
    "complex numbers": (
        lambda: frame_of(b=[1j, 2, 3]), UsageError,
        "DataFrame, column 'b': found values of type complex128, expected numbers",
    ),
    "spans of time": (
        lambda: frame_of(b=pd.to_timedelta([1, 2, 3], "s")), UsageError,
        "DataFrame, column 'b': found type duration[ns], expected numbers or lists of numbers, booleans, texts",
    ),
    "no rows": (lambda: frame_of().iloc[:0], NoRows, "DataFrame: no rows: expected at least one"),
    "no rows in Arrow": (lambda: pa.table({"a": [], "y": []}), NoRows, "Table: no rows: expected at least one"),
    "no batch": (lambda: iter(()), DataError, "batches: found no batch, expected at least one with rows"),
    "no rows in batches": (
        lambda: iter([frame_of().iloc[:0]] * 2), NoRows, "batches: no rows: expected at least one",
    ),
    "other columns midway": (
        lambda: iter([frame_of(b=1), frame_of(c=1)]), DataError,
        "batch 1: other columns than those of batch 0: 'b' is missing, 'c' is not known; give batches of one kind",
    ),
    "a batch that is no table": (
        lambda: iter([frame_of(), "rows"]), UsageError, "batch 1: found str, expected a DataFrame, a table of Arrow",
    ),
    "a first batch that is no table": (
        lambda: iter([{"a": 1}]), UsageError, "batch 0: found dict, expected a DataFrame, a table of Arrow",
    ),
    "an array among tables": (
        lambda: iter([frame_of(), np.ones((2, 2))]), UsageError,
        "batch 1: found ndarray of shape (2, 2), expected a DataFrame",
    ),
    "numbers, then text": (
        lambda: iter([frame_of(b=1), frame_of(b=2.5), frame_of(b="x")]), DataError,
        "batch 2, column 'b': found type string, expected int64 as in batch 0; convert it",
    ),
    "labels in some batches": (
        lambda: iter([(frame_of(), [1, 0, 1]), frame_of()]), DataError,
        "batch 1: found no labels, expected labels as in the first batch",
    ),
    "fewer labels": (
        lambda: iter([(frame_of(), [1, 0])]), DataError, "batch 0: holds 3 rows, 2 labels: expected as many",
    ),
    "a column beside labels of its name": (
        lambda: iter([(frame_of(), pd.Series([1, 0, 1], name="y"))]), UsageError,
        "batch 0: found a column 'y' and labels of this name, expected one of them",
    ),
    "no table of columns": (
        lambda: pa.chunked_array([[1, 2]]), UsageError, "ChunkedArray: found no table of columns, expected one",
    ),
    "a missing value": (
        lambda: frame_of(b=[1.0, None, 2.0]), ColumnsUnclear,
        "DataFrame, row 1, column 'b': found no value, expected one; 1 of 3 are missing",
    ),
    "a missing value in a batch": (
        lambda: iter([frame_of(b=1.0), frame_of(b=[1.0, None, 2.0])]), BadRow,
        "batch 1, row 1, column 'b': found no value, expected one; fill it in",
    ),
    "a missing label": (
        lambda: frame_of().assign(y=[0, None, 1]), LabelError, "DataFrame, row 1: found no label, expected one",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_tables_are_refused_by_place(refused: Refused, kind: str) -> None:
    """What is wrong with a table from Python is said by object, row and column, and nothing is left behind."""
    make, error, text = BAD[kind]
    assert refused(make(), error).startswith(text)


def test_partitions_that_disagree_are_refused(refused: Refused) -> None:
    """A DataFrame of Dask whose partitions have other columns is refused by the number of the partition."""
    frame = dd.from_pandas(frame_of(b=1), npartitions=3)

    def renamed(part: pd.DataFrame) -> pd.DataFrame:
        return part.rename(columns={"b": "c"}) if 2 in part.index else part

    odd = frame.map_partitions(renamed, meta=frame, enforce_metadata=False)
    text = refused(odd, DataError)
    assert text.startswith(
        "Dask DataFrame, partition 2: other columns than those of Dask DataFrame, partition 0: 'b' is"
    )


def test_a_graph_that_fails_is_named(refused: Refused) -> None:
    """What a graph of Dask raises comes with the partition."""

    def fail(part: pd.DataFrame) -> pd.DataFrame:
        raise RuntimeError("no such file")

    frame = dd.from_pandas(frame_of(), npartitions=1)
    text = refused(frame.map_partitions(fail, meta=frame), DataError)
    assert text.startswith("Dask DataFrame, partition 0: cannot be computed: RuntimeError: no such file")


def test_partitions_are_computed_once(frame: pd.DataFrame, tmp_path: Path) -> None:
    """Columns of a DataFrame of Dask are looked at, and its rows written, by one computation of each partition."""
    computed = []
    lazy = dd.from_pandas(frame.reset_index(drop=True), npartitions=3)
    counted = lazy.map_partitions(lambda part: computed.append(1) or part, meta=lazy)
    ingest(counted, tmp_path / "rows.zarr", **WORDS)
    assert len(computed) == 3


def test_a_number_that_is_a_name_elsewhere_is_refused(refused: Refused, tmp_path: Path) -> None:
    """Of columns named by numbers, one that is meant is found by its name or its number only where both agree."""
    frame = pd.DataFrame(np.arange(8.0).reshape(2, 4)).drop(columns=1)
    text = "DataFrame: 2 is the name of column 1 and the number of another one, expected one meaning; say '2'"
    assert refused(frame, UsageError, label=2).startswith(text)
    assert ingest(frame, tmp_path / "rows.zarr", label="2").label_from == "column '2'"


def test_labels_in_pairs_and_beside_them_are_refused(refused: Refused) -> None:
    """Labels that come with batches leave no room for others."""
    text = refused(iter([(frame_of(), [1, 0, 1])]), UsageError, label="y")
    assert text == "batches: labels come with the rows: leave --label, --labels and --unlabelled out"


def test_a_query_and_several_splits_are_refused(refused: Refused) -> None:
    """A lazy frame of polars and the splits of a data set are no rows yet: what would be is said."""
    lazy = type("LazyFrame", (), {"__module__": "polars.lazyframe.frame"})()
    splits = type("DatasetDict", (dict,), {"__module__": "datasets.dataset_dict"})(train=1, test=2)
    assert "call .collect() first" in refused(lazy, UsageError)
    assert "found the splits 'train', 'test', expected one of them" in refused(splits, UsageError)


def test_rows_join_a_store_by_names(frame: pd.DataFrame, tmp_path: Path) -> None:
    """A frame is appended to a store of a file by the names of its columns, in whatever order they come."""
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), tmp_path / "rows.parquet")
    ingest(tmp_path / "rows.parquet", tmp_path / "rows.zarr", **WORDS)
    report = ingest(frame[sorted(frame.columns)], tmp_path / "rows.zarr", append=True)
    store = Store.open(tmp_path / "rows.zarr")
    X, y = zip(*(store.read(chunk) for chunk in range(store.chunks)), strict=True)
    rows = np.concatenate(X)
    assert report.store_rows == 2 * len(frame)
    assert np.array_equal(rows[: len(frame)], rows[len(frame) :])
    assert np.array_equal(*np.split(np.concatenate(y), 2))
