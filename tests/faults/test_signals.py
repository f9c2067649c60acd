"""Commands that are signalled, at any moment: exit code 130, one line, nothing half-written, nobody left behind."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

from coremargin.data.check import check_store
from coremargin.data.synth import Recipe, synth
from coremargin.engine.executors import InProcess
from coremargin.learn.train import train_job
from coremargin.problems.registry import new_job
from signal_kit import Running

if TYPE_CHECKING:
    from coremargin.data.store import Store

pytestmark = pytest.mark.faults

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HERE = Path(__file__).parent
KIT = (sys.executable, "-m", "signal_kit")  # as a module: a script that ends so keeps its exit code

#: Each command with its last word, which is an output, as it would be typed.
COMMANDS: dict[str, str] = {
    "ingest": "ingest rows.csv out.zarr --label 0 --chunk-size 64KiB",
    "synth": "synth out.zarr --rows 1e7 --features 10 --chunk-size 64KiB",
    "check": "check rows.zarr",
    "info": "info rows.zarr",
    "train": "train rows.zarr --out out.model --cluster threads",
    "train, soft": "train rows.zarr --out out.model --cluster threads --loss hinge",
    "train, outliers": "train rows.zarr --out out.model --cluster threads --outliers 2",
    "train, embedded": "train rows.zarr --out out.model --cluster embedded",
    "run": "run job.toml",
    "plan": "plan job.toml",
    "verify": "verify rows.model rows.zarr",
    "predict": "predict rows.model rows.zarr out.zarr",
    "predict, Parquet": "predict rows.model rows.zarr out.parquet",
    "evaluate": "evaluate rows.model rows.zarr",
    "show": "show rows.model",
    "outliers": "outliers few.model",
    "export": "export rows.model out.onnx",
}


def quickly(one: signal.Signals) -> list[Any]:
    """All signals, of which all but one have time."""
    return [one, *(pytest.param(number, marks=pytest.mark.slow) for number in NUMBERS if number != one)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, its model, a job and a file of rows."""
    folder = tmp_path_factory.mktemp("signals")
    store: Store = synth(folder / "rows.zarr", Recipe(120_000, 20, margin=0.1, seed=2, chunk_bytes=1 << 17), workers=2)
    train_job(new_job(store=store.path, out=folder / "rows.model"), store, InProcess(2))
    few = synth(folder / "few.zarr", Recipe(300, 4, noise=0.02, seed=2))
    train_job(new_job(store=few.path, out=folder / "few.model", outliers=2), few, InProcess(2))
    (folder / "job.toml").write_text('job = "train"\nstore = "rows.zarr"\nout = "out.model"\n')
    rng = np.random.default_rng(3)
    rows = np.c_[rng.integers(0, 2, 30_000), rng.normal(size=(30_000, 20)).round(4)]
    np.savetxt(folder / "rows.csv", rows, delimiter=",", fmt="%g")
    return folder


@pytest.fixture
def inputs(place: Path, tmp_path: Path) -> Path:
    """A folder with names of these, and nothing else."""
    for path in place.iterdir():
        (tmp_path / path.name).symlink_to(path)
    return tmp_path


def outputs(folder: Path) -> set[str]:
    """What a command has left there; locks are freed by the kernel, whoever holds them."""
    return {path.name for path in folder.iterdir() if not path.is_symlink() and not path.name.endswith(".lock")}


def is_whole(path: Path) -> bool:
    """Whether an output is all there."""
    if path.name == "out.model":
        return (path / "model.json").is_file() and (path / "report.html").is_file()
    if path.name == "out.zarr" and not (path / "y").exists():
        group = zarr.open_group(path, mode="r")
        return len(np.asarray(group["decision"][:])) == 120_000  # type: ignore[index,arg-type]
    return check_store(path).whole if path.suffix == ".zarr" else path.stat().st_size > 0


def check_end(running: Running, folder: Path, *, signalled: bool) -> bool:
    """Whether the signal ended it; what must hold in any case does."""
    code, _, errors = running.end()
    left = outputs(folder)
    assert left <= {"out.zarr", "out.model", "out.parquet", "out.onnx", ".out.model.checkpoint"}, left
    assert all(is_whole(folder / name) for name in left if not name.startswith("."))
    assert "Traceback" not in errors, errors
    assert "ignored" not in errors, errors
    if code != 130:  # it was over before
        assert code == 0, errors
        assert "error:" not in errors
        return False
    assert signalled, errors
    assert errors.count("error:") == 1, errors
    assert errors.splitlines()[-1].startswith("error: "), errors
    assert "interrupted" in errors.splitlines()[-1], errors
    return True


