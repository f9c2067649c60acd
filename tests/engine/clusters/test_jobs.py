"""How jobs of PBS, LSF and HTCondor come into the queue and leave it, with stand-ins for their commands."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import dask
import psutil
import pytest

from cluster_kit import command as job_command
from cluster_kit import wait_until, wide_store
from coremargin import spec as specs
from coremargin.engine.clusters.connect import connect, render
from coremargin.engine.clusters.specs import HtCondor, JobQueue, Lsf, Pbs
from coremargin.engine.executors import InProcess
from coremargin.errors import RunError, UsageError
from coremargin.learn.train import Progress, train_job
from coremargin.problems.registry import new_job
from stand_ins import BATCH, TEXT, jobs_here, noted, scans
from tls_kit import own_certificate
from train_kit import exact, small_store

if TYPE_CHECKING:
    from coremargin.engine.protocols import BlockResult, Executor
    from stand_ins import BatchSystem, Command

slow = pytest.mark.slow
KINDS = [Pbs, pytest.param(Lsf, marks=slow), pytest.param(HtCondor, marks=slow)]
BRIEFLY = specs.Seconds(0.5)


class FakeCluster:
    """Has jobs submitted as Dask's cluster does, each by a thread of its own."""

    def __init__(self, put: Callable[[SimpleNamespace], None], *submissions: Callable[[], str]) -> None:
        self._put, self._submissions, self._numbers = put, iter(submissions), itertools.count()
        self.worker_spec: list[str] = []
        self.threads: list[threading.Thread] = []

    def scale(self, n: int = 0, *, jobs: int = 0) -> None:
        self.worker_spec = [f"job-{next(self._numbers)}" for _ in range(jobs)]
        for name in self.worker_spec:
            job = SimpleNamespace(name=name, cancel_command="qdel", submit=next(self._submissions))
            self.threads.append(threading.Thread(target=self._put, args=(job,)))
            self.threads[-1].start()


def refusal() -> str:
    """A submission that is refused."""
    raise RunError("too many jobs")


def cancelled(file: Path) -> list[int]:
    """The jobs that were cancelled, as the processes that they are."""
    return sorted(int(word.split(".")[0]) for line in noted(file) for word in line.split())


