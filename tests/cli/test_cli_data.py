"""The commands about data, as a person or a script meets them."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import Result

from coremargin.cli import common, main
from coremargin.data.store import Store
from coremargin.errors import CoremarginError

Run = Callable[..., Result]


@pytest.fixture
def flowers(tmp_path: Path) -> Path:
    """A CSV of 30 rows in three classes."""
    path = tmp_path / "flowers.csv"
    lines = [f"{k}.5,{k % 4},{['setosa', 'virginica', 'versicolor'][k % 3]}" for k in range(30)]
    path.write_text("\n".join(["length,width,kind", *lines]) + "\n")
    return path


@pytest.fixture
def store(run_cli: Run, tmp_path: Path) -> Path:
    """A synthetic store of 3,000 rows in several chunks."""
    path = tmp_path / "made.zarr"
    run_cli("synth", path, "--rows", "3e3", "--features", "8", "--chunk-size", "16 KiB", "--quiet")
    return path


def test_ingest_says_what_it_wrote(run_cli: Run, flowers: Path, tmp_path: Path) -> None:
    """`ingest` reports rows, features, bytes, what was left out, and the classes with their counts."""
    result = run_cli("ingest", flowers, tmp_path / "f.zarr", "--only", "setosa, versicolor")
    first, *rest = result.stdout.replace(f"{tmp_path}/", "").splitlines()
    assert first.startswith("wrote 20 rows of 2 features (float32, 240 B) to f.zarr in ")
    assert rest == [
        "excluded 10 rows with other labels",
        "labels from column 'kind':",
        "  label         rows  share",
        "  'setosa'        10  50.0%",
        "  'versicolor'    10  50.0%",
    ]


def test_ingest_takes_several_files_and_appends(run_cli: Run, flowers: Path, tmp_path: Path) -> None:
    """Several sources make one store; --append adds to it and says how much it holds; --overwrite starts anew."""
    path = tmp_path / "f.zarr"
    assert "wrote 60 rows" in run_cli("ingest", flowers, flowers, path).stdout
    assert "the store has 90 rows" in run_cli("ingest", flowers, path, "--append").stdout
    assert "wrote 30 rows" in run_cli("ingest", flowers, path, "--overwrite").stdout
    assert Store.open(path).rows == 30


def test_ingest_passes_its_options_on(run_cli: Run, flowers: Path, tmp_path: Path) -> None:
    """Every option of `ingest` reaches the store."""
    text = flowers.read_text().replace(",", ";").replace("length;width;kind\n", "")
    (tmp_path / "plain.txt").write_text(text)
    (tmp_path / "y.txt").write_text("1\n2\n" * 15)
    options = ["--format", "csv", "--delimiter", ";", "--no-header", "--drop", "2,0", "--labels", tmp_path / "y.txt"]
    shape = ["--dtype", "float64", "--compression", "zstd", "--chunk-size", "64 KiB"]
    result = run_cli("ingest", tmp_path / "plain.txt", tmp_path / "f.zarr", *options, *shape, "--json")
    report = json.loads(result.stdout)
    assert (report["rows"], report["features"], report["dtype"], report["dry_run"]) == (30, 1, "float64", False)
    assert report["classes"] == [{"label": 1, "rows": 15}, {"label": 2, "rows": 15}]
    stored = Store.open(tmp_path / "f.zarr")
    assert (stored.compression, stored.dtype, stored.features) == ("zstd", np.float64, 1)
    (tmp_path / "a.svm").write_text("1 0:2 3:1\n-1 1:1\n")
    run_cli("ingest", tmp_path / "a.svm", tmp_path / "a.zarr", "--features", "1_0", "--zero-based")
    assert Store.open(tmp_path / "a.zarr").features == 10
    run_cli("ingest", flowers, tmp_path / "u.zarr", "--unlabelled", "--drop", "kind")
    assert Store.open(tmp_path / "u.zarr").classes == ()


def test_a_dry_run_promises_in_the_conditional(run_cli: Run, flowers: Path, tmp_path: Path) -> None:
    """`--dry-run` says what would be written, and writes nothing."""
    result = run_cli("ingest", flowers, tmp_path / "f.zarr", "--label", "kind", "--dry-run")
    assert result.stdout.startswith("would write 30 rows of 2 features")
    assert not (tmp_path / "f.zarr").exists()


def test_info_shows_everything_about_a_store(run_cli: Run, store: Path) -> None:
    """`info` shows rows, chunks, bytes, digest, values and classes; --json the same as one object."""
    lines = run_cli("info", store).stdout.splitlines()
    opened = Store.open(store)
    known = dict(line.split(maxsplit=1) for line in lines[: lines.index("")])
    assert known["store"] == str(store)
    assert known["rows"] == "3,000 of 8 features, float32"
    assert known["chunks"] == f"{opened.chunks} of up to 512 rows"
    assert known["digest"] == opened.digest
    assert known["bytes"].startswith("105.5 KiB as scanned, ")
    assert known["constant"] == "0 of 8 features"
    found = json.loads(run_cli("info", store, "--json").stdout)
    assert (found["rows"], found["features"], found["chunks"]) == (3_000, 8, opened.chunks)
    assert sum(entry["rows"] for entry in found["classes"]) == 3_000
    X = opened.rows_at(np.arange(3_000))[0]
    assert found["statistics"]["low"] == X.min()
    assert found["statistics"]["deviation_high"] == pytest.approx(X.std(axis=0).max())
    assert found["statistics"]["largest_norm"] == pytest.approx(np.linalg.norm(X, axis=1).max())
    assert found["about"]["synth"]["margin"] == 0.5


def test_info_shows_many_classes_shortly(run_cli: Run, tmp_path: Path) -> None:
    """Beyond twenty classes `info` sums up the rest."""
    (tmp_path / "many.csv").write_text("".join(f"{k},1,class{k % 25}\n" for k in range(100)))
    run_cli("ingest", tmp_path / "many.csv", tmp_path / "many.zarr")
    assert run_cli("info", tmp_path / "many.zarr").stdout.splitlines()[-1].split() == ["5", "more", "20", "20.0%"]


def test_check_passes_a_whole_store(run_cli: Run, store: Path) -> None:
    """`check` says that a store is whole, and how much it read."""
    result = run_cli("check", store)
    assert result.stdout.startswith(f"{store}: undamaged, 3,000 rows in 6 chunks, ")
    found = json.loads(run_cli("check", store, "--json").stdout)
    assert (found["whole"], found["damaged"]) == (True, [])


def test_check_names_all_damaged_chunks(run_cli: Run, store: Path) -> None:
    """`check` names every chunk that is missing, cut short or altered, and exits with 3."""
    (store / "X" / "c.1.0").unlink()
    cut = store / "X" / "c.2.0"
    cut.write_bytes(cut.read_bytes()[:-1])
    flipped = bytearray((store / "y" / "c.4").read_bytes())
    flipped[10] ^= 1
    (store / "y" / "c.4").write_bytes(flipped)
    result = run_cli("check", store, exit_code=3)
    assert [f"chunk {chunk}" in result.stdout for chunk in range(6)] == [False, True, True, False, True, False]
    assert f"error: {store}: damage in 3 of 6 chunks (1, 2, 4): " in result.stderr
    found = json.loads(run_cli("check", store, "--json", exit_code=3).stdout)
    assert [damage["chunk"] for damage in found["damaged"]] == [1, 2, 4]


def test_synth_makes_stores_by_rows_or_size(run_cli: Run, tmp_path: Path) -> None:
    """`synth` counts in rows or in bytes, and a seed gives the same rows."""
    by_rows = run_cli("synth", tmp_path / "a.zarr", "--rows", "2_500", "--features", "24", "--noise", "0.1")
    assert by_rows.stdout.startswith("wrote 2,500 rows of 24 features (float32, 244.1 KiB)")
    run_cli("synth", tmp_path / "b.zarr", "--size", "250 kB", "--features", "24", "--noise", "0.1", "--workers", "1")
    assert Store.open(tmp_path / "a.zarr").digest == Store.open(tmp_path / "b.zarr").digest
    run_cli("synth", tmp_path / "b.zarr", "--rows", "2500", "--features", "24", "--seed", "1", "--overwrite")
    assert Store.open(tmp_path / "a.zarr").digest != Store.open(tmp_path / "b.zarr").digest


WRONG: dict[str, tuple[list[str], int, str]] = {
    "no such command": (
        ["verfy"],
        2,
        "error: No such command 'verfy'. Did you mean 'verify'?\n  see `coremargin --help`",
    ),
    "no such option": (["info", "--rows", "x"], 2, "error: No such option '--rows'."),
    "a number that is none": (
        ["synth", "x.zarr", "--rows", "many"],
        2,
        "error: Invalid value for '--rows': 'many' is not a whole number: write 1000000, 1_000_000 or 1e6",
    ),
    "a fraction of a row": (["synth", "x.zarr", "--rows", "1.5"], 2, "'1.5' is not a whole number"),
    "a size that is none": (["synth", "x.zarr", "--size", "30 Gb/s"], 2, "'--size': not a size: '30 Gb/s'"),
    "rows and size": (["synth", "x.zarr", "--rows", "1", "--size", "1 kB"], 2, "either --rows or --size"),
    "neither rows nor size": (["synth", "x.zarr"], 2, "either --rows or --size"),
    "a margin out of range": (
        ["synth", "x.zarr", "--rows", "1", "--margin", "-1"],
        2,
        "error: margin: expected 0.0 to",
    ),
    "no store": (["info", "nowhere.zarr"], 3, "nowhere.zarr: expected a store, found nothing there"),
    "no source": (["ingest", "nowhere.csv", "x.zarr"], 2, "error: nowhere.csv: expected a readable file: No such file"),
}


@pytest.mark.parametrize(("words", "code", "message"), WRONG.values(), ids=WRONG)
def test_errors_are_one_line_and_an_exit_code(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, message: str
) -> None:
    """What goes wrong is said on stderr after `error:`, without a traceback, with the exit code of its kind."""
    monkeypatch.chdir(tmp_path)
    result = run_cli(*words, exit_code=code)
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("words", [[], ["ingest"], ["info"], ["check"], ["synth"]], ids=" ".join)
def test_a_command_without_words_shows_its_help(run_cli: Run, words: list[str]) -> None:
    """Called without arguments, every command shows its help instead of a complaint."""
    result = run_cli(*words, exit_code=2)
    assert result.stderr.startswith("Usage: coremargin")
    assert "Options:" in result.stderr


@pytest.mark.parametrize("name", ["ingest", "info", "check", "synth"])
def test_help_fits_a_narrow_terminal(run_cli: Run, name: str) -> None:
    """The help of every command fits into 80 columns, wraps no example and shows one."""
    text = run_cli(name, "--help", env={"COLUMNS": "80"}).stdout
    assert max(len(line) for line in text.splitlines()) <= 80
    assert f"  coremargin {name} " in text


def test_the_version_is_shown(run_cli: Run) -> None:
    """`--version` shows name and version."""
    import coremargin

    assert run_cli("--version").stdout == f"coremargin {coremargin.__version__}\n"


def command(words: list[Any], **options: Any) -> subprocess.Popen[str]:
    """The command line in a process of its own."""
    line = [sys.executable, "-m", "coremargin", *map(str, words)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_help_is_there_at_once() -> None:
    """Help and version load nothing large: no NumPy, no Zarr, no Dask, only what reads a command line and job files."""
    ask = "import sys; from coremargin.cli import main\ntry: main(sys.argv[1:])\n"
    tell = "finally: print(*sys.modules, file=sys.stderr)"
    for words in (["--help"], ["--version"], ["ingest", "--help"], ["train", "--help"]):
        line = [sys.executable, "-c", ask + tell, *words]
        done = subprocess.run(line, check=True, capture_output=True, text=True, timeout=120)
        loaded = {name.split(".")[0] for name in done.stderr.split()}
        large = loaded & {"numpy", "scipy", "sklearn", "zarr", "dask", "distributed", "pyarrow", "rich", "jinja2"}
        assert (words, large) == (words, set())
        assert done.stdout


def test_an_interrupt_ends_with_130_and_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C ends a command with exit code 130 and one line; a store that was being made is gone."""
    with command(["synth", tmp_path / "big.zarr", "--size", "20 GB"]) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".big.zarr.building/X/c.*")) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "error: interrupted"
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.specimens(1)
@pytest.mark.parametrize(("words", "code"), [("train {} --out {}.model", 0), ("info {}.missing", 3)])
def test_nobody_reads_stderr(store: Path, words: str, code: int) -> None:
    """Without a reader of progress and errors a command does its work, and ends with its own code."""
    reader, writer = os.pipe()
    os.close(reader)
    line = [sys.executable, "-m", "coremargin", *words.format(store, store).split()]
    try:
        done = subprocess.run(line, stdout=subprocess.PIPE, stderr=writer, check=False, timeout=60)
    finally:
        os.close(writer)
    assert (done.returncode, done.stdout != b"") == (code, code == 0)


