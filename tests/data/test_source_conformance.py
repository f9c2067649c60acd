"""One suite for every source: stores by map, buffer and codec, arrays in memory, and views of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cloudpickle
import numpy as np
import pytest
import zarr

from coremargin.data.arrays import ArraySource
from coremargin.data.external_arrays import LazySource
from coremargin.data.opened import open_source
from coremargin.data.resident import Resident
from coremargin.data.source import Source, is_source
from coremargin.data.store import Store
from coremargin.data.view import View
from coremargin.errors import UsageError
from store_kit import all_rows, rewrite_array, write_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS, FEATURES, CHUNK_ROWS = 333, 5, 64


@pytest.fixture
def data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, list[str | None]]:
    """Rows, their codes, and the labels that give these codes: the first label seen is "b"."""
    X = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    codes = rng.integers(-1, 2, ROWS).astype(np.int32)
    codes[:2] = 0, 1
    return X, codes, [{-1: None, 0: "b", 1: "a"}[int(code)] for code in codes]


def _arrays(path: Path, X: np.ndarray, labels: list[str | None]) -> Source:
    return ArraySource(X, labels, chunk_rows=CHUNK_ROWS)


def _mapped(path: Path, X: np.ndarray, labels: list[str | None]) -> Source:
    return write_store(path, X, labels, chunk_rows=CHUNK_ROWS)


def _buffered(path: Path, X: np.ndarray, labels: list[str | None]) -> Source:
    write_store(path, X, labels, chunk_rows=CHUNK_ROWS)
    return Store.open(path, map_bytes=0)


def _lz4(path: Path, X: np.ndarray, labels: list[str | None]) -> Source:
    return write_store(path, X, labels, chunk_rows=CHUNK_ROWS, compression="lz4")


def _zstd(path: Path, X: np.ndarray, labels: list[str | None]) -> Source:
    return write_store(path, X, labels, chunk_rows=CHUNK_ROWS, compression="zstd")


def _rewritten(path: Path, X: np.ndarray, labels: list[str | None]) -> Source:
    write_store(path, X, labels, chunk_rows=CHUNK_ROWS)
    rewrite_array(path, "X", compressors=None)
    return Store.open(path)


def _appended(path: Path, X: np.ndarray, labels: list[str | None]) -> Source:
    from coremargin.data.writer import StoreWriter

    write_store(path, X[:100], labels[:100], chunk_rows=CHUNK_ROWS)
    for start, stop in ((100, 101), (101, 256), (256, ROWS)):
        with StoreWriter.append(path) as writer:
            writer.write(X[start:stop], labels[start:stop])
    return Store.open(path)


def _view_of_arrays(path: Path, X: np.ndarray, labels: list[str | None]) -> Source:
    return View(_arrays(path, X, labels))


def _view_of_a_view(path: Path, X: np.ndarray, labels: list[str | None]) -> Source:
    return View(View(_buffered(path, X, labels), 1, np.arange(3)), "second")


def _dask(path: Path, X: np.ndarray, labels: list[str | None]) -> Source:
    array = pytest.importorskip("dask.array")
    return LazySource(array.from_array(X, chunks=((100, 100, 100, 33), (3, 2))), labels, chunk_rows=CHUNK_ROWS)


def _zarr(path: Path, X: np.ndarray, labels: list[str | None]) -> Source:
    array = zarr.create_array(path, data=X, chunks=(CHUNK_ROWS, 2))
    return LazySource(array, labels, chunk_rows=CHUNK_ROWS)


MAKERS = [_dask, _zarr, _arrays, _mapped, _buffered, _lz4, _zstd, _rewritten, _appended]


def _resident(path: Path, X: np.ndarray, labels: list[str | None]) -> Source:
    return Resident(_buffered(path, X, labels))


VIEWS = [_view_of_arrays, _view_of_a_view, _resident]


def _name(maker: Callable[..., Source]) -> str:
    return maker.__name__.strip("_")


@pytest.fixture(params=[*MAKERS, *VIEWS], ids=_name)
def source(
    request: pytest.FixtureRequest, tmp_path: Path, data: tuple[np.ndarray, np.ndarray, list[str | None]]
) -> Source:
    """A source of the same rows, each time of another kind."""
    maker: Callable[..., Source] = request.param
    return maker(tmp_path / "s.zarr", data[0], data[2])


class TestSource:
    """What every source promises."""

    def test_rows_stay_as_they_were_read(self, source: Source) -> None:
        """Whoever keeps rows and labels of a chunk keeps them: a reader does not write over them."""
        kept = [source.read(chunk) for chunk in range(source.chunks)]
        for chunk, (rows, codes) in enumerate(kept):
            again = source.read(chunk)
            np.testing.assert_array_equal(rows, again[0])
            np.testing.assert_array_equal(codes, again[1])
            np.testing.assert_array_equal(codes, source.labels(chunk))

    def test_facts(self, source: Source) -> None:
        """A source knows its rows, features, classes, chunks and bytes without reading them."""
        assert isinstance(source, Source)
        assert (source.rows, source.features, source.chunk_rows, source.chunks) == (ROWS, FEATURES, CHUNK_ROWS, 6)
        assert source.classes == ("b", "a")
        assert source.dtype == np.float32
        assert source.nbytes == ROWS * (FEATURES * 4 + 4)

    def test_spans_cover_all_rows(self, source: Source) -> None:
        """Spans follow one another from 0 to the number of rows, and there are none beyond."""
        spans = [source.span(chunk) for chunk in range(source.chunks)]
        assert [start for start, _ in spans] == [0, *(stop for _, stop in spans[:-1])]
        assert spans[-1][1] == ROWS
        for chunk in (-1, source.chunks):
            with pytest.raises(IndexError, match="expected a chunk from 0 to 5"):
                source.read(chunk)

    def test_read(self, source: Source, data: tuple[np.ndarray, np.ndarray, list[str | None]]) -> None:
        """Chunks hold the rows and codes that went in, bit for bit, twice in a row."""
        for _ in range(2):
            X, y = all_rows(source)
            np.testing.assert_array_equal(X, data[0])
            np.testing.assert_array_equal(y, data[1])

    def test_read_gives_plain_read_only_arrays(self, source: Source) -> None:
        """Rows are C order, native, read-only, of the source's dtype; codes are int32."""
        X, y = source.read(source.chunks - 1)
        assert X.dtype == source.dtype
        assert X.dtype.isnative
        assert X.flags.c_contiguous
        assert not X.flags.writeable
        assert y.dtype == np.int32
        assert not y.flags.writeable

    def test_rows_at(self, source: Source, data: tuple[np.ndarray, np.ndarray, list[str | None]]) -> None:
        """Rows are found by id in the order asked for, repeated ids included, before and after a scan."""
        ids = np.array([332, 0, 64, 63, 0, 200, 199])
        for _ in range(2):
            X, y = source.rows_at(ids)
            assert X.dtype == np.float64
            np.testing.assert_array_equal(X, data[0][ids])
            np.testing.assert_array_equal(y, data[1][ids])
            all_rows(source)
        X, y = source.rows_at(np.array([], dtype=np.int64))
        assert X.shape == (0, FEATURES)
        assert y.shape == (0,)

    @pytest.mark.parametrize("ids", [[-1], [ROWS], [0.5], [[1]]])
    def test_rows_at_refuses(self, source: Source, ids: list[object]) -> None:
        """Ids that are no rows of the source are refused, not wrapped around."""
        with pytest.raises(UsageError, match="row ids"):
            source.rows_at(np.array(ids))

    def test_statistics(self, source: Source, data: tuple[np.ndarray, np.ndarray, list[str | None]]) -> None:
        """Statistics describe each chunk, and the cheap accessors say the same."""
        statistics, scalars = source.statistics(), source.scalars()
        assert statistics.rows.tolist() == [64] * 5 + [13]
        for chunk in range(source.chunks):
            start, stop = source.span(chunk)
            part, codes = data[0][start:stop].astype(np.float64), data[1][start:stop]
            assert statistics.counts[chunk].tolist() == [(codes == 0).sum(), (codes == 1).sum()]
            assert statistics.unlabelled[chunk] == (codes == -1).sum()
            np.testing.assert_allclose(statistics.total[chunk], part.sum(axis=0), rtol=1e-12, atol=1e-12)
            np.testing.assert_array_equal(statistics.low[chunk], part.min(axis=0))
        for name, values in vars(scalars).items():
            np.testing.assert_array_equal(values, getattr(statistics, name))
        np.testing.assert_array_equal(source.centres(), statistics.centre)
        np.testing.assert_array_equal(source.centres(2, 5), statistics.centre[2:5])

    def test_handle_travels(self, source: Source) -> None:
        """A pickled handle opens the same rows."""
        for value in (source.handle(), source):
            twin = open_source(cloudpickle.loads(cloudpickle.dumps(value)))
            assert twin.digest == source.digest
            np.testing.assert_array_equal(all_rows(twin)[0], all_rows(source)[0])


@pytest.mark.parametrize("maker", MAKERS, ids=_name)
def test_digest_is_that_of_the_arrays(
    maker: Callable[..., Source], tmp_path: Path, data: tuple[np.ndarray, np.ndarray, list[str | None]]
) -> None:
    """The digest depends on rows, codes and classes only: not on codecs, chunks, commits or medium."""
    source = maker(tmp_path / "s.zarr", data[0], data[2])
    assert source.digest == ArraySource(data[0], data[2], chunk_rows=50).digest
    changed = data[0].copy()
    changed[300, 2] = np.nextafter(changed[300, 2], np.float32(9))
    assert source.digest != ArraySource(changed, data[2]).digest
    assert source.digest != ArraySource(data[0], [{"a": "A"}.get(str(label), label) for label in data[2]]).digest


class Bristly:
    """Something whose attributes raise when they are asked for, as ``nbytes`` of a Dask data frame does."""

    def __getattr__(self, name: str) -> None:
        if name in ("chunk_rows", "rows_at"):
            raise AttributeError(name)
        raise NotImplementedError(name)


def test_what_is_no_source_is_not_asked_for_everything() -> None:
    """Whatever order a protocol's attributes are looked for in, which differs from process to process."""
    assert not is_source(Bristly())