def jobs_of(executor: Executor) -> list[int]:
    """The jobs of an executor, as the processes that they are."""
    said = re.search(r"job (.*);", executor.description)
    assert said is not None
    return sorted(int(number.split(".")[0]) for number in said[1].split(", "))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_jobs_start_workers_and_are_cancelled(kind: type[JobQueue], batch_system: BatchSystem) -> None:
    """Two jobs of two workers scan; their environment is ours and Dask limits no memory; closing cancels both by one
    command; what was submitted is what ``render`` says, but for the address.
    """
    submit, cancel = batch_system(kind)
    spec = jobs_here(kind, jobs=2, workers=2, threads=2)
    with connect(spec) as executor:
        executor.client.wait_for_workers(4, timeout=60)
        scans(executor)
        workers = executor.client.scheduler_info(n_workers=-1)["workers"].values()
        assert [(worker["nthreads"], worker["memory_limit"]) for worker in workers] == [(1, 0)] * 4
        assert set(executor.client.run(lambda: os.environ["OMP_NUM_THREADS"]).values()) == {"1"}
        address, jobs = executor.client.scheduler.address, jobs_of(executor)
    assert Path(f"{submit}.log").read_text().count(render(spec).replace("SCHEDULER", address)) == 2
    assert cancelled(cancel) == jobs
    assert (len(jobs), len(noted(cancel))) == (2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_training_goes_on_when_all_jobs_have_been_killed(
    kind: type[JobQueue], batch_system: BatchSystem, impatient: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All jobs are killed in the middle of a run: they are asked for once more, and the model is certified with the
    bits of a run in this process; that jobs which have ended cannot be cancelled is no warning.
    """
    submit, cancel = batch_system(kind)
    store = small_store(tmp_path / "rows.zarr")
    alone = train_job(new_job(store=store.path, out=tmp_path / "alone"), store, InProcess(1))
    with connect(jobs_here(kind, jobs=2)) as executor:
        executor.client.wait_for_workers(2, timeout=60)
        first = jobs_of(executor)

        def kill(_: BlockResult) -> None:
            while first:
                os.killpg(first.pop(), signal.SIGKILL)

        job = new_job(store=store.path, out=tmp_path / "m")
        outcome = train_job(job, store, executor, progress=Progress(on_block=kill))
    assert (outcome.model.status, alone.model.status) == ("certified", "certified")
    assert exact(tmp_path / "m") == exact(tmp_path / "alone")
    assert sum("no worker is left: submitted" in message for message in caplog.messages) == 1
    assert not any("while closing" in message for message in caplog.messages)
    assert Path(f"{submit}.log").read_text().count("dask_worker") == 4
    assert [len(line.split()) for line in noted(cancel)] == [2, 2]


@pytest.mark.parametrize("kind", [Pbs, Lsf, HtCondor])
def test_a_refused_job_says_what_the_batch_system_said(kind: type[JobQueue], command: Command) -> None:
    """A submit command that fails, or answers without a number, is a RunError with its words."""
    submit, _, cancel = BATCH[kind]
    command(cancel, TEXT)
    command(submit, TEXT + "sys.exit('unknown queue')")
    with pytest.raises(RunError, match=f"^{submit} failed with status 1: unknown queue$"):
        connect(jobs_here(kind))
    command(submit, TEXT + "print('hello')")
    with pytest.raises(RunError, match=r"(?s)answered 'hello.*may be in the queue.*look for coremargin"):
        connect(jobs_here(kind))


@pytest.mark.specimens(2)
@pytest.mark.parametrize(
    ("kind", "answer", "number"),
    [
        (Lsf, "Charging project 4711\nJob <98765> is submitted to queue <5>.", "98765"),
        (Lsf, "Charging project <4711>\nJob <98765> is submitted to default queue <normal>.", "98765"),
        (Pbs, "qsub: 12 jobs of yours wait\n123.srv2", "123.srv2"),
        (Pbs, "2026-11-22\n123.srv2", "123.srv2"),
        (HtCondor, "Submitting job(s).\n1 job(s) submitted to cluster 7.", "7"),
    ],
)
def test_the_job_that_was_submitted_is_cancelled(
    kind: type[JobQueue], answer: str, number: str, command: Command
) -> None:
    """Of an answer with more digits than the job's number, that is what is cancelled, with the server that has it."""
    submit, _, cancel = BATCH[kind]
    command(submit, TEXT + f"print({answer!r})")
    note = command(cancel, TEXT)
    with pytest.raises(RunError, match=rf"job {re.escape(number)}; .*no worker within"):
        connect(jobs_here(kind, start_timeout=BRIEFLY))
    assert noted(note) == [number]


@pytest.mark.parametrize("kind", [Pbs, Lsf, HtCondor])
def test_no_file_holds_what_is_submitted(
    kind: type[JobQueue], command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the submit command runs, the script, which may hold secrets, comes on its standard input and lies nowhere
    in the folder of temporary files.
    """
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    submit, _, cancel = BATCH[kind]
    command(cancel, TEXT)
    text = f"log.open('a').write(str(list(pathlib.Path({str(folder)!r}).rglob('*.sh'))) + sys.stdin.read())\n"
    note = command(submit, TEXT + text + "sys.exit('enough')")
    with pytest.raises(RunError, match="enough"):
        connect(jobs_here(kind))
    assert "\n[]" in Path(f"{note}.log").read_text()
    assert "distributed.cli.dask_worker" in Path(f"{note}.log").read_text()


def test_when_one_job_is_refused_the_others_are_cancelled(command: Command) -> None:
    """Of two jobs the one that was accepted does not stay in the queue when the other is refused."""
    command("qsub", TEXT + "import os\nos.mkdir(__file__ + '.once')\nprint('77.server')")
    cancel = command("qdel", TEXT)
    with pytest.raises(RunError, match="qsub failed with status 1"):
        connect(jobs_here(Pbs, jobs=2))
    assert noted(cancel) == ["77.server"]


def test_a_command_that_cannot_be_run_is_a_run_error(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says of a command that is there, but does not run, ends the start with its name."""
    command("qdel", TEXT)
    monkeypatch.setenv("PATH", str(command("qsub", "#!/nonexistent/sh\n").parent))
    with pytest.raises(RunError, match="^qsub cannot be run: .*No such file"):
        connect(jobs_here(Pbs))


@pytest.mark.parametrize(("kind", "name"), [(Pbs, "qsub"), (Lsf, "bsub"), (HtCondor, "condor_submit")])
def test_a_missing_command_is_named(kind: type[JobQueue], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the command of the batch system nothing is started, and the error names it."""
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UsageError, match=f"'{name}' is not on this host"):
        connect(jobs_here(kind))


def test_a_queue_that_does_not_move_ends_in_time(command: Command) -> None:
    """When no worker comes within ``start_timeout``, the job is cancelled and RunError says where to look."""
    command("qsub", TEXT + "print('77.server')")
    cancel = command("qdel", TEXT)
    with pytest.raises(RunError, match=r"Pbs job 77\.server; .*no worker within 0.50 s; look at the queue"):
        connect(jobs_here(Pbs, start_timeout=BRIEFLY))
    assert noted(cancel) == ["77.server"]


# how they leave


def test_a_job_that_is_submitted_during_ctrl_c_is_cancelled(command: Command) -> None:
    """An interrupt while the submit command is at work waits for the job's number, and the job is cancelled."""
    command("qsub", TEXT + "import os, signal, time; os.kill(os.getppid(), signal.SIGINT); time.sleep(0.5); print(77)")
    cancel = command("qdel", TEXT)
    with pytest.raises(KeyboardInterrupt):
        connect(jobs_here(Pbs))
    assert noted(cancel) == ["77"]


def test_jobs_that_have_a_number_do_not_wait_for_one_that_hangs(command: Command) -> None:
    """At an interrupt the accepted job is cancelled while the other's submission hangs; that one, when it answers."""
    cancel = command("qdel", TEXT)
    text = f"""
import os, signal, time
try:
    os.mkdir(__file__ + ".once")
except FileExistsError:
    time.sleep(0.5)
    os.kill(os.getppid(), signal.SIGINT)
    left = 20.0
    while left > 0 and not pathlib.Path("{cancel}.log").exists():
        time.sleep(0.05)
        left -= 0.05
    print("78.server" if left > 0 else "79.nobody-was-cancelled")
else:
    print("77.server")
"""
    command("qsub", TEXT + text)
    with pytest.raises(KeyboardInterrupt):
        connect(jobs_here(Pbs, jobs=2))
    assert noted(cancel) == ["77.server", "78.server"]


def test_after_ctrl_c_no_further_job_is_submitted(command: Command) -> None:
    """An interrupt by the first of 40 submissions ends them; each job that was accepted is cancelled."""
    text = """
import os, signal, time
if not os.path.exists(__file__ + ".once"):
    pathlib.Path(__file__ + ".once").touch()
    os.kill(os.getppid(), signal.SIGINT)
time.sleep(0.5)
log.open("a").write(f"{os.getpid()}{chr(10)}")
print(os.getpid())
"""
    submit, cancel = command("qsub", TEXT + text), command("qdel", TEXT)
    with pytest.raises(KeyboardInterrupt):
        connect(jobs_here(Pbs, jobs=40))
    accepted = sorted(int(line) for line in noted(submit) if line.isdigit())
    assert cancelled(cancel) == accepted
    assert 0 < len(accepted) < 40


@pytest.mark.slow
def test_ctrl_c_while_jobs_are_cancelled_waits_until_they_are(batch_system: BatchSystem, command: Command) -> None:
    """An interrupt while the executor is closed does not leave a job in the queue."""
    batch_system(Pbs)
    text = "import os, signal, time; os.kill(os.getppid(), signal.SIGINT); time.sleep(0.5); log.open('a').write('done')"
    kill = "import os, signal; os.killpg(int(sys.argv[1].split('.')[0]), signal.SIGTERM)\n"
    cancel = command("qdel", TEXT + kill + text)
    executor = connect(jobs_here(Pbs))
    with pytest.raises(KeyboardInterrupt):
        executor.close()
    assert noted(cancel)[-1] == "done"


@pytest.mark.slow
def test_jobs_are_cancelled_however_long_it_takes(
    command: Command, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A command that cancels for longer than Dask's cluster may take to close is not cut short, and cancels all; while
    it does not answer, the numbers are told.
    """
    # not above, as in conftest.py
    from coremargin.engine.clusters import jobqueue, local_cluster

    monkeypatch.setattr(local_cluster, "_CLOSE_S", 0.5)
    monkeypatch.setattr(jobqueue, "_LATE_S", 0.1)
    command("qsub", TEXT + "import os; print(os.getpid())")
    cancel = command("qdel", TEXT + "import time; time.sleep(1.5); log.open('a').write('done')")
    with pytest.raises(RunError, match="no worker within"):
        connect(jobs_here(Pbs, jobs=3, start_timeout=BRIEFLY))
    numbers, done = noted(cancel)
    assert (len(numbers.split()), done) == (3, "done")
    told = "qdel has not answered yet; until it does, these may be in the queue: " + numbers.replace(" ", ", ")
    assert told in caplog.messages


@pytest.mark.slow
def test_a_job_that_cannot_be_cancelled_is_told(
    batch_system: BatchSystem, command: Command, caplog: pytest.LogCaptureFixture
) -> None:
    """In the end a refusal of the command that cancels is a warning with its words and the job's number, and hides
    nothing else.
    """
    batch_system(Pbs)
    cancel = command("qdel", TEXT + "sys.exit('not yours')")
    with connect(jobs_here(Pbs)) as executor:
        scans(executor)
    words = "qdel failed with status 1: not yours; see whether any of these is in the queue still"
    assert f"while closing: {words}: {noted(cancel)[0]}" in caplog.messages


@pytest.mark.slow
def test_the_job_of_a_worker_that_left_stays(batch_system: BatchSystem) -> None:
    """A job is not cancelled because its only worker is gone: the batch system may start it again."""
    _, cancel = batch_system(Pbs)
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "0.1 s"}), connect(jobs_here(Pbs, jobs=2)) as its:
        its.client.wait_for_workers(2, timeout=60)
        os.killpg(jobs_of(its)[0], signal.SIGKILL)
        deadline = time.monotonic() + 60
        while len(its.client.scheduler_info(n_workers=-1)["workers"]) == 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1.0)
        assert len(its.client.scheduler_info(n_workers=-1)["workers"]) == 1
        assert noted(cancel) == []
    assert len(cancelled(cancel)) == 2


@pytest.mark.slow
def test_a_job_that_starts_again_finds_its_scheduler(batch_system: BatchSystem) -> None:
    """The same job once more is let in though the worker of its first start is there still."""
    submit, _ = batch_system(Pbs)
    with connect(jobs_here(Pbs)) as executor:
        again = Path(f"{submit}.log").read_text().partition("\n")[2]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        second = subprocess.Popen(["sh", "-c", again], start_new_session=True, **quiet)
        try:
            executor.client.wait_for_workers(2, timeout=60)
        finally:
            os.killpg(second.pid, signal.SIGKILL)
            second.wait()


# again


def test_what_the_queue_takes_of_a_new_submission_is_kept(command: Command, caplog: pytest.LogCaptureFixture) -> None:
    """When one of two jobs is refused the second time, the other is neither cancelled nor submitted once more, and the
    refusal is told; when both are, it is an error.
    """
    from coremargin.engine.clusters.jobqueue import Jobs

    cancel = command("qdel", TEXT)
    jobs = Jobs(jobs_here(Pbs, jobs=2))
    cluster = FakeCluster(jobs.submit_job, lambda: "1", lambda: "2", refusal, lambda: "3", refusal, refusal)
    jobs.submit(cluster)
    assert jobs.resubmit() == "submitted Pbs job 3; 2 x 1 threads"
    assert [sorted(line.split()) for line in noted(cancel)] == [["1", "2"]]
    assert "1 of 2 jobs were refused: too many jobs" in caplog.messages
    with pytest.raises(RunError, match="^too many jobs$"):
        jobs.resubmit()
    jobs.cancel()
    assert noted(cancel)[1:] == ["3"]


def test_jobs_that_could_not_be_cancelled_are_not_forgotten(command: Command, caplog: pytest.LogCaptureFixture) -> None:
    """Jobs whose cancelling failed are told as a warning when others are submitted in their place, and cancelled with
    these in the end.
    """
    from coremargin.engine.clusters.jobqueue import Jobs

    cancel = command("qdel", TEXT + "sys.exit('qdel: cannot connect to server')")
    jobs = Jobs(jobs_here(Pbs))
    jobs.submit(FakeCluster(jobs.submit_job, lambda: "1", lambda: "2"))
    jobs.resubmit()
    (told,) = (record for record in caplog.records if record.levelname == "WARNING")
    assert told.message.endswith("connect to server; see whether any of these is in the queue still: 1")
    command("qdel", TEXT)
    jobs.cancel()
    jobs.cancel()
    assert [sorted(line.split()) for line in noted(cancel)] == [["1"], ["1", "2"]]


@pytest.mark.slow
def test_a_late_answer_is_none_to_the_next_submission(
    command: Command, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal that comes when nobody waits for it any more does not refuse the job that was submitted since."""
    from coremargin.engine.clusters import jobqueue as module

    monkeypatch.setattr(module, "ANSWER_S", 1.0)
    command("qdel", TEXT)
    since = threading.Event()

    def late() -> str:
        since.wait(60)
        return refusal()

    def accepted() -> str:
        since.set()
        cluster.threads[0].join(60)
        return "2"

    jobs = module.Jobs(jobs_here(Pbs))
    cluster = FakeCluster(jobs.submit_job, late, accepted)
    with pytest.raises(RunError, match="dask-jobqueue did not report"):
        jobs.submit(cluster)
    assert jobs.resubmit() == "submitted Pbs job 2; 1 x 1 threads"
    assert not any("refused" in message for message in caplog.messages)


# what holds for all of their life


@slow
def test_tls_is_one_setting(tmp_path: Path, batch_system: BatchSystem) -> None:
    """With [tls] scheduler, workers and client talk TLS, and a client without the certificate is refused; ``render``
    says what was submitted.
    """
    from distributed import Client

    submit, _ = batch_system(Lsf)
    spec = jobs_here(Lsf, tls=own_certificate(tmp_path))
    with connect(spec) as executor:
        address = executor.client.scheduler.address
        assert address.startswith("tls://")
        scans(executor)
        with pytest.raises((OSError, TypeError)):
            Client(address.replace("tls://", "tcp://"), timeout="2 s", set_as_default=False)
    assert render(spec).replace("SCHEDULER", address) in Path(f"{submit}.log").read_text()


@slow
@pytest.mark.faults
def test_workers_leave_a_driver_that_was_killed(tmp_path: Path, batch_system: BatchSystem) -> None:
    """After SIGKILL of the driver its workers leave by themselves, and their jobs end."""
    submit, _ = batch_system(Pbs)
    store, held = wide_store(tmp_path / "rows.zarr"), tmp_path / "held"
    with job_command(tmp_path, store, jobs_here(Pbs, jobs=2), f"9:{held}") as run:
        wait_until(held.exists, run)
        found = re.search(r"dask_worker (tcp://\S+)", Path(f"{submit}.log").read_text())
        assert found is not None
        jobs = [process for process in psutil.process_iter(["cmdline"]) if found[1] in (process.info["cmdline"] or ())]
        run.kill()
    assert len(jobs) == 2
    assert not psutil.wait_procs(jobs, timeout=120)[1]
