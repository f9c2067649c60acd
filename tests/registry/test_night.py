"""The nightly job: one step that may be repeated, killed and rolled back, and says what it did."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import coremargin
from coremargin.data.amend import remove_rows
from coremargin.data.compact import compact
from coremargin.data.store import Store
from coremargin.errors import GateRefused, Interrupted, Running, SpecError, StoreError, UsageError
from coremargin.learn import train
from coremargin.registry import run_lock as lock_module
from coremargin.registry.aliases import promote, rollback
from coremargin.registry.night import STEPS, run_nightly_job
from coremargin.registry.nightly import Gates, IngestStep, NightlyJob, PredictStep, load_nightly_job
from coremargin.registry.registry import Registry, RegistryWriter
from coremargin.registry.run_lock import run_lock
from night_kit import JOB, expected, job_in, put, taken
from registry_kit import check_whole

if TYPE_CHECKING:
    from click.testing import Result

    from coremargin.registry.night import StepResult

    Run = Callable[..., Result]


def changed(done: dict[str, StepResult]) -> list[str]:
    """The steps that changed anything."""
    return [name for name, result in done.items() if result.changed]


@pytest.fixture
def night(tmp_path: Path) -> Path:
    """A folder after the first run."""
    job = job_in(tmp_path)
    put(tmp_path, "day1.csv", 60, 1)
    run_nightly_job(job)
    return tmp_path


def test_runs_one_after_the_other(tmp_path: Path) -> None:
    """Nothing, rows, nothing, more rows: each step does what is new, and the log has a line for each run with news."""
    job = job_in(tmp_path)
    assert changed(run_nightly_job(job)) == []
    put(tmp_path, "day1.csv", 60, 1)
    assert changed(run_nightly_job(job)) == list(STEPS)
    assert changed(run_nightly_job(job)) == []
    labels = (tmp_path / "labels.csv").read_text()
    assert labels.count("\n") == 11
    put(tmp_path, "day2.csv", 40, 2)
    done = run_nightly_job(job)
    assert changed(done) == list(STEPS)
    assert done["promote"].text == "version 2 is the champion, version 1 before"
    registry = Registry(tmp_path / "models")
    check_whole(registry)
    assert (registry.record(2).parent, registry.record(2).rows) == (1, 100)
    assert coremargin.verify(f"{registry.path}@champion", tmp_path / "rows.zarr").ok
    runs = [line.run for line in registry.state().lines if line.action == "run"]
    assert [(one.rows, one.files, one.exit_code) for one in runs if not isinstance(one, type(...))] == [
        (60, 1, 0),
        (40, 1, 0),
    ]
    put(tmp_path, "new.csv", 12, 3, inbox=False)
    assert changed(run_nightly_job(job)) == ["predict"]
    (tmp_path / "labels.csv").unlink()
    assert changed(run_nightly_job(job)) == ["predict"]


def test_a_candidate_that_is_refused(night: Path, run_cli: Run) -> None:
    """The champion stays and labels; the exit code is 10 once, and of the step alone as often as it is asked."""
    put(night, "day2.csv", 200, 2, share=0.05)
    job = night / "nightly.toml"
    done = run_cli("run", job, exit_code=10)
    assert "class 'yes' has" in done.stderr
    assert "version 1 stays the champion" in done.output
    assert "nothing new: nothing was done" in run_cli("run", job).output
    assert "version 2 was refused" in run_cli("run", job, "--step", "gates", exit_code=10).stderr
    registry = Registry(night / "models")
    assert registry.state().numbers == (1, 2)
    assert registry.state().aliases["champion"].version == 1
    put(night, "day3.csv", 300, 3, share=0.9)
    found = json.loads(run_cli("run", job, "--json").output)
    assert (found["exit_code"], found["steps"]["promote"]) == (0, "version 3 is the champion, version 1 before")


def test_what_a_person_rolled_back_stays_so(night: Path) -> None:
    """The next run does not promote it again; new rows make a version that may be."""
    put(night, "day2.csv", 40, 2)
    job = job_in(night)
    run_nightly_job(job)
    registry = Registry(night / "models")
    rollback(registry)
    assert changed(run_nightly_job(job)) == ["predict"]
    assert registry.state().aliases["champion"].version == 1
    put(night, "day3.csv", 40, 3)
    assert run_nightly_job(job)["promote"].text == "version 3 is the champion, version 1 before"


def test_steps_one_by_one(tmp_path: Path, run_cli: Run) -> None:
    """Each alone does its part, with its exit code; together they come to what the whole job comes to."""
    job_in(tmp_path)
    put(tmp_path, "day1.csv", 60, 1)
    for name in STEPS:
        run_cli("run", tmp_path / "nightly.toml", "--step", name)
        assert "nothing to do" in run_cli("run", tmp_path / "nightly.toml", "--step", name).output
    assert Registry(tmp_path / "models").state().aliases["champion"].version == 1
    assert (tmp_path / "labels.csv").exists()
    assert (
        "expected one of ingest, retrain"
        in run_cli("run", tmp_path / "nightly.toml", "--step", "x", exit_code=2).stderr
    )
    assert "resumes by itself" in run_cli("run", tmp_path / "nightly.toml", "--resume", exit_code=2).stderr


def test_another_run_is_active(night: Path, run_cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second process ends with 75 and names the first; a killed run does not block the next."""
    monkeypatch.setattr(lock_module, "HEARTBEAT_S", 0.01)
    with run_lock(night / "models"):
        time.sleep(0.05)
        done = run_cli("run", night / "nightly.toml", exit_code=75)
        assert f"process {os.getpid()} on " in done.stderr
        sign = night / "models" / ".run.json"
        sign.write_text(json.dumps({"pid": 1, "host": "h", "started": 0, "beat": 0}))
        with pytest.raises(Running, match=r"without a heartbeat for|process \d+ on"), run_lock(night / "models"):
            pass
    assert not (night / "models" / ".run.json").exists()
    child = os.fork()
    if child == 0:
        with run_lock(night / "models"):
            os._exit(0)  # as SIGKILL would: nothing is tidied up
    os.waitpid(child, 0)
    assert (night / "models" / ".run.json").exists()
    assert changed(run_nightly_job(job_in(night))) == []


