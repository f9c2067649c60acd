"""Streams as jobs: from files, folders and pipes, ended at any moment and continued with the same result."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from msgspec import structs

from coremargin.active.stream import ANSWERS, RESULT, STATE, StreamJob, load_stream_job, run_stream
from coremargin.active.stream_rows import Position, SeenFile, StreamOptions, StreamSource
from coremargin.data.files import aside_of
from coremargin.errors import BadRow, CoremarginError, DataError, LabelError, SpecError, UsageError
from coremargin.verify import verify

Cli = Callable[..., Result]
FEATURES = 4


class Killed(Exception):
    """The process ends here."""


def table(rows: int, seed: int = 0, *, gap: float = 0.4, first: int = 0) -> tuple[np.ndarray, list[str]]:
    """Rows that a plane separates, and their labels."""
    rng = np.random.default_rng(seed)
    w = np.array([1.0, -2.0, 0.5, 0.3])
    X = rng.standard_normal((first + rows, FEATURES))[first:]
    above = X @ w >= 0
    return X + np.where(above, gap, -gap)[:, None] * w / np.linalg.norm(w), ["yes" if one else "no" for one in above]


def csv_text(X: np.ndarray, y: Sequence[str] | None, *, head: bool = True) -> str:
    """As programs write it."""
    names = [f"f{k}" for k in range(X.shape[1])] + ["answer"] * (y is not None)
    lines = [",".join(f"{value!r}" for value in row.tolist()) for row in X]
    if y is not None:
        lines = [f"{line},{label}" for line, label in zip(lines, y, strict=True)]
    return "\n".join([",".join(names)] * head + lines) + "\n"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """5,000 rows with labels, as CSV."""
    place = tmp_path / "rows.csv"
    place.write_text(csv_text(*table(5_000)))
    return place


def job_of(rows: Path | str | list[str], out: Path, **options: Any) -> StreamJob:
    """A stream with small batches."""
    names = rows if isinstance(rows, list) else [str(rows)]
    return StreamJob(**{"rows": names, "out": out, "label": "answer", "batch": 100, "error": 0.02, **options})


def result_of(out: Path) -> dict[str, bytes]:
    """The bytes of the result that must be equal."""
    names = ("claim.txt", "model/model.json", "model/arrays.npz", "rows.zarr/X/c.0.0", "trial.zarr/X/c.0.0")
    found = {name: (out / RESULT / name) for name in names}
    return {name: place.read_bytes() for name, place in found.items() if place.exists()}


def fed(text: str | bytes, place: Path, piece: int = 1 << 16) -> threading.Thread:
    """A named pipe into which a thread writes so many bytes at a time."""
    if not place.exists():
        os.mkfifo(place)
    data = text.encode() if isinstance(text, str) else text

    def write() -> None:
        try:
            with place.open("wb", buffering=0) as file:
                for at in range(0, len(data), piece):
                    file.write(data[at : at + piece])
        except BrokenPipeError:  # its reader has enough
            pass

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


def test_the_result_is_certified_and_verified(tmp_path: Path, rows: Path) -> None:
    """The model separates the rows that it was made of, and has those right that tried it; the proof is checked."""
    learner = run_stream(job_of(rows, tmp_path / "s"))
    assert learner.status == "certified"
    assert verify(tmp_path / "s" / RESULT / "model", tmp_path / "s" / RESULT / "rows.zarr").ok
    X, y = table(20_000, seed=7)
    assert np.mean(learner.predict(X) != np.array(y)) <= 0.02
    assert learner.labels_asked < learner.rows_seen / 2


@pytest.mark.parametrize("options", [{}, {"map": "fourier", "components": 30, "error": 0.1}])
def test_killed_after_any_batch(tmp_path: Path, rows: Path, options: dict[str, Any]) -> None:
    """Each batch in a process of its own, so to speak: the same bytes as in one go."""
    run_stream(job_of(rows, tmp_path / "whole", **options))

    def end(_: object) -> None:
        raise Killed

    job, kills = job_of(rows, tmp_path / "killed", **options), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coremargin.active.stream._EVERY_S", -1.0)
        while True:
            try:
                run_stream(job, report=end)
            except Killed:
                kills += 1
                continue
            break
    assert kills > 5
    assert result_of(tmp_path / "killed") == result_of(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.faults
def test_killed_for_real(tmp_path: Path) -> None:
    """The whole command with rows by standard input, ended by SIGKILL a few times."""
    text = csv_text(*table(40_000, gap=0.05)).encode()
    words = ["-m", "coremargin", "active", "stream", "-", "--label", "answer", "--error", "0.001", "--quiet"]

    def start(out: Path) -> subprocess.Popen[bytes]:
        line = [sys.executable, *words, "--out", str(out), "--from-start"]
        return subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)

    whole = start(tmp_path / "whole")
    whole.communicate(text)
    for delay_s in (0.5, 1.5, 2.0, 2.5):
        killed = start(tmp_path / "killed")
        threading.Timer(delay_s, killed.send_signal, [signal.SIGKILL]).start()
        with suppress(BrokenPipeError):
            killed.communicate(text)
        killed.wait(60)
    last = start(tmp_path / "killed")
    last.communicate(text)
    assert last.returncode == whole.returncode
    assert result_of(tmp_path / "killed") == result_of(tmp_path / "whole")


def test_batches_do_not_depend_on_how_a_pipe_is_written(tmp_path: Path) -> None:
    """A byte at a time, or all at once; packed, as Parquet, or as a stream of Arrow's: the same rows."""
    X, y = table(230)
    pipe = StreamOptions(label="answer", size=100)
    arrow = pa.table({f"f{k}": X[:, k] for k in range(FEATURES)} | {"answer": y})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_table(arrow, max_chunksize=70)
    pq.write_table(arrow, tmp_path / "rows.parquet", row_group_size=33)
    (tmp_path / "rows.csv").write_text(csv_text(X, y))
    with pa.CompressedOutputStream(str(tmp_path / "rows.csv.gz"), "gzip") as packed:
        packed.write(csv_text(X, y).encode())
    for name, piece in (("a", 1), ("b", 1000), ("c", 1 << 20)):
        fed("\n" * (name == "a") + csv_text(X, y), tmp_path / name, piece)  # empty lines are no rows
    fed(sink.getvalue().to_pybytes(), tmp_path / "d", 500)
    fed(sink.getvalue().to_pybytes(), tmp_path / "e", 3)
    for name in ("a", "b", "c", "d", "e", "rows.csv", "rows.csv.gz", "rows.parquet"):
        batches = list(StreamSource(str(tmp_path / name), pipe, Position()).batches())
        assert [len(batch.rows) for batch in batches] == [100, 100, 30, 0], name
        np.testing.assert_array_equal(np.concatenate([batch.rows for batch in batches[:3]]), X, name)
        assert [label for batch in batches[:3] for label in batch.labels or ()] == y