@pytest.mark.specimens(7)
@pytest.mark.parametrize("number", quickly(signal.SIGTERM))
@pytest.mark.parametrize("command", COMMANDS)
def test_while_it_is_loaded(inputs: Path, command: str, number: signal.Signals) -> None:
    """A signal while a command is imported ends it at once, with nothing done."""
    running = Running(COMMANDS[command].split(), cwd=inputs)
    assert running.until(running.hears)
    running.send(number)
    assert check_end(running, inputs, signalled=True)
    assert outputs(inputs) == set()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", COMMANDS)
def test_at_any_moment(inputs: Path, command: str) -> None:
    """A signal at one of ten moments of a command ends it, or comes too late; each kind, to one process and to all
    of them, once and twice.
    """
    began = time.monotonic()
    running = Running(COMMANDS[command].replace("1e7", "1e5").split(), cwd=inputs)
    assert not check_end(running, inputs, signalled=False)
    lasts = time.monotonic() - began
    landed = 0
    for step in range(10):
        for name in outputs(inputs):
            (inputs / name).rename(inputs.parent / f"{inputs.name}.{step}.{name}")
        running = Running(COMMANDS[command].split(), cwd=inputs)
        assert running.until(running.hears)
        time.sleep(lasts * step / 10)
        for _ in range(1 + step % 2):
            running.send(NUMBERS[step % 3], group=step % 4 < 2)
            time.sleep(0.02)
        landed += check_end(running, inputs, signalled=True)
    assert landed >= 1


MIDDLES = {
    "ingest": ".out.zarr.building/X/c.1.0",
    "synth": ".out.zarr.building/X/c.1.0",
    "train": ".out.model.lock",
    "train, embedded": ".out.model.lock",
    "predict": ".out.zarr.aside",
    "predict, Parquet": ".out.parquet.aside",
}


@pytest.mark.specimens(1)
@pytest.mark.parametrize("number", quickly(signal.SIGINT))
@pytest.mark.parametrize("command", MIDDLES)
def test_in_the_middle(inputs: Path, command: str, number: signal.Signals) -> None:
    """A signal while an output is being written ends the command, and what was written goes."""
    (whole,) = (word for word in COMMANDS[command].split() if word.startswith("out."))
    for _ in range(5):  # it may be through before the signal is there
        running = Running(COMMANDS[command].split(), cwd=inputs)
        assert running.until((inputs / MIDDLES[command]).exists)
        running.send(number, group=command == "train, embedded")
        signalled = check_end(running, inputs, signalled=True)
        assert outputs(inputs) <= {".out.model.checkpoint", whole}
        if signalled and whole not in outputs(inputs):
            break
        for name in outputs(inputs):
            (inputs / name).rename(inputs.parent / f"{inputs.name}.{name}")
    else:
        pytest.fail("no signal came before the end")


@pytest.mark.slow
def test_an_old_output_stays(inputs: Path) -> None:
    """What a signalled command was about to replace is as it was."""
    synth(inputs / "out.zarr", Recipe(100, 3))
    before = {path: path.read_bytes() for path in (inputs / "out.zarr").rglob("*") if path.is_file()}
    running = Running([*COMMANDS["synth"].split(), "--overwrite"], cwd=inputs)
    assert running.until((inputs / MIDDLES["synth"]).exists)
    running.send(signal.SIGTERM)
    assert check_end(running, inputs, signalled=True)
    assert {path: path.read_bytes() for path in (inputs / "out.zarr").rglob("*") if path.is_file()} == before


