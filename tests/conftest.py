"""Fixtures for all tests: real data where it is present, small arrays, small stores, the command line."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import numpy as np
import psutil
import pytest

if TYPE_CHECKING:
    from click.testing import Result

    from coremargin.data.store import Store
    from coremargin.engine.protocols import Executor

# The same examples in every run and on every machine, however busy it is; nothing is remembered between runs.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None, print_blob=True)
hypothesis.settings.load_profile("repeatable")

REPOSITORY = Path(__file__).resolve().parent.parent

MEMORY = Path("/dev/shm")
ROOM = 4 << 30
GRACE_S = 60
STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """What every run needs, however it was started."""
    config.stash[STDERR] = os.dup(2)  # what the tests print is captured
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:  # by `&` in a script, by nohup; what the tests start inherits it
            signal.signal(number, handler)
    put_tmp_path_into_memory(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow all cases of a function with the mark ``specimens(n)`` but its first n, by name."""
    cases: dict[object, list[pytest.Item]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("specimens"):
            cases.setdefault(item.function, []).append(item)
    for function, found in cases.items():
        mark = found[0].get_closest_marker("specimens")
        assert mark is not None, function
        for item in sorted(found, key=lambda item: item.nodeid)[mark.args[0] :]:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """What there is by now stays to the end: collections of garbage, of which tests ask for many, pass over it."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logfinish(location: tuple[str, int | None, str]) -> None:
    """What tests of a file leave, caches and reports, is passed over by later collections, too: there is much of it."""
    if location[0] != _FILES[-1]:
        _FILES.append(location[0])
        gc.collect()
        gc.freeze()


_FILES = [""]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The seed of the order that tests ran in, as an option that repeats it; a quiet run shows no header with it."""
    if config.getoption("randomly_reorganize", default=False):
        terminalreporter.write_line(f"order of tests: --randomly-seed={config.getoption('randomly_seed')}")


def put_tmp_path_into_memory(config: pytest.Config) -> None:
    """Where there is room: thousands of fsyncs take no time there, however busy the disk is.

    Nothing changes for killed processes: what was handed to the kernel stays. ``--basetemp`` or PYTEST_DEBUG_TEMPROOT
    choose another place.
    """
    if config.getoption("basetemp") or not os.access(MEMORY, os.W_OK | os.X_OK):
        return
    facts = os.statvfs(MEMORY)
    room = min(facts.f_bavail * facts.f_frsize, psutil.virtual_memory().available)
    if room >= ROOM and not facts.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End the run, all stacks shown, where a test hangs outside of Python: there its timeout cannot be raised.

    Not faulthandler_timeout of pytest, which is the same for all tests: some have a timeout of their own.
    """
    marker = item.get_closest_marker("timeout")
    limit_s = float(item.config.getini("timeout") if marker is None else marker.args[0])
    faulthandler.dump_traceback_later(limit_s + GRACE_S, exit=True, file=item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return REPOSITORY


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real datasets beside the clone; tests that need it are skipped where it is absent."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no real data beside the clone (../shared/data)")
    return folder


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that gives the same numbers in every run."""
    return np.random.default_rng(20060106)


def separable_rows(
    rng: np.random.Generator, rows: int, features: int, *, margin: float = 0.5, dtype: str = "float32"
) -> tuple[np.ndarray, np.ndarray]:
    """Normal rows (n, d) pushed ``margin`` away from a random plane through the origin; sides (n,) in {-1, 1}."""
    plane = rng.standard_normal(features)
    plane /= np.linalg.norm(plane)
    X = rng.standard_normal((rows, features))
    y = np.where(X @ plane >= 0, 1, -1)
    y[:2] = (-1, 1)  # both classes, whatever was drawn
    X[:2] = np.abs(X[:2] @ plane)[:, None] * y[:2, None] * plane
    X += margin * y[:, None] * plane
    return X.astype(dtype), y.astype(np.int32)


@pytest.fixture
def separable(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """600 separable rows of 5 features, float32, and labels in {-1, 1}."""
    return separable_rows(rng, 600, 5)


@pytest.fixture
def make_separable(rng: np.random.Generator) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """A maker of separable rows: ``make_separable(rows, features, margin=0.5, dtype="float32")``."""

    def make(rows: int, features: int, **options: Any) -> tuple[np.ndarray, np.ndarray]:
        return separable_rows(rng, rows, features, **options)

    return make


@pytest.fixture
def make_store(tmp_path: Path) -> Callable[..., Store]:
    """A maker of small stores: ``make_store(X, y, name="rows.zarr", chunk_rows=64)``, written below tmp_path."""

    def make(
        X: np.ndarray, y: Any, weights: Any = None, *, name: str = "rows.zarr", chunk_rows: int = 64, **options: Any
    ) -> Store:
        from coremargin.data.store import Store
        from coremargin.data.writer import StoreWriter

        chunk_bytes = chunk_rows * X.shape[1] * X.dtype.itemsize
        path = tmp_path / name
        with StoreWriter.create(
            path, features=X.shape[1], dtype=str(X.dtype), chunk_bytes=chunk_bytes, weighted=weights is not None,
            **options,
        ) as writer:  # fmt: skip
            writer.write(X, y, weights, origin="test")
            writer.commit()
        return Store.open(path)

    return make


@pytest.fixture(scope="session")
def embedded() -> Iterator[Executor]:
    """One embedded Dask cluster for all tests that do it no harm: two processes of one thread."""
    from coremargin.engine.clusters.embedded import start_embedded

    with start_embedded(workers=2, threads=1) as executor:
        yield executor


@pytest.fixture
def run_cli() -> Callable[..., Result]:
    """Runs the command line in this process: ``run_cli("info", path)``; errors other than exits are raised."""

    def run(*words: Any, exit_code: int | None = 0, env: dict[str, str] | None = None) -> Result:
        from click.testing import CliRunner

        from coremargin.cli import main

        arguments: Sequence[str] = [str(word) for word in words]
        result = CliRunner().invoke(main, arguments, env=env, catch_exceptions=False)
        if exit_code is not None:
            assert result.exit_code == exit_code, (
                f"{arguments}: exit {result.exit_code}\n{result.stdout}\n{result.stderr}"
            )
        return result

    return run