def test_a_store_that_was_rewritten(night: Path) -> None:
    """It is refused by default, and nothing is lost; with `rewritten = "train"` a version is trained from scratch."""
    remove_rows(night / "rows.zarr", [0, 1])
    compact(night / "rows.zarr")
    with pytest.raises(StoreError, match="sha256"):
        run_nightly_job(job_in(night))
    registry = Registry(night / "models")
    assert registry.state().numbers == (1,)
    last = registry.state().lines[-1]
    assert (last.action, not isinstance(last.run, type(...)) and last.run.exit_code) == ("run", 3)
    with pytest.raises(StoreError):
        run_nightly_job(job_in(night))
    assert registry.state().lines[-1] == last  # the same failure is logged once
    trained = JOB.replace("[ingest]", 'rewritten = "train"\n\n[ingest]')
    with pytest.raises(GateRefused, match=r"then `coremargin registry promote .*models 2 --force`$"):
        run_nightly_job(job_in(night, trained.replace("[gates]", "[gates]\ndrift = 9.0")))
    assert changed(run_nightly_job(job_in(night, trained))) == []  # once refused it stays so
    promote(registry, 2, force=True)
    assert changed(run_nightly_job(job_in(night, trained))) == ["predict"]
    assert registry.record(2).rows == 58
    remove_rows(night / "rows.zarr", [0])
    compact(night / "rows.zarr")
    assert changed(run_nightly_job(job_in(night, trained))) == ["retrain", "gates", "promote", "predict"]
    assert registry.record(3).rows == 57


def test_other_parameters_are_trained_from_scratch(night: Path) -> None:
    """Another loss is trained from scratch; another precision starts from the champion."""
    put(night, "day2.csv", 40, 2)
    loose = JOB.replace("epsilon = 1e-2", "epsilon = 2e-2")
    run_nightly_job(job_in(night, loose))
    registry = Registry(night / "models")
    assert registry.record(2).parent == 1
    put(night, "day3.csv", 40, 3)
    run_nightly_job(job_in(night, JOB.replace("epsilon = 1e-2", 'loss = "hinge"\nC = 0.5')))
    assert (registry.record(3).parent, registry.record(3).problem) == (None, "soft_margin")