@pytest.mark.specimens(1)
@pytest.mark.parametrize("command", ["info", "synth"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_what_is_ignored_stays_ignored(inputs: Path, command: str, number: signal.Signals) -> None:
    """A command that was started with a signal ignored, by nohup or in a shell's background, is not ended by it."""

    def ignore() -> None:
        signal.signal(number, signal.SIG_IGN)

    words = COMMANDS[command].replace("1e7", "1e5").split()
    running = Running(words, cwd=inputs, preexec_fn=ignore)
    assert running.until(running.hears)
    running.send(number)
    if command == "synth":
        assert running.until((inputs / MIDDLES["synth"]).exists)
        running.send(number)
    assert not check_end(running, inputs, signalled=True)


@pytest.mark.slow
def test_the_answer_so_far(tmp_path: Path) -> None:
    """A signal ends the search for outliers, which would take an hour, with the best answer so far, saved and whole,
    and exit code 130.
    """
    store = synth(tmp_path / "rows.zarr", Recipe(4_000, 12, margin=0.3, seed=1))
    running = Running(["train", store.path, "--out", tmp_path / "m", "--outliers", "40", "--cluster", "threads"])
    assert running.popen.stderr is not None
    for line in running.popen.stderr:
        if line.startswith("one read: "):
            break
    running.send(signal.SIGINT)
    code, out, errors = running.end()
    assert code == 130
    assert errors.endswith("error: interrupted; the work so far is saved\n")
    assert "m/report.html" in out
    assert (tmp_path / "m" / "model.json").is_file()


# commands that do not end by themselves


def stubborn(how: str, grace_s: float, *words: Any) -> Running:
    """One of them, begun."""
    running = Running([how, grace_s, *words], command=KIT)
    assert running.popen.stdout is not None
    assert running.popen.stdout.readline() == "begun\n"
    return running


@pytest.mark.specimens(1)
@pytest.mark.parametrize("number", NUMBERS)
def test_a_command_that_no_signal_wakes(number: signal.Signals) -> None:
    """A command whose main thread sits in C is ended from beside it, after its time of grace."""
    running = stubborn("deaf", 0.5)
    running.send(number)
    assert running.end() == (130, "", "error: interrupted\n")


def test_a_second_signal_ends_at_once() -> None:
    """A second signal a while later ends a command that would have had an hour of grace."""
    running = stubborn("deaf", 3600)
    running.send(signal.SIGTERM)
    time.sleep(1.2)
    running.send(signal.SIGTERM)
    assert running.end() == (130, "", "error: interrupted\n")
    running = stubborn("clearing_up", 3600, 3600)
    running.send(signal.SIGINT)
    time.sleep(1.2)
    running.send(signal.SIGINT)
    assert running.end() == (130, "", "error: interrupted\n")


def test_signals_at_the_same_time_are_one() -> None:
    """Signals that come together, as from a shell and its terminal, do not disturb what is put in order."""
    running = stubborn("clearing_up", 3600, 0.5)
    for number in (*NUMBERS, signal.SIGINT):
        running.send(number)
        time.sleep(0.05)
    assert running.end() == (130, "in order\n", "error: interrupted\n")


@pytest.mark.slow
def test_putting_in_order_has_its_time() -> None:
    """What takes longer than its time of grace to put in order is ended in the middle."""
    running = stubborn("clearing_up", 0.5, 3600)
    running.send(signal.SIGTERM)
    assert running.end() == (130, "", "error: interrupted\n")


@pytest.mark.slow
def test_a_lost_exception_comes_again() -> None:
    """An interrupt that is lost in a finaliser, without a word, comes again until it is heard."""
    running = stubborn("swallowing", 3600)
    running.send(signal.SIGINT)
    assert running.end() == (130, "", "error: interrupted\n")


@pytest.mark.specimens(1)
@pytest.mark.parametrize("how", ["transformed", "through_exec", "half_made"])
def test_what_becomes_of_an_exception(how: str) -> None:
    """Whatever a library or Python makes of the interrupt, the command ends as interrupted."""
    running = stubborn(how, 3600)
    running.send(signal.SIGTERM)
    assert running.end() == (130, "", "error: interrupted\n")


@pytest.mark.slow
def test_a_thread_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that has ended ends its process, with its own exit code, though a thread is not done."""
    assert stubborn("left_over", 3600).end() == (0, "", "")


@pytest.mark.slow
@pytest.mark.parametrize("number", quickly(signal.SIGTERM))
def test_a_start_that_never_ends(tmp_path: Path, place: Path, number: signal.Signals) -> None:
    """A signal while worker processes are waited for that never come ends the command, and no process is left."""
    words = ["train", place / "rows.zarr", "--out", tmp_path / "m", "--cluster", "embedded"]
    running = Running(words, command=(sys.executable, str(HERE / "start_kit.py"), "embedded", "never", "0"))
    assert running.popen.stdout is not None
    assert running.popen.stdout.readline() == "starting\n"
    running.send(number, group=True)
    code, _, errors = running.end()
    assert (code, errors) == (130, "error: interrupted\n")
    assert outputs(tmp_path) == set()
