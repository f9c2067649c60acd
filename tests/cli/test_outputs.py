"""Standard streams that are closed, full or read by nobody: the work is done and saved, and the exit code says it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.outputs import Output

COREMARGIN = f"{sys.executable} -m coremargin"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four rows on a line, of two classes."""
    path = tmp_path_factory.mktemp("outputs") / "rows.zarr"
    with StoreWriter.create(path, features=1, chunk_bytes=1 << 10) as writer:
        writer.write([[-2.0], [-1.0], [1.0], [2.0]], [0, 0, 1, 1])
    return path


def in_shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A script of bash, whose exit code is that of the first command of a pipe."""
    words = ["bash", "-c", f"set -o pipefail; {script}"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(
    ("streams", "code", "said"),
    [
        (">&-", 0, ""), (">&- 2>&-", 0, ""), ("<&- >&- 2>&-", 0, ""), ("2>/dev/full", 0, ""),
        ("2>&- >/dev/full", 5, ""),
        (">/dev/full", 5, "error: standard output cannot be written: No space left on device"),
        ("2> >(true)", 0, ""), ("> >(exec true); sleep 0.1", 0, ""),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_a_model_is_saved_whoever_listens(store: Path, tmp_path: Path, streams: str, code: int, said: str) -> None:
    """Training ends well and its model is whole; a report that is lost is an error where it can be told."""
    done = in_shell(f"{COREMARGIN} train {store} --out m {streams}", tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert said in done.stderr
    assert done.stderr.count("error:") <= 1
    assert not in_shell(f"{COREMARGIN} verify m {store}", tmp_path).returncode
    assert Store.open(store).rows == 4  # no message went into one of its files


@pytest.mark.parametrize("words", ["--version", "train --help", "info {store} --json", "registry --help"])
@pytest.mark.parametrize(("streams", "code"), [(">&- 2>&-", 0), (">/dev/full", 5), ("2>&- | (exec <&-; sleep 1)", 141)])
@pytest.mark.slow
def test_what_only_prints(store: Path, tmp_path: Path, words: str, streams: str, code: int) -> None:
    """What a command was to print is lost: 141 where the reader has gone, 5 where there is no room."""
    done = in_shell(f"{COREMARGIN} {words.format(store=store)} {streams}", tmp_path)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("streams", [">&- 2>&-", ">/dev/full 2>&1"])
def test_errors_keep_their_codes(tmp_path: Path, streams: str) -> None:
    """Wrong usage is 2 and a missing store 3, whether the message can be printed or not."""
    assert in_shell(f"{COREMARGIN} nothing {streams}", tmp_path).returncode == 2
    assert in_shell(f"{COREMARGIN} show nothing {streams}", tmp_path).returncode == 3


def test_an_output_raises_nothing() -> None:
    """After the first error nothing is written: a full disk, a reader who has gone; the error is kept."""
    full = os.open("/dev/full", os.O_WRONLY)
    read, write = os.pipe()
    os.close(read)
    for number, kind in ((full, OSError), (write, BrokenPipeError)):
        output = Output(io.FileIO(number, "w", closefd=False))
        assert [output.write(b"abc"), output.write(memoryview(b"de"))] == [3, 2]
        output.flush()
        assert output.write(bytes(1 << 20)) == 1 << 20
        assert isinstance(output.error, kind)
        os.close(number)


def test_an_output_waits_for_its_reader() -> None:
    """A pipe that is set not to wait, as some programs leave a terminal, gets all that is written."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    found = list[bytes]()
    reader = threading.Thread(target=lambda: found.extend(iter(lambda: os.read(read, 4096), b"")))
    reader.start()
    data = memoryview(os.urandom(1 << 20))
    output = Output(io.FileIO(write, "w", closefd=False))
    while data:
        data = data[output.write(data[:100_000]) :]
    output.flush()
    os.close(write)
    reader.join(10)
    assert (output.error, sum(map(len, found))) == (None, 1 << 20)
    os.close(read)
