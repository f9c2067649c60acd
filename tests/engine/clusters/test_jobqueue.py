"""PBS, LSF and HTCondor by dask-jobqueue, with stand-ins for their commands: workers, and what can go wrong."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from click.testing import CliRunner

from cluster_kit import command as job_command
from cluster_kit import wait_until, wide_store
from coremargin import spec as specs
from coremargin.cli import main
from coremargin.engine.clusters.connect import connect, render
from coremargin.engine.clusters.specs import HtCondor, JobQueue, Lsf, Pbs, Slurm, check, load_cluster
from coremargin.engine.executors import InProcess
from coremargin.errors import RunError, SpecError, UsageError
from coremargin.learn.train import Progress, train_job
from coremargin.problems.registry import new_job
from stand_ins import BATCH, TEXT, here, scans
from tls_kit import own_certificate
from train_kit import exact, small_store

if TYPE_CHECKING:
    from coremargin.engine.protocols import BlockResult, Executor
    from stand_ins import BatchSystem, Command

slow = pytest.mark.slow
KINDS = [Pbs, pytest.param(Lsf, marks=slow), pytest.param(HtCondor, marks=slow)]


def spec_of(kind: type[JobQueue], **options: Any) -> JobQueue:
    """Workers on this machine."""
    its = {"host": "127.0.0.1", "python": sys.executable, "environment": here()} | options
    return kind(**its, insecure=its.get("tls") is None)


def lines(file: Path) -> list[str]:
    """What a stand-in noted, the arguments first."""
    return Path(f"{file}.log").read_text().splitlines()


def numbers(file: Path) -> list[int]:
    """The jobs that were cancelled, as the processes that they are."""
    return sorted(int(line.split(".")[0]) for line in lines(file))


def jobs_of(executor: Executor) -> list[int]:
    """The jobs of an executor, as the processes that they are."""
    said = re.search(r"job ([\d., ]+);", executor.description)
    assert said is not None
    return sorted(int(number.split(".")[0]) for number in said[1].split(", "))


@pytest.mark.parametrize("kind", KINDS)
def test_jobs_start_workers_and_are_cancelled(kind: type[JobQueue], batch_system: BatchSystem) -> None:
    """Two jobs of two workers scan; their environment is ours and Dask limits no memory; closing cancels both; what was
    submitted is what ``render`` says, but for address and name.
    """
    submit, cancel = batch_system(kind)
    spec = spec_of(kind, jobs=2, workers=2, threads=2)
    with connect(spec) as executor:
        executor.client.wait_for_workers(4, timeout=60)
        scans(executor)
        workers = executor.client.scheduler_info(n_workers=-1)["workers"].values()
        assert [(worker["nthreads"], worker["memory_limit"]) for worker in workers] == [(1, 0)] * 4
        assert set(executor.client.run(lambda: os.environ["OMP_NUM_THREADS"]).values()) == {"1"}
        address, jobs = executor.client.scheduler.address, jobs_of(executor)
    text = re.sub(r"coremargin-\d+", "coremargin-0", Path(f"{submit}.log").read_text())
    assert text.count(render(spec).replace("SCHEDULER", address)) == 2
    assert numbers(cancel) == jobs
    assert len(jobs) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_training_goes_on_when_all_jobs_have_been_killed(
    kind: type[JobQueue], batch_system: BatchSystem, impatient: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All jobs are killed in the middle of a run: they are asked for once more, under other names, and the model is
    certified with the bits of a run in this process.
    """
    submit, cancel = batch_system(kind)
    store = small_store(tmp_path / "rows.zarr")
    alone = train_job(new_job(store=store.path, out=tmp_path / "alone"), store, InProcess(1))
    with connect(spec_of(kind, jobs=2)) as executor:
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
    names = re.findall(r"--name (coremargin-\d+)", Path(f"{submit}.log").read_text())
    assert len(names) == len(set(names)) == 4
    assert len(lines(cancel)) == 4


@pytest.mark.parametrize("kind", [Pbs, Lsf, HtCondor])
def test_a_refused_job_says_what_the_batch_system_said(kind: type[JobQueue], command: Command) -> None:
    """A submit command that fails, or answers without a number, is a RunError with its words."""
    submit, _, cancel = BATCH[kind]
    command(cancel, TEXT)
    command(submit, TEXT + "sys.exit('unknown queue')")
    with pytest.raises(RunError, match=f"^{submit} failed with status 1: unknown queue$"):
        connect(spec_of(kind))
    command(submit, TEXT + "print('hello')")
    with pytest.raises(RunError, match=r"(?s)a job could not be submitted.*hello"):
        connect(spec_of(kind))