def test_a_reader_that_goes_away_is_no_error(store: Path) -> None:
    """When nobody reads its output any more, a command ends without a word."""
    with command(["info", store, "--json"]) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == common.BROKEN_PIPE


@pytest.mark.slow
def test_progress_is_a_bar_on_a_terminal_only(tmp_path: Path) -> None:
    """On a terminal there is a bar, without one there are no control codes, with --quiet there is nothing."""
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "coremargin", "synth", tmp_path / "a.zarr", "--size", "40 MB"]
    done = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=theirs, check=True, timeout=60, env=os.environ | {"TERM": "xterm"}
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65_536):
            shown += part
    except OSError:  # how Linux says that the other end of a terminal is closed
        pass
    os.close(ours)
    assert b"writing" in shown
    assert b"\x1b[" in shown
    assert done.stdout.startswith(b"wrote ")
    for options in ([], ["--quiet"]):
        with command(["check", tmp_path / "a.zarr", *options]) as process:
            assert "\x1b" not in process.communicate(timeout=60)[1]


def test_plain_progress_is_sparse(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal a line of progress appears every five seconds at most, with share, rate and time left."""
    now = [0.0]
    monkeypatch.setattr("coremargin.cli.common.time.monotonic", lambda: now[0])
    with common.progress(quiet=False) as advance:
        assert advance is not None
        for second in range(12):
            now[0] = float(second)
            advance("writing", second * 2**20, 20 * 2**20, f"{second} rows")
    assert capsys.readouterr().err.splitlines() == [
        "writing:  25% 5.0 MiB, 5 rows, 1.0 MiB/s, 15 s left",
        "writing:  50% 10.0 MiB, 10 rows, 1.0 MiB/s, 10 s left",
    ]
    with common.progress(quiet=True) as advance:
        assert advance is None


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that nobody expected is not dressed up as an error of the user's."""

    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("coremargin.data.store.Store.open", fail)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        main(["info", "x.zarr"])


def test_notes_of_an_error_are_shown(monkeypatch: pytest.MonkeyPatch, run_cli: Run) -> None:
    """What was added to an error on its way out is printed below it."""

    def fail(*_: Any, **__: Any) -> None:
        error = CoremarginError("it broke")
        error.add_note("while reading chunk 7")
        raise error

    monkeypatch.setattr("coremargin.data.store.Store.open", fail)
    assert run_cli("info", "x.zarr", exit_code=5).stderr == "error: it broke\nwhile reading chunk 7\n"


def test_errors_are_red_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The word `error:` is bold and red where colours are shown, plain elsewhere."""
    common.print_error("it broke")
    assert capsys.readouterr().err == "error: it broke\n"
    monkeypatch.setattr("click._compat.should_strip_ansi", lambda *_: False)
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)
    common.print_error("it broke")
    assert capsys.readouterr().err == f"{click.style('error:', fg='red', bold=True)} it broke\n"