def test_other_parameters_need_no_new_rows(night: Path) -> None:
    """A job file that was changed is trained by at the next run, another precision too, and only once."""
    hinge = JOB.replace("epsilon = 1e-2", 'epsilon = 1e-2\nloss = "hinge"\nC = 0.5')
    run_nightly_job(job_in(night, hinge))
    registry = Registry(night / "models")
    assert (registry.record(2).parent, registry.record(2).problem) == (None, "soft_margin")
    assert changed(run_nightly_job(job_in(night, hinge))) == []
    finer = hinge.replace("epsilon = 1e-2", "epsilon = 1e-3\ntime_limit = '1 h'")
    run_nightly_job(job_in(night, finer))
    assert registry.record(3).parent == 2
    for text in (finer, finer.replace("1 h", "2 h"), finer.replace("epsilon = 1e-3\n", "")):
        assert changed(run_nightly_job(job_in(night, text))) == []


@pytest.mark.slow
def test_maps_are_retrained_run_after_run(tmp_path: Path) -> None:
    """The gamma that a map was fitted with stays, and is no other parameter than the job's rule for it."""
    job = job_in(
        tmp_path, JOB.replace("epsilon = 1e-2", 'epsilon = 0.5\nloss = "hinge"\nmap = "nystroem"\ncomponents = 4')
    )
    for number in range(1, 4):
        put(tmp_path, f"day{number}.csv", 20, number)
        for step in ("ingest", "retrain"):
            run_nightly_job(job, only=step)
    registry = Registry(tmp_path / "models")
    assert [registry.record(number).parent for number in (1, 2, 3)] == [None, 1, 2]
    assert "gamma" in registry.record(3).job
    assert registry.record(3).first_job == registry.record(1).job
    assert changed(run_nightly_job(job, only="retrain")) == []