def test_when_one_job_is_refused_the_others_are_cancelled(command: Command) -> None:
    """Of two jobs the one that was accepted does not stay in the queue when the other is refused."""
    command("qsub", TEXT + "import os\nos.mkdir(__file__ + '.once')\nprint('77.server')")
    cancel = command("qdel", TEXT)
    with pytest.raises(RunError, match="qsub failed with status 1"):
        connect(spec_of(Pbs, jobs=2))
    assert lines(cancel) == ["77"]


def test_a_command_that_cannot_be_run_is_a_run_error(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says of a command that is there, but does not run, ends the start with its name."""
    command("qdel", TEXT)
    monkeypatch.setenv("PATH", str(command("qsub", "#!/nonexistent/sh\n").parent))
    with pytest.raises(RunError, match="^qsub cannot be run: .*No such file"):
        connect(spec_of(Pbs))


@pytest.mark.parametrize(("kind", "name"), [(Pbs, "qsub"), (Lsf, "bsub"), (HtCondor, "condor_submit")])
def test_a_missing_command_is_named(kind: type[JobQueue], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the command of the batch system nothing is started, and the error names it."""
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UsageError, match=f"'{name}' is not on this host"):
        connect(spec_of(kind))


def test_a_queue_that_does_not_move_ends_in_time(command: Command) -> None:
    """When no worker comes within ``start_timeout``, the job is cancelled and RunError says where to look."""
    command("qsub", TEXT + "print('77.server')")
    cancel = command("qdel", TEXT)
    with pytest.raises(RunError, match=r"Pbs job 77; .*no worker within 0.50 s; look at the queue"):
        connect(spec_of(Pbs, start_timeout=specs.Seconds(0.5)))
    assert lines(cancel) == ["77"]


def test_a_job_that_is_submitted_during_ctrl_c_is_cancelled(command: Command) -> None:
    """An interrupt while the submit command is at work waits for the job's number, and the job is cancelled."""
    command("qsub", TEXT + "import os, signal, time; os.kill(os.getppid(), signal.SIGINT); time.sleep(0.5); print(77)")
    cancel = command("qdel", TEXT)
    with pytest.raises(KeyboardInterrupt):
        connect(spec_of(Pbs))
    assert lines(cancel) == ["77"]


def test_ctrl_c_while_jobs_are_cancelled_waits_until_they_are(batch_system: BatchSystem, command: Command) -> None:
    """An interrupt while the executor is closed does not leave a job in the queue."""
    batch_system(Pbs)
    text = "import os, signal, time; os.kill(os.getppid(), signal.SIGINT); time.sleep(0.5); log.open('a').write('done')"
    cancel = command("qdel", TEXT + "import os, signal; os.killpg(int(sys.argv[1]), signal.SIGTERM)\n" + text)
    executor = connect(spec_of(Pbs))
    with pytest.raises(KeyboardInterrupt):
        executor.close()
    assert lines(cancel)[-1] == "done"


def test_a_job_that_cannot_be_cancelled_is_told(
    batch_system: BatchSystem, command: Command, caplog: pytest.LogCaptureFixture
) -> None:
    """In the end a refusal of the command that cancels is a warning with its words, and hides nothing else."""
    batch_system(Pbs)
    command("qdel", TEXT + "sys.exit('not yours')")
    with connect(spec_of(Pbs)) as executor:
        scans(executor)
    assert "while closing: qdel failed with status 1: not yours" in caplog.messages


@slow
def test_tls_is_one_setting(tmp_path: Path, batch_system: BatchSystem) -> None:
    """With [tls] scheduler, workers and client talk TLS, and a client without the certificate is refused."""
    from distributed import Client

    batch_system(Lsf)
    with connect(spec_of(Lsf, tls=own_certificate(tmp_path))) as executor:
        address = executor.client.scheduler.address
        assert address.startswith("tls://")
        scans(executor)
        with pytest.raises((OSError, TypeError)):
            Client(address.replace("tls://", "tcp://"), timeout="2 s", set_as_default=False)


@slow
@pytest.mark.faults
def test_workers_leave_a_driver_that_was_killed(tmp_path: Path, batch_system: BatchSystem) -> None:
    """After SIGKILL of the driver its workers leave by themselves, and their jobs end."""
    submit, _ = batch_system(Pbs)
    store, held = wide_store(tmp_path / "rows.zarr"), tmp_path / "held"
    with job_command(tmp_path, store, spec_of(Pbs, jobs=2), f"9:{held}") as run:
        wait_until(held.exists, run)
        found = re.search(r"dask_worker (tcp://\S+)", Path(f"{submit}.log").read_text())
        assert found is not None
        jobs = [process for process in psutil.process_iter(["cmdline"]) if found[1] in (process.info["cmdline"] or ())]
        run.kill()
    assert len(jobs) == 2
    assert not psutil.wait_procs(jobs, timeout=120)[1]