def test_a_pipe_begins_again_or_goes_on(tmp_path: Path) -> None:
    """It is not guessed which; rows that were seen are compared, and new ones are numbered on."""
    X, y = table(5_000)
    pipe, job = tmp_path / "pipe", job_of(tmp_path / "pipe", tmp_path / "s")
    fed(csv_text(X[:700], y[:700]), pipe)
    assert run_stream(job).status == "stopped"
    with pytest.raises(UsageError, match=r"700 rows of a pipe were seen before; say whether .*from-start.*new-rows"):
        run_stream(job)
    fed(csv_text(-X, y), pipe)
    with pytest.raises(DataError, match="expected the rows that were seen before, found others"):
        run_stream(structs.replace(job, pipe="from-start"))
    fed(csv_text(X, y), pipe)
    again = run_stream(structs.replace(job, pipe="from-start"))
    fed(csv_text(X, y), tmp_path / "other")
    whole = run_stream(job_of(tmp_path / "other", tmp_path / "whole"))
    assert again.status == whole.status == "certified"
    assert result_of(tmp_path / "s") == result_of(tmp_path / "whole")

    fed(csv_text(X[:700], y[:700]), tmp_path / "third")
    run_stream(job_of(tmp_path / "third", tmp_path / "on"))
    fed(csv_text(X[700:], y[700:]), tmp_path / "third")
    on = run_stream(job_of(tmp_path / "third", tmp_path / "on", pipe="new-rows"))
    assert on.status == "certified"
    assert result_of(tmp_path / "on") == result_of(tmp_path / "whole")