def test_a_checkpoint_of_another_job_is_discarded(night: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a killed training, the job file may change before the next run."""
    text = JOB.replace("epsilon = 1e-2", 'loss = "hinge"\nC = 0.5')

    def killed(*words: Any, **more: Any) -> None:
        real(*words, **more)
        raise KeyboardInterrupt

    real = train.run_problem
    with monkeypatch.context() as patched:
        patched.setattr(train, "run_problem", killed)
        with pytest.raises(Interrupted, match="--resume"):
            run_nightly_job(job_in(night, text))
    assert (night / "models" / "work" / ".model.checkpoint" / "job.json").exists()
    assert "version 2 is certified" in run_nightly_job(job_in(night, text.replace("0.5", "0.25")))["retrain"].text
    assert "C = 0.25" in Registry(night / "models").record(2).job


def half_removed(path: Path) -> None:
    """A folder as a kill leaves it that came while it was removed."""
    versions = next(folder / "versions" for folder in path.parents if (folder / "versions").exists())
    shutil.copytree(next(versions.iterdir()), path)
    (path / "model.json").unlink()
    (path / "version.json").unlink()
    shutil.rmtree(path / "code", ignore_errors=True)


HARMS: dict[str, Callable[[Path], object]] = {
    "nothing left": lambda path: path.mkdir(parents=True),
    "half removed": half_removed,
    "strangers": lambda path: (path.mkdir(), (path / "notes.txt").write_text("mine"), (path / "x").mkdir()),
    "a file": lambda path: path.write_text("x"),
    "a circle": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a pipe": os.mkfifo,
    "no rights": lambda path: path.mkdir(mode=0),
    "damaged": lambda path: (
        path.mkdir(),
        [(path / n).write_bytes(b"\0") for n in ("model.json", "job.json", "run.json")],
    ),
    "another version": lambda path: (path.mkdir(), (path / "job.json").write_text('{"identity": {"version": 1}}')),
    "a folder for a record": lambda path: [(path / n).mkdir(parents=True) for n in ("job.json", "model.json")],
    "a pipe for a record": lambda path: (path.mkdir(), [os.mkfifo(path / n) for n in ("job.json", "model.json")]),
}


OURS = ("model", ".model.aside", ".model.previous", ".model.checkpoint", ".model.lock")


@pytest.mark.specimens(3)
@pytest.mark.parametrize("names", [OURS, *(pytest.param((name,), marks=pytest.mark.slow) for name in OURS)], ids=len)
@pytest.mark.parametrize("harm", HARMS)
def test_what_lies_in_the_work_folder_stops_no_run(night: Path, harm: str, names: tuple[str, ...]) -> None:
    """Whatever is found where a version is trained, the next run trains one; what is not ours is renamed and kept."""
    work = night / "models" / "work"
    for name in names:
        HARMS[harm](work / name)
    put(night, "day2.csv", 10, 2)
    assert run_nightly_job(job_in(night))["promote"].text.startswith("version 2 is the champion")
    work.rename(work.with_name("before"))
    HARMS[harm](work)
    put(night, "day3.csv", 10, 3)
    assert run_nightly_job(job_in(night))["promote"].text.startswith("version 3 is the champion")
    check_whole(Registry(night / "models"))
    kept = [path for path in (night / "models").rglob("notes.txt") if path.read_text() == "mine"]
    assert len(kept) == (len(names) + 1) * (harm == "strangers")


def test_a_pattern_of_no_file_is_nothing_to_label(night: Path) -> None:
    """As a file that is not there, a link to nothing too."""
    job = job_in(night, JOB.replace("new.csv", "today-*.csv"))
    assert run_nightly_job(job)["predict"].text.endswith("today-*.csv matches no file: nothing to label")
    (night / "today-1.csv").symlink_to("nowhere")
    assert changed(run_nightly_job(job)) == []
    (night / "today-1.csv").unlink()
    put(night, "today-1.csv", 12, 3, inbox=False)
    assert changed(run_nightly_job(job)) == ["predict"]


def test_rows_are_labelled_again_if_drop_changes(night: Path) -> None:
    """Once for each change of `drop`."""
    job = job_in(night, f"{JOB}drop = ['paid']\n")
    assert changed(run_nightly_job(job)) == ["predict"]
    assert changed(run_nightly_job(job)) == []


def test_rows_that_are_too_old_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`keep` takes out what came before, in a commit of its own, and the model is trained on the rest."""
    job = job_in(tmp_path, JOB.replace('settle = "5 s"', 'settle = "5 s"\nkeep = "1 h"'))
    put(tmp_path, "day1.csv", 60, 1)
    with monkeypatch.context() as patched:
        earlier = time.time() - 7200
        patched.setattr("coremargin.data.commits.time.time", lambda: earlier)
        run_nightly_job(job, only="ingest")
    put(tmp_path, "day2.csv", 40, 2)
    done = run_nightly_job(job)
    assert done["ingest"].text == "40 rows from 1 file; 60 rows expired"
    assert [entry.did for entry in Store.open(tmp_path / "rows.zarr").log] == ["ingest", "append", "expire"]
    assert taken(tmp_path) == expected((60, 1), (40, 2))  # they are there with weight 0 until the store is compacted
    weights = [Store.open(tmp_path / "rows.zarr").weights(0)]
    assert weights[0] is not None
    assert weights[0].sum() == 40
    assert changed(run_nightly_job(job)) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("epsilon = 1e-2", "epsilon = 2.0"), r"\[train\].*epsilon"),
        (("epsilon = 1e-2", 'out = "elsewhere"'), "the nightly job sets this itself"),
        (("epsilon = 1e-2", "epsilom = 1e-2"), "did you mean 'epsilon'"),
        (("verify = false", "accuracy = 0.1"), "accuracy: needs held_out"),
        (("verify = false", "verfy = false"), "did you mean 'verify'"),
        (('label = "paid"', 'labels = "paid"'), "did you mean 'label'"),
        (('store = "rows.zarr"', ""), "required key 'store' is missing"),
    ],
)
def test_job_files_that_are_wrong(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    """They are refused before anything is done, with the file, the table and the key."""
    with pytest.raises(SpecError, match=message):
        job_in(tmp_path, JOB.replace(*change))


def test_a_gate_without_its_store(night: Path, run_cli: Run) -> None:
    """The candidate waits, undecided, until the held-out store is there."""
    put(night, "day2.csv", 40, 2)
    text = JOB.replace("verify = false", 'verify = false\nheld_out = "held.zarr"\naccuracy = 0.5')
    job_in(night, text)
    assert "held.zarr: expected a store" in run_cli("run", night / "nightly.toml", exit_code=3).stderr
    assert Registry(night / "models").state().decision(2) is None
    held = put(night, "held.csv", 50, 9, inbox=False)
    coremargin.ingest(held, night / "held.zarr", label="paid")
    assert "version 2 passed 4 gates" in run_cli("run", night / "nightly.toml").output


def test_an_empty_night_is_short(night: Path) -> None:
    """It loads nothing that trains: no Dask, no SciPy, no pyarrow; and says that nothing is new."""
    code = (
        "import sys; from coremargin.cli import main; sys.argv = ['coremargin', 'run', sys.argv[1]]\n"
        "try: main()\nexcept SystemExit as end: print(end.code, *sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(night / "nightly.toml")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    lines = done.stdout.splitlines()
    assert lines[-2] == "nothing new: nothing was done"
    assert lines[-1].split()[0] == "0"
    assert {"dask", "distributed", "scipy", "sklearn", "pyarrow", "zarr", "numba"} & set(lines[-1].split()) == set()


def test_a_held_out_store_that_is_not_there(tmp_path: Path, run_cli: Run) -> None:
    """It is said before anything is taken in, and the night after it is as if there had been none."""
    asked = JOB.replace("[gates]", '[gates]\nheld_out = "held.zarr"\naccuracy = 0.01')
    job_in(tmp_path, asked)
    put(tmp_path, "day1.csv", 60, 1)
    done = run_cli("run", tmp_path / "nightly.toml", exit_code=3)
    assert "held.zarr: expected a store, found nothing there" in done.stderr
    assert not (tmp_path / "rows.zarr").exists()
    assert changed(run_nightly_job(job_in(tmp_path))) == list(STEPS)


def test_files_that_are_refused_have_a_line_each(night: Path, run_cli: Run) -> None:
    """People read which file and why, one below the other; the exit code is 11 once, with a line on stderr."""
    for name in ("day2.csv", "day3.csv"):
        put(night, name, 3, 2).write_text("x,z,from,paid\n1,2,nan,yes\n")
        os.utime(night / "inbox" / name, (1e9, 1e9))
    done = run_cli("run", night / "nightly.toml", exit_code=11)
    assert "2 files could not be ingested: day2.csv, day3.csv" in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("ingest   day2.csv is in quarantine: ")
    assert lines[1].startswith("         day3.csv is in quarantine: ")
    run_cli("run", night / "nightly.toml")
    last = [line.run for line in Registry(night / "models").state().lines if line.action == "run"][-1]
    assert not isinstance(last, type(...))
    assert (last.exit_code, last.quarantined) == (11, 2)


def test_refusals_are_errors_of_their_own(night: Path) -> None:
    """From Python, too, after all other steps were done."""
    put(night, "day2.csv", 200, 2, share=0.05)
    put(night, "new.csv", 12, 3, inbox=False)
    results: dict[str, StepResult] = {}
    with pytest.raises(GateRefused, match="version 2 was refused: class 'yes' has"):
        run_nightly_job(job_in(night), report=results.__setitem__)
    assert results["predict"].text.startswith("12 rows labelled")
    with pytest.raises(UsageError, match="--step night"):
        run_nightly_job(job_in(night), only="night")


def test_the_job_file_that_is_shipped_has_all_keys(repository: Path) -> None:
    """jobs/nightly.toml is one, and names every key of its tables and of the words about columns."""
    path = repository / "jobs" / "nightly.toml"
    job = load_nightly_job(path)
    assert job is not None
    text = path.read_text(encoding="utf-8")
    for spec in (NightlyJob, IngestStep, PredictStep, Gates):
        missing = [name for name in spec.__struct_fields__ if not re.search(rf"\b{name}\b", text)]
        assert missing == [] or (spec is PredictStep and missing == ["drop"])


def test_a_run_finishes_a_promotion_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the line of the log and the alias, the next run moves the alias, though nothing else is new."""
    move_alias = RegistryWriter._move_alias

    def killed(self: RegistryWriter, name: str, line: Any) -> None:
        if name == "champion":
            raise KeyboardInterrupt
        move_alias(self, name, line)

    job = job_in(tmp_path)
    put(tmp_path, "a.csv", 40, 1)
    with monkeypatch.context() as patch:
        patch.setattr(RegistryWriter, "_move_alias", killed)
        with pytest.raises(KeyboardInterrupt):
            run_nightly_job(job)
    assert "champion" not in Registry(tmp_path / "models").state().aliases
    run_nightly_job(job)
    assert Registry(tmp_path / "models").state().aliases["champion"].version == 1