@pytest.mark.parametrize(("seconds", "asked"), [(1, "00:01"), (60, "00:01"), (61, "00:02"), (7200, "02:00")])
def test_lsf_is_asked_for_no_less_time_than_the_spec_says(seconds: int, asked: str) -> None:
    """LSF counts minutes: a walltime between two of them is rounded up, never to none."""
    text = render(spec_of(Lsf, walltime=specs.Seconds(seconds)))
    assert f"#BSUB -W {asked}\n" in text


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Pbs, ["#PBS -q fast", "#PBS -A us", "#PBS -o /logs", "#PBS -V"]),
        (Lsf, ["#BSUB -q fast", '#BSUB -P "us"', "#BSUB -o /logs/%J.out", "#BSUB -V"]),
        (HtCondor, ["requirements = fast", "accounting_group = us", "output = /logs/co-$(ClusterId)-$(ProcId).out"]),
        (HtCondor, ["error = /logs/co-$(ClusterId)-$(ProcId).err", "+Note = a=b", "batch_name = co"]),
    ],
)
def test_every_key_reaches_the_script(kind: type[JobQueue], expected: list[str]) -> None:
    """Queue, account, folder of logs and directives stand in the script as the batch system reads them, and the setup
    before the worker; nothing is made or submitted for it.
    """
    directives = ("+Note = a=b",) if kind is HtCondor else ("-V",)
    options = {
        "name": "co",
        "queue": "fast",
        "account": "us",
        "logs": Path("/logs"),
        "directives": directives,
        "setup": ("cd /x",),
    }
    text = render(spec_of(kind, **options))
    assert set(expected) <= set(text.splitlines())
    assert 0 < text.index("cd /x") < text.index("dask_worker")
    assert not Path("/logs").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('kind = "htcondor"\ninsecure = true\ndirectives = ["nice_user"]', "'nice_user' is not name = value"),
        ('kind = "pbs"\n[tls]\nca = "/my ca.pem"\ncert = "/c.pem"\nkey = "/k.pem"', "/my ca.pem: dask-jobqueue"),
        ('kind = "lsf"', "without TLS.*insecure = true"),
    ],
)
def test_bad_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    """What dask-jobqueue could not hand on as it is, is a SpecError that names the file."""
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(SpecError, match=message) as caught:
        load_cluster(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("kind", ["pbs", "lsf", "htcondor"])
def test_without_the_extra_the_command_names_it_before_it_reads(
    kind: str, repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where dask-jobqueue is not installed, a cluster file that needs it ends the command with exit code 2 and the
    name of the extra, before the store is looked for; SLURM does without.
    """
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    words = ["train", str(tmp_path / "none.zarr"), "--out", str(tmp_path / "m")]
    ended = CliRunner().invoke(main, [*words, "--cluster", str(repository / "cluster" / f"{kind}.toml")])
    assert ended.exit_code == 2
    assert re.search(rf"{kind}\.toml.*pip install 'coremargin\[batch\]'", " ".join(ended.output.split()))
    assert check(Slurm(insecure=True), "here") == Slurm(insecure=True)


@pytest.mark.parametrize("handler", ["default_int_handler", "SIG_IGN"])
def test_ctrl_c_means_what_it_meant_before_the_import(handler: str) -> None:
    """dask-jobqueue puts a handler of its own for SIGINT in place when it is imported; what was there is back."""
    text = (
        f"import signal, sys\nsignal.signal(signal.SIGINT, signal.{handler})\n"
        "import coremargin.engine.clusters.jobqueue\nassert 'dask_jobqueue.runner' in sys.modules\n"
        f"assert signal.getsignal(signal.SIGINT) is signal.{handler}"
    )
    subprocess.run([sys.executable, "-c", text], check=True)


def test_an_import_beside_the_main_thread_is_explained() -> None:
    """Where dask-jobqueue cannot be imported, as beside the main thread, the error says where it can."""
    text = (
        "import threading\nfrom coremargin.engine.clusters.connect import render\n"
        "from coremargin.engine.clusters.specs import Pbs\n"
        "threading.excepthook = lambda end: print(end.exc_type.__name__, end.exc_value)\n"
        "beside = threading.Thread(target=render, args=[Pbs(insecure=True)])\nbeside.start()\nbeside.join()"
    )
    done = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("UsageError dask-jobqueue is imported in the main thread only")