def test_people_are_asked_once(tmp_path: Path) -> None:
    """An answer is on disk before the next question; after a kill none of them is asked again."""
    X, y = table(5_000)
    (tmp_path / "rows.csv").write_text(csv_text(X, None))
    job = job_of(tmp_path / "rows.csv", tmp_path / "s", label=None, classes=["no", "yes"])
    asked = list[int]()

    def ask(row: int, values: np.ndarray, features: Sequence[str], classes: list[Any]) -> str | None:
        np.testing.assert_array_equal(values, X[row])
        assert (list(features), classes) == (["f0", "f1", "f2", "f3"], ["no", "yes"])
        if len(asked) % 40 == 20 and asked[-1] != -1:
            asked.append(-1)
            raise Killed
        asked.append(row)
        return None if row % 97 == 5 else y[row]

    with pytest.raises(UsageError, match="a person has to be asked"):
        run_stream(job)
    while True:
        try:
            learner = run_stream(job, ask=ask)
        except Killed:
            continue
        break
    rows = [row for row in asked if row >= 0]
    assert learner.status == "certified"
    assert len(rows) == len(set(rows)) == learner.labels_asked + learner.unsure
    assert asked.count(-1) > 2
    assert len((tmp_path / "s" / ANSWERS).read_text().splitlines()) == len(rows)
    (tmp_path / "s" / STATE).unlink()  # the log alone is enough
    before = result_of(tmp_path / "s")
    run_stream(job)
    assert result_of(tmp_path / "s") == before
    (tmp_path / "s" / STATE).unlink()
    (tmp_path / "rows.csv").write_text(csv_text(X + 1, None))
    with pytest.raises(DataError, match="row 0 of the stream: its answer in the log is about another row"):
        run_stream(job)


def test_answers_that_are_gone_are_noticed(tmp_path: Path) -> None:
    """Whole lines that were cut off the log, or another log, which the state is not about."""
    X, y = table(2_000)
    (tmp_path / "rows.csv").write_text(csv_text(X, None))
    job = job_of(tmp_path / "rows.csv", tmp_path / "s", label=None, classes=["no", "yes"])
    run_stream(job, ask=lambda row, *_: y[row])
    log = tmp_path / "s" / ANSWERS
    whole = log.read_bytes()
    lines = whole.splitlines(keepends=True)
    for left in (lines[:-1], lines[:3], []):
        log.write_bytes(b"".join(left))
        with pytest.raises(DataError, match=f"expected the {len(lines)} lines that state.npz is about"):
            run_stream(job, ask=lambda row, *_: y[row])
    log.write_bytes(whole)
    run_stream(job)
    log.write_bytes(b"".join(lines[:3]))
    (tmp_path / "s" / STATE).unlink()  # learns from those left, and asks about the others again
    assert run_stream(job, ask=lambda row, *_: y[row]).labels_asked == len(lines)
    assert log.read_bytes() != whole  # other times


def test_a_folder_that_grows(tmp_path: Path) -> None:
    """Files are read once they stay as they are; one that changes afterwards is refused."""
    X, y = table(5_000)
    folder, job = tmp_path / "in", job_of(tmp_path / "in", tmp_path / "s", follow=True)
    folder.mkdir()

    def write() -> None:
        for number, at in enumerate(range(0, 5_000, 500)):
            (folder / f".{number}").write_text(csv_text(X[at : at + 500], y[at : at + 500]))
            (folder / f".{number}").rename(folder / f"{number}.csv")
            time.sleep(0.05)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coremargin.active.stream_rows._POLL_S", 0.02)
        assert run_stream(job).status == "certified"
    writer.join()
    read = structs.replace(job, follow=False, out=tmp_path / "t", error=0.0005)
    assert run_stream(read).status == "stopped"
    (folder / "new.csv").write_text(csv_text(X[:10], y[:10]))
    assert run_stream(read).rows_seen == 5_010
    (folder / "3.csv").write_text(csv_text(X[:10], y[:10]))
    with pytest.raises(DataError, match=r"3\.csv: was changed after its rows were seen"):
        run_stream(read)


