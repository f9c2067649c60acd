"""Commands under limits of the machine: they do what they can, or end at once with a message; never with damage."""

from __future__ import annotations

import re
import resource
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from coremargin.data.synth import Recipe, synth
from coremargin.engine.executors import InProcess
from coremargin.learn.train import train_job
from coremargin.problems.registry import new_job
from signal_kit import Running

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

pytestmark = pytest.mark.faults

COMMANDS = {
    "ingest": "ingest rows.csv out.zarr --label 0 --chunk-size 8KiB",
    "synth": "synth out.zarr --rows 20000 --features 10 --chunk-size 8KiB",
    "check": "check rows.zarr",
    "train": "train rows.zarr --out out.model --cluster threads",
    "train, embedded": "train rows.zarr --out out.model --cluster embedded",
    "verify": "verify rows.model rows.zarr",
    "predict": "predict rows.model rows.zarr out.zarr",
    "evaluate": "evaluate rows.model rows.zarr",
    "show": "show rows.model",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 245 chunks, its model, and a file of rows."""
    folder = tmp_path_factory.mktemp("limits")
    store = synth(folder / "rows.zarr", Recipe(24_500, 20, seed=1, chunk_bytes=8_000), workers=2)
    assert store.chunks == 245
    train_job(new_job(store=store.path, out=folder / "rows.model"), store, InProcess(2))
    rng = np.random.default_rng(3)
    rows = np.c_[rng.integers(0, 2, 5_000), rng.normal(size=(5_000, 20)).round(4)]
    np.savetxt(folder / "rows.csv", rows, delimiter=",", fmt="%g")
    return folder


@pytest.fixture
def inputs(place: Path, tmp_path: Path) -> Path:
    """A folder with names of these, and nothing else."""
    for path in place.iterdir():
        (tmp_path / path.name).symlink_to(path)
    return tmp_path


def run(folder: Path, command: str, kind: int, most: int) -> tuple[int, str]:
    """Exit code and stderr of a command under a limit, hard and soft."""

    def limit() -> None:
        resource.setrlimit(kind, (most, most))

    code, _, errors = Running([*COMMANDS[command].split()], cwd=folder, preexec_fn=limit).end()
    assert "Traceback" not in errors, errors
    assert "coremargin check" not in errors, errors
    return code, errors


@pytest.mark.specimens(1)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("files", [200, pytest.param(64, marks=pytest.mark.slow)])
def test_few_files_are_enough(inputs: Path, command: str, files: int) -> None:
    """No command needs a file per chunk: it does its work with 200 open files, and with 64."""
    assert run(inputs, command, resource.RLIMIT_NOFILE, files)[0] == 0


@pytest.mark.specimens(1)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "files", [16, *(pytest.param(few, marks=pytest.mark.slow) for few in (5, 6, 7, 8, 12, 24, 48))]
)
def test_too_few_files(inputs: Path, command: str, files: int) -> None:
    """With even fewer files a command does its work, or ends with exit code 5 and the limit, whatever it reached."""
    code, errors = run(inputs, command, resource.RLIMIT_NOFILE, files)
    if files >= 12 and command != "train, embedded":
        assert code == 0, errors
    elif code:
        assert code == 5, errors
        assert "(ulimit -n)" in errors, errors
        assert errors.count("error:") == 1, errors


@pytest.mark.specimens(4)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "mib",
    [200, *(pytest.param(few, marks=pytest.mark.slow) for few in (16, 30, 60, 120, 280, 380, 450, 600, 750, 900))],
)
def test_little_memory(inputs: Path, command: str, mib: int) -> None:
    """In a small address space a command does its work, or ends with exit code 5 and the limit, whatever it reached."""
    code, errors = run(inputs, command, resource.RLIMIT_AS, mib << 20)
    if code == 127:  # glibc ends a process by itself when it has no memory for a library's thread-local data
        assert "cannot allocate memory for thread-local data" in errors, errors
        assert {path.name for path in inputs.iterdir() if not path.is_symlink()} <= {".out.zarr.building"}
        return
    if code:
        assert code == 5, errors
        assert "ulimit -v" in errors, errors
        assert errors.count("error:") == 1, errors
    assert code == 5 or mib > 200


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_ample_memory(inputs: Path, command: str) -> None:
    """A limit of four gibibytes is in nobody's way."""
    code, errors = run(inputs, command, resource.RLIMIT_AS, 4 << 30)
    assert code == 0, errors


def test_small_files(inputs: Path) -> None:
    """Where files may not be as large as a chunk, ingest ends with the limit, and no store appears."""
    code, errors = run(inputs, "ingest", resource.RLIMIT_FSIZE, 4_000)
    assert code == 5
    assert "may write files of 4,000 bytes (ulimit -f)" in errors
    assert not (inputs / "out.zarr").exists()


@pytest.mark.specimens(2)
@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryError(), "out of memory"),
        (np._core._exceptions._ArrayMemoryError((1 << 40,), np.dtype("f8")), "out of memory"),  # type: ignore[attr-defined]
        (OSError(24, "Too many open files"), "ulimit -n"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
    ],
)
def test_a_limit_where_nobody_expects_it(
    place: Path, run_cli: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
) -> None:
    """A limit that is met deep in a library ends a command with exit code 5, its message and where it was met."""

    def refused(*_: object) -> None:
        raise error

    monkeypatch.setattr("coremargin.data.store.Store.read", refused)
    result = run_cli("evaluate", place / "rows.model", place / "rows.zarr", exit_code=5)
    assert says in result.stderr
    assert re.search(r"^in block \d+ \(chunks ", result.stderr, re.MULTILINE)


def test_a_bug_keeps_its_traceback(
    place: Path, run_cli: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is neither raised on purpose nor a limit is not hidden behind a message."""

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("coremargin.data.store.Store.read", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        run_cli("evaluate", place / "rows.model", place / "rows.zarr")