@pytest.mark.parametrize("follow", [False, True])
def test_a_file_that_was_begun_is_read_first(tmp_path: Path, *, follow: bool) -> None:
    """After a kill within a file: files that came since may be before it by name, and it may not be gone."""
    X, y = table(6_000)
    folder, job = tmp_path / "in", job_of(tmp_path / "in", tmp_path / "s", follow=follow)
    folder.mkdir()
    (folder / "m.csv").write_text(csv_text(X[:700], y[:700]))

    def end(learner: Any) -> None:
        if learner.rows_seen == 300:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coremargin.active.stream._EVERY_S", -1.0)
        patch.setattr("coremargin.active.stream_rows._POLL_S", 0.02)
        with pytest.raises(Killed):
            run_stream(job, report=end)
        (folder / "m.csv").rename(folder / ".m")
        (folder / "a.csv").write_text(csv_text(X[700:], y[700:]))
        with pytest.raises(DataError, match=r"m\.csv: expected the file whose first rows were seen, found none"):
            run_stream(job)
        (folder / ".m").rename(folder / "m.csv")
        assert run_stream(job).status == "certified"
    (tmp_path / "whole.csv").write_text(csv_text(X[:700], y[:700]))
    (tmp_path / "whole2.csv").write_text(csv_text(X[700:], y[700:]))
    whole = tmp_path / "both"
    whole.mkdir()
    (tmp_path / "whole.csv").rename(whole / "1.csv")
    (tmp_path / "whole2.csv").rename(whole / "2.csv")
    run_stream(job_of(whole, tmp_path / "t"))
    assert result_of(tmp_path / "s") == result_of(tmp_path / "t")


def test_files_that_are_being_written_are_waited_for(tmp_path: Path) -> None:
    """Hidden and empty ones, half a Parquet file, and a CSV file that grows while others are read."""
    X, y = table(5_000)
    folder, job = tmp_path / "in", job_of(tmp_path / "in", tmp_path / "s", follow=True)
    folder.mkdir()
    (folder / ".hidden").write_text("nothing")
    (folder / "empty.csv").touch()
    pq.write_table(pa.table({f"f{k}": X[:, k] for k in range(FEATURES)} | {"answer": y}), tmp_path / "whole.parquet")
    data, text = (tmp_path / "whole.parquet").read_bytes(), csv_text(X[:50], y[:50]).encode()
    stop = threading.Event()

    def write() -> None:
        with (folder / "a.csv").open("wb", buffering=0) as csv, (folder / "b.parquet").open("wb", buffering=0) as file:
            for k in range(10):
                csv.write(text[k * len(text) // 10 : (k + 1) * len(text) // 10])
                file.write(data[k * len(data) // 10 : (k + 1) * len(data) // 10])
                (folder / f"{k}.csv").write_text(csv_text(X[:1], y[:1]))
                stop.wait(0.05)

    writer = threading.Thread(target=write, daemon=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coremargin.active.stream_rows._POLL_S", 0.5)
        threading.Timer(0.3, writer.start).start()
        assert run_stream(job).status == "certified"
    writer.join()
    (tmp_path / "file.csv").write_text(csv_text(X[:10], y[:10]))
    with pytest.raises(UsageError, match=r"file\.csv: expected a folder to follow, found none"):
        run_stream(job_of(tmp_path / "file.csv", tmp_path / "t", follow=True))


def test_several_readers_take_turns(tmp_path: Path) -> None:
    """Three pipes at a time: the same result in each run, also after kills; their columns are the same."""
    X, y = table(6_000)
    parts = [slice(start, None, 3) for start in range(3)]
    results = []
    for run in ("one", "two"):
        names = [str(tmp_path / f"{run}{number}") for number in range(3)]
        for name, part in zip(names, parts, strict=True):
            fed(csv_text(X[part], y[part]), Path(name), 999 if run == "one" else 50_000)
        assert run_stream(job_of(names, tmp_path / run)).status == "certified"
        results.append(result_of(tmp_path / run))
    assert results[0] == results[1]
    (tmp_path / "a.csv").write_text(csv_text(X[:300], y[:300]))
    (tmp_path / "b.csv").write_text(csv_text(X[:300], y[:300]).replace("f0,f1", "f1,f0"))
    both = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    with pytest.raises(DataError, match=r"b\.csv: expected the 4 columns of the rows before, in their order"):
        run_stream(job_of(both, tmp_path / "other"))


def test_a_class_that_never_comes(tmp_path: Path) -> None:
    """A trial shows that few rows are of it; rows that come later continue the stream."""
    X, y = table(4_000)
    only = [k for k, label in enumerate(y) if label == "yes"]
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text(csv_text(X[only], ["yes"] * len(only)))
    job = job_of(folder, tmp_path / "s", classes=["no", "yes"])
    with pytest.raises(LabelError, match="no"):
        run_stream(job)
    (folder / "b.csv").write_text(csv_text(X, y))
    for _ in range(10):  # the rest of the first file is another trial, or several
        with suppress(LabelError):
            if run_stream(job).status == "certified":
                return
    pytest.fail("the class that came was not learned")


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        ("f0,answer\n1,yes\nx,no\n", {}, BadRow, "'x'"),
        ("f0,answer\n1,yes\n,no\n", {}, CoremarginError, "row 1"),
        ("f0,answer\n1,yes\nnan,no\n", {}, BadRow, "row 1"),
        ("f0,answer\n1,yes\n1,2,no\n", {}, BadRow, "Expected 2 columns"),
        ("f0,answer\n1,yes\n", {"label": "other"}, UsageError, "no column named 'other'"),
        ("f0,label\n1,yes\n", {"label": None}, BadRow, "yes"),
        ("f0,label\n1,2\n", {"label": None}, UsageError, "column 'label' is called like a label"),
        ("1,2,yes\n", {"label": 2}, UsageError, "say whether it holds the names"),
        ("f0,f0\n1,2\n", {"label": None}, DataError, "different names"),
        ("", {}, DataError, "empty"),
        (f"{'f' * 200_000},answer\n1,yes\n", {}, DataError, "the first line cannot be read: field larger"),
    ],
)
def test_rows_that_cannot_be_taken(
    tmp_path: Path, text: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    """The place is named, and no result is left."""
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(error, match=message):
        run_stream(job_of(tmp_path / "rows.csv", tmp_path / "s", **options))
    assert not (tmp_path / "s" / RESULT).exists()


def test_a_pipe_that_ends_within_a_line(tmp_path: Path) -> None:
    """Half a number is a number, too."""
    X, y = table(250)
    fed(csv_text(X, y)[:-6], tmp_path / "pipe")
    with pytest.raises(BadRow, match=r"ended within a line, after row 248"):
        run_stream(job_of(tmp_path / "pipe", tmp_path / "s"))
    fed("f0,answer", tmp_path / "pipe")
    with pytest.raises(BadRow, match=r"ended within a line, before the first row"):
        run_stream(job_of(tmp_path / "pipe", tmp_path / "t"))


@pytest.mark.parametrize("wrong", [{"label": "other"}, {"delimiter": ";"}, {"epsilon": 2.0}])
def test_a_job_that_was_wrong_can_be_corrected(tmp_path: Path, rows: Path, wrong: dict[str, Any]) -> None:
    """In the same folder, as no row was seen."""
    with pytest.raises(CoremarginError):
        run_stream(job_of(rows, tmp_path / "s", **wrong))
    assert run_stream(job_of(rows, tmp_path / "s")).status == "certified"
    with pytest.raises(CoremarginError):
        run_stream(job_of(rows, tmp_path / "s", **wrong))


@pytest.mark.parametrize("left", [".stream.toml.new", "stream.toml"])
def test_a_folder_that_was_begun_by_a_killed_process(tmp_path: Path, rows: Path, left: str) -> None:
    """Nothing is in the way of the same command, wherever the kill came."""
    job = job_of(rows, tmp_path / "s")
    run_stream(structs.replace(job, out=tmp_path / "whole"))
    (tmp_path / "s").mkdir()
    if left == "stream.toml":
        shutil.copy(tmp_path / "whole" / left, tmp_path / "s" / left)
    else:
        aside_of(tmp_path / "s" / "stream.toml").write_text("job = ")
    assert run_stream(job).status == "certified"
    assert result_of(tmp_path / "s") == result_of(tmp_path / "whole")


def test_a_pipe_goes_on_after_answers_of_a_first_batch(tmp_path: Path) -> None:
    """They are in the log before any state is: other rows do not get their numbers."""
    X, y = table(5_000)
    job, asked = job_of(tmp_path / "pipe", tmp_path / "s", label=None, classes=["no", "yes"]), list[int]()

    def ask(row: int, *_: Any) -> str:
        if len(asked) == 5:
            asked.append(-1)
            raise Killed
        asked.append(row)
        return y[row]

    fed(csv_text(X, None), tmp_path / "pipe")
    with pytest.raises(Killed):
        run_stream(job, ask=ask)
    first = 1 + max(asked)
    assert not (tmp_path / "s" / STATE).exists()
    with pytest.raises(UsageError, match=f"{first} rows of a pipe were seen before; say whether"):
        run_stream(job, ask=ask)
    (tmp_path / "pipe").unlink()  # the first writer may still be there
    fed("f0,f1,f2,f3\n", tmp_path / "pipe")
    with pytest.raises(UsageError, match="expected answers of two classes"):
        run_stream(structs.replace(job, pipe="new-rows"), ask=ask)
    fed(csv_text(X[first:], None), tmp_path / "pipe")
    assert run_stream(structs.replace(job, pipe="new-rows"), ask=ask).status == "certified"
    assert len(asked) == len(set(asked))


def test_a_folder_of_another_job(tmp_path: Path, rows: Path) -> None:
    """Other parameters are named, and other folders are refused."""
    run_stream(job_of(rows, tmp_path / "s"))
    with pytest.raises(UsageError, match=r"was begun with error 0\.02, found 0\.05"):
        run_stream(job_of(rows, tmp_path / "s", error=0.05))
    (tmp_path / "u").mkdir()
    (tmp_path / "u" / "stream.toml").write_text("mine = 1\n")
    with pytest.raises(SpecError):
        run_stream(job_of(rows, tmp_path / "u"))
    assert (tmp_path / "u" / "stream.toml").read_text() == "mine = 1\n"
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "mine").touch()
    with pytest.raises(UsageError, match="expected the folder of a stream or nothing"):
        run_stream(job_of(rows, tmp_path / "t"))
    for options in (
        {"follow": True, "rows": ["a", "b"]},
        {"rows": ["a", "a"]},
        {"delimiter": ";;"},
        {"delimiter": "\n"},
        {"delimiter": "§"},
        {"rows": []},
        {"rows": ["s3://b/a"]},
    ):
        (tmp_path / "job.toml").write_text(_toml({"rows": ["a"], **options}))
        with pytest.raises(SpecError):
            load_stream_job(tmp_path / "job.toml")


def _toml(options: dict[str, Any]) -> str:
    import tomli_w

    return tomli_w.dumps({"job": "stream", "out": "s", **options})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_and_the_job_file(here: Path, rows: Path, run_cli: Cli) -> None:
    """Both print the claim; the exit code says whether it is proven."""
    words = ("active", "stream", "rows.csv", "--label", "answer", "--batch", "100")
    found = run_cli(*words, "--out", "s", "--error", "0.02")
    assert found.stdout.startswith("certified: ")
    assert "wrote " in found.stdout
    (here / "job.toml").write_text(
        _toml({"rows": "rows.csv", "label": "answer", "batch": 100, "error": 0.02, "out": "t"})
    )
    assert run_cli("run", "job.toml").stdout.splitlines()[0] == found.stdout.splitlines()[0]
    assert "a valid job" in run_cli("run", "job.toml", "--check").stdout
    assert result_of(here / "s") == result_of(here / "t")
    short = run_cli(*words, "--out", "u", "--error", "0.0001", "--json", exit_code=4)
    assert '"status": "stopped"' in short.stdout
    assert "cannot be combined" in run_cli(*words, "--out", "v", "--from-start", "--new-rows", exit_code=2).stderr


def test_a_job_file_goes_on_with_a_pipe(here: Path, run_cli: Cli) -> None:
    """As it says, and not without."""
    X, y = table(5_000)
    text = {"rows": "pipe", "label": "answer", "batch": 100, "error": 0.02}
    fed(csv_text(X[:700], y[:700]), here / "pipe")
    (here / "job.toml").write_text(_toml(text))
    run_cli("run", "job.toml", exit_code=4)
    assert "say whether it begins with them again" in run_cli("run", "job.toml", exit_code=2).stderr
    (here / "job.toml").write_text(_toml(text | {"pipe": "new-rows"}))
    fed(csv_text(X[700:], y[700:]), here / "pipe")
    assert run_cli("run", "job.toml").stdout.startswith("certified: ")
    assert "pipe =" not in (here / "s" / "stream.toml").read_text()


def test_a_position_is_kept_as_it_is() -> None:
    """Through JSON."""
    position = Position((SeenFile("a", 1, 2),), 3, "ab", ended=True, current="b")
    assert Position.from_dict(position.to_dict()) == position
    assert replace(position, batches=4) != position
