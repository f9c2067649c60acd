"""Cluster files: each loads, renders to its golden text, and starts what it says (stand-ins for batch systems)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from coremargin import spec as specs
from coremargin.engine.clusters import specs as clusters
from coremargin.engine.clusters.batch import JobArray
from coremargin.engine.clusters.connect import connect, render
from coremargin.engine.clusters.specs import (
    Address,
    Auto,
    Batch,
    Embedded,
    HtCondor,
    Kubernetes,
    Sge,
    Slurm,
    Ssh,
    Threads,
    Tls,
    check,
    load_cluster,
    resolve,
)
from coremargin.engine.plan import plan_blocks
from coremargin.errors import RunError, SpecError, UsageError
from scan_fakes import FakeHandle, Slow
from stand_ins import TEXT, here, noted, scans
from tls_kit import own_certificate

if TYPE_CHECKING:
    from coremargin.engine.protocols import Executor
    from stand_ins import BatchSystem, Command

FOLDER = Path(__file__).resolve().parents[3] / "cluster"
FILES = sorted(FOLDER.glob("*.toml"))
GOLDEN = sorted((FOLDER / "rendered").iterdir())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_cluster_file_loads_and_round_trips(file: Path) -> None:
    """Each file in cluster/ is a valid spec, and what ``dump`` writes of it reads as the same spec."""
    cluster = load_cluster(file)
    assert specs.parse(specs.dump(cluster), clusters.ClusterSpec) == cluster


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
def test_rendered_texts_are_as_committed(golden: Path) -> None:
    """What would be submitted for a cluster file is the text in cluster/rendered/."""
    assert render(load_cluster(FOLDER / f"{golden.stem}.toml")) == golden.read_text()


def test_every_remote_kind_has_a_golden_text() -> None:
    """No cluster file that submits something lacks its text in cluster/rendered/."""
    remote = [file.stem for file in FILES if file.stem not in {"threads", "embedded", "address"}]
    assert sorted(golden.stem for golden in GOLDEN) == remote
    assert {load_cluster(file).__struct_config__.tag for file in FILES} | {"auto"} == {
        kind.__struct_config__.tag for kind in clusters.ClusterSpec.__args__
    }


@pytest.mark.parametrize("golden", [path for path in GOLDEN if path.suffix == ".sh"], ids=lambda golden: golden.name)
def test_scripts_are_valid_shell(golden: Path) -> None:
    """The shell accepts every rendered script."""
    subprocess.run(["sh", "-n", str(golden)], check=True)


def test_an_odd_value_stays_one_word() -> None:
    """Quotes and spaces in values reach the worker as they are, through the shell and through HTCondor's quoting."""
    value = 'it\'s "here" $HOME'
    options = {"insecure": True, "environment": {"NOTE": value}, "python": "/opt/my python/bin/python"}
    for text in (render(Slurm(**options)), render(HtCondor(**options)).replace('""', '"').replace("''", "'")):
        assert "export NOTE='it'\"'\"'s \"here\" $HOME'" in text
        assert "exec '/opt/my python/bin/python' -m distributed.cli.dask_worker SCHEDULER" in text


@pytest.mark.parametrize("kind", [Slurm, pytest.param(Sge, marks=pytest.mark.slow)])
def test_batch_systems_start_workers_and_cancel_them(kind: type[Batch], batch_system: BatchSystem) -> None:
    """Workers submitted as a job scan; closing cancels the job by its id; ``render`` is what was submitted."""
    submit, cancel = batch_system(kind)
    spec = kind(host="127.0.0.1", insecure=True, python=sys.executable, environment=here())
    with connect(spec) as executor:
        scans(executor)
        address = executor.client.scheduler.address
        job = executor.description.split("job ")[1].split(",")[0]
    submitted = Path(f"{submit}.log").read_text().partition("\n")[2]
    assert submitted == render(spec).replace("SCHEDULER", address)
    assert Path(f"{cancel}.log").read_text().split() == [
        *(["-M", "cluster"] if kind is Slurm else []),
        job.partition(";")[0],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Slurm, pytest.param(Sge, marks=pytest.mark.slow)])
def test_an_array_that_has_ended_is_submitted_again(
    kind: type[Batch], batch_system: BatchSystem, impatient: None
) -> None:
    """When the workers of a job have gone before the scan, the same text is submitted once more; that a job which has
    ended cannot be cancelled is no error; in the end the new job is cancelled.
    """
    submit, cancel = batch_system(kind)
    spec = kind(host="127.0.0.1", insecure=True, python=sys.executable, environment=here())
    with connect(spec) as executor:
        first = executor.description.split("job ")[1].split(",")[0].partition(";")[0]
        os.killpg(int(first.split(".")[0]), signal.SIGKILL)
        scans(executor)
        address = executor.client.scheduler.address
    text = render(spec).replace("SCHEDULER", address)
    assert Path(f"{submit}.log").read_text().count(text) == 2
    cancelled = [line.split()[-1] for line in Path(f"{cancel}.log").read_text().splitlines()]
    assert len(cancelled) == 2
    assert cancelled[0] == first != cancelled[1]


def test_a_job_that_is_submitted_during_ctrl_c_is_cancelled(command: Command) -> None:
    """An interrupt while the submit command is at work waits for the job's id, without which nobody could cancel it."""
    command(
        "sbatch", TEXT + "import os, signal, time; os.kill(os.getppid(), signal.SIGINT); time.sleep(0.5); print(77)"
    )
    cancel = command("scancel", TEXT)
    with pytest.raises(KeyboardInterrupt):
        connect(Slurm(host="127.0.0.1", insecure=True))
    assert Path(f"{cancel}.log").read_text() == "77\n"


def test_ctrl_c_while_an_array_is_cancelled_waits_until_it_is(command: Command) -> None:
    """An interrupt while the executor is closed does not leave the array in the queue."""
    cancel = command(
        "scancel",
        "#!{python}\nimport os, signal, time\nfrom pathlib import Path\nos.kill(os.getppid(), signal.SIGINT)\n"
        "time.sleep(0.5)\nPath(f'{__file__}.log').write_text('done')",
    )
    command("sbatch", TEXT + "print(77)")
    array = JobArray(Slurm(host="127.0.0.1", insecure=True), "tcp://127.0.0.1:1")
    array.submit()
    with pytest.raises(KeyboardInterrupt):
        array.cancel()
    assert Path(f"{cancel}.log").read_text() == "done"


@pytest.mark.slow
def test_hosts_whose_ssh_has_ended_are_started_again(
    command: Command, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    """When no worker is left on any host, ssh is started once more where it has ended; its last words are logged."""
    ssh = command("ssh", TEXT + "import os\nprint('pid', os.getpid())\nos.execv('/bin/sh', ['sh', '-c', sys.argv[-1]])")
    spec = Ssh(hosts=("one",), host="127.0.0.1", insecure=True, python=sys.executable, environment=here())
    with connect(spec) as executor:
        for nanny in psutil.Process().children():
            if "distributed.cli.dask_worker" in nanny.cmdline():
                nanny.kill()
        scans(executor)
    assert Path(f"{ssh}.log").read_text().count("-o BatchMode=yes one export ") == 2
    assert "no worker is left: started ssh one again" in caplog.messages
    assert any(message.startswith("ssh one ended with status -9: ") for message in caplog.messages)


@pytest.mark.slow
def test_ssh_starts_workers(command: Command) -> None:
    """A worker per host is started through ssh, and leaves when the executor is closed."""
    ssh = command("ssh", TEXT + "sys.exit(subprocess.call(['sh', '-c', sys.argv[-1]]))")
    spec = Ssh(hosts=("one",), host="127.0.0.1", insecure=True, python=sys.executable, environment=here())
    with connect(spec) as executor:
        scans(executor)
    assert Path(f"{ssh}.log").read_text().startswith("-o BatchMode=yes one export ")


def test_an_existing_scheduler_is_used_and_left_alone(embedded: Executor) -> None:
    """An address leads to the scheduler that runs there; closing leaves it running."""
    with connect(load_cluster(embedded.client.scheduler.address)) as executor:
        scans(executor)
    scans(embedded)


@pytest.mark.slow
def test_tls_is_one_setting(tmp_path: Path, batch_system: BatchSystem) -> None:
    """With [tls] scheduler, workers and client talk TLS, and a client without the certificate is refused."""
    from distributed import Client

    tls = own_certificate(tmp_path)
    batch_system(Slurm)
    with connect(Slurm(host="127.0.0.1", tls=tls, python=sys.executable, environment=here())) as executor:
        address = executor.client.scheduler.address
        assert address.startswith("tls://")
        scans(executor)
        with pytest.raises((OSError, TypeError)):
            Client(address.replace("tls://", "tcp://"), timeout="2 s", set_as_default=False)


def test_a_failing_submission_says_what_the_batch_system_said(command: Command) -> None:
    """A submit command that fails, or answers nonsense, is a RunError with its words."""
    command("scancel", TEXT)
    spec = Slurm(host="127.0.0.1", insecure=True)
    command("sbatch", TEXT + "sys.exit('sbatch: error: invalid partition')")
    with pytest.raises(RunError, match="sbatch failed with status 1: sbatch: error: invalid partition"):
        connect(spec)
    command("sbatch", TEXT + "print('hello')")
    with pytest.raises(RunError, match="sbatch answered 'hello.*expected the id of a job"):
        connect(spec)


@pytest.mark.specimens(1)
@pytest.mark.parametrize(
    ("kind", "answer", "cancelled"),
    [
        (Slurm, "77;other", "-M other 77"),
        (Slurm, "12 jobs of yours wait\n123", "123"),
        (Slurm, "2026-11-22 maintenance\n123", "123"),
        (Sge, "5 warnings\n123.1-2:1", "123"),
    ],
)
def test_the_array_that_was_submitted_is_cancelled(
    kind: type[Batch], answer: str, cancelled: str, command: Command
) -> None:
    """Of an answer with more digits than the array's number, that is what is cancelled, on the cluster that has it."""
    command("sbatch" if kind is Slurm else "qsub", TEXT + f"print({answer!r})")
    note = command("scancel" if kind is Slurm else "qdel", TEXT)
    array = JobArray(kind(host="127.0.0.1", insecure=True), "tcp://127.0.0.1:1")
    array.submit()
    array.cancel()
    assert Path(f"{note}.log").read_text() == f"{cancelled}\n"


def test_an_array_that_could_not_be_cancelled_is_not_forgotten(
    command: Command, caplog: pytest.LogCaptureFixture
) -> None:
    """An array whose cancelling failed is told as a warning when another is submitted in its place, and cancelled with
    that in the end; one that has ended already is neither told nor asked for again.
    """
    submit = command("sbatch", TEXT + "print(77)")
    cancel = command("scancel", TEXT + "sys.exit('scancel: error: Unable to contact slurm controller')")
    array = JobArray(Slurm(host="127.0.0.1", insecure=True), "tcp://127.0.0.1:1")
    array.submit()
    command("sbatch", TEXT + "print(78)")
    array.resubmit()
    (told,) = (record for record in caplog.records if record.levelname == "WARNING")
    assert told.message.endswith("slurm controller; see whether any of these is in the queue still: 77")
    command("scancel", TEXT + "sys.exit('scancel: error: Invalid job id specified' if sys.argv[1] == '78' else 0)")
    array.cancel()
    array.cancel()
    assert noted(cancel) == ["77", "77", "78"]
    assert len(noted(submit)) == 2


def test_a_command_that_hangs_ends_with_what_it_started(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ``sbatch`` is a wrapper, the real one does not outlive its time limit; the error has the job's name."""
    # not above, as in conftest.py
    from coremargin.engine.clusters import processes

    monkeypatch.setattr(processes, "ANSWER_S", 1.0)
    wrapper = command("sbatch", "#!/bin/sh\nsleep 60 &\necho $! > $0.pid\nwait\n")
    with pytest.raises(RunError, match="^sbatch did not answer within .*in the queue all the same: look for mine$"):
        JobArray(Slurm(host="127.0.0.1", insecure=True, name="mine"), "tcp://127.0.0.1:1").submit()
    pid = int(Path(f"{wrapper}.pid").read_text())
    deadline = time.monotonic() + 60
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_of_two_numbers_none_is_cancelled(command: Command) -> None:
    """An answer that may mean one job or another is a RunError with its words, and no job is cancelled for it."""
    command("sbatch", TEXT + "print('77\\n78')")
    note = command("scancel", TEXT)
    with pytest.raises(
        RunError, match=r"sbatch answered '77\\n78\\n'; expected the id of a job, once; .*look for coremargin"
    ):
        connect(Slurm(host="127.0.0.1", insecure=True))
    assert not Path(f"{note}.log").exists()


def test_a_queue_that_does_not_move_ends_in_time(command: Command) -> None:
    """When no worker comes within ``start_timeout``, the job is cancelled and RunError says where to look."""
    command("sbatch", TEXT + "print(77)")
    cancel = command("scancel", TEXT)
    with pytest.raises(RunError, match=r"Slurm job 77.*no worker within 0.20 s; look at the queue"):
        connect(Slurm(host="127.0.0.1", insecure=True, start_timeout=specs.Seconds(0.2)))
    assert Path(f"{cancel}.log").read_text() == "77\n"


def test_an_ssh_that_fails_ends_the_wait_with_its_words(command: Command) -> None:
    """Nobody waits for ``start_timeout`` once every ssh has ended; the error has the last line and status of each."""
    command("ssh", TEXT + "print('banner'); sys.exit(f'ssh: Could not resolve hostname {sys.argv[3]}')")
    spec = Ssh(hosts=("one", "two"), host="127.0.0.1", insecure=True, start_timeout=specs.Seconds(3600))
    with pytest.raises(RunError, match="see that the command runs by hand") as raised:
        connect(spec)
    for host in ("one", "two"):
        assert f"ssh {host} ended with status 1: ssh: Could not resolve hostname {host}; " in str(raised.value)


@pytest.mark.slow
def test_one_ssh_that_fails_is_told_and_the_others_work(command: Command, caplog: pytest.LogCaptureFixture) -> None:
    """A host that cannot be reached is named at once; the scan is done by those that can."""
    command(
        "ssh",
        TEXT + "if 'bad' in sys.argv: sys.exit('Permission denied (publickey).')\n"
        "import time\ntime.sleep(1)\nsys.exit(subprocess.call(['sh', '-c', sys.argv[-1]]))",
    )
    spec = Ssh(hosts=("bad", "good"), host="127.0.0.1", insecure=True, python=sys.executable, environment=here())
    with connect(spec) as executor:
        scans(executor)
    assert "ssh bad ended with status 1: Permission denied (publickey)." in caplog.messages


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (Slurm(insecure=True), "sbatch"),
        (Ssh(hosts=("a",), insecure=True), "ssh"),
        (Kubernetes(image="x", insecure=True), "kubectl"),
    ],
)
def test_a_missing_command_is_named(spec: clusters.ClusterSpec, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the command of the batch system nothing is started, and the error names it."""
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UsageError, match=f"'{name}' is not on this host"):
        connect(spec)


@pytest.mark.parametrize("name", ["sbatch", "ssh"])
def test_a_command_that_cannot_be_run_is_a_run_error(
    command: Command, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the system says of a command that is there, but does not run, ends the start with its name."""
    command("scancel", TEXT)
    monkeypatch.setenv("PATH", str(command(name, "#!/nonexistent/sh\n").parent))
    kind: Callable[..., clusters.ClusterSpec] = Slurm if name == "sbatch" else partial(Ssh, hosts=("one",))
    with pytest.raises(RunError, match=f"^{name}.* cannot be run: .*No such file"):
        connect(kind(host="127.0.0.1", insecure=True))


def test_no_scheduler_at_an_address_is_a_run_error() -> None:
    """An address where nobody listens is a RunError that names it."""
    with pytest.raises(RunError, match="no Dask scheduler answers at tcp://127.0.0.1:1"):
        connect(Address(address="tcp://127.0.0.1:1", start_timeout=specs.Seconds(1)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('kind = "slurm"', "without TLS.*insecure = true"),
        ('kind = "address"\naddress = "tcp://10.0.0.1:8786"', "without TLS"),
        ('kind = "address"\naddress = "tls://127.0.0.1:8786"', "needs \\[tls\\]"),
        ('kind = "address"\naddress = "10.0.0.1:8786"', "address: expected tcp://HOST:PORT, .*; found '10.0.0.1:8786'"),
        ('kind = "slrum"', "did you mean 'slurm'"),
        ("jobs = 2", "key 'kind' is missing"),
        ('kind = "slurm"\nmemroy = 3', "unknown key 'memroy'; did you mean 'memory'"),
        ('kind = "slurm"\ninsecure = true\nthreads = 3\nworkers = 2', "threads = 3 cannot be shared evenly"),
        ('kind = "slurm"\ninsecure = true\nqueue = "a\\n#SBATCH --x"', "queue: expected text without spaces"),
        ('kind = "slurm"\ninsecure = true\nmemory = 4', 'memory: not a size with a unit: 4; write "4 GiB", or "4 B"'),
        ('kind = "pbs"\ninsecure = true\nmemory = "34359738368"', 'write "32 GiB", or "34359738368 B"'),
        ('kind = "sge"\ninsecure = true\nmemory = "4 parsec"', 'not a size with a unit: .4 parsec.; write "2 GiB"'),
        (
            'kind = "ssh"\nhosts = ["a"]\ninsecure = true\nenvironment = { DB_PASSWORD = "x" }',
            "DB_PASSWORD looks like a cred",
        ),
        ('kind = "embedded"\nworkers = 0', "workers: expected int >= 1; found 0"),
        ('kind = "htcondor"\ninsecure = true\ndirectives = ["nice_user"]', "'nice_user' is not name = value"),
        ('kind = "pbs"\n[tls]\nca = "/my ca.pem"\ncert = "/c.pem"\nkey = "/k.pem"', "/my ca.pem: dask-jobqueue"),
        ('kind = "lsf"', "without TLS.*insecure = true"),
    ],
)
def test_bad_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    """What is unsafe, unknown or impossible in a cluster file is a SpecError that names the file."""
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(SpecError, match=message) as caught:
        load_cluster(file)
    assert str(file) in str(caught.value)


def test_missing_certificates_are_named(tmp_path: Path) -> None:
    """A certificate that is not there is a UsageError with its path."""
    tls = Tls(ca=tmp_path / "ca.pem", cert=tmp_path / "c.pem", key=tmp_path / "k.pem")
    with pytest.raises(
        UsageError, match=r"\[tls\] of the cluster file: .*ca.pem is not a file on this host; give one that is"
    ):
        connect(Address(address="tls://127.0.0.1:1", tls=tls))


def test_defaults_follow_the_size_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small stores are scanned in this process; large ones by embedded workers that share all cores."""
    monkeypatch.setattr(clusters, "cores", lambda: 20)
    assert load_cluster(None) == Auto()
    assert resolve(Auto(), 2**20) == Threads(threads=20)
    assert resolve(Auto(), 2**40) == Embedded(workers=3, threads=6)
    assert resolve(Embedded(threads=4), 0) == Embedded(workers=5, threads=4)
    assert resolve(Embedded(workers=2), 0) == Embedded(workers=2, threads=10)
    assert resolve(Embedded(processes=False), 0) == Embedded(workers=1, threads=20, processes=False)
    assert check(Threads(), "here") == Threads()


@pytest.mark.parametrize("kind", ["threads", "auto"])
def test_a_bare_kind_is_enough(kind: str) -> None:
    """``--cluster threads`` needs no file, and a small source never starts a cluster."""
    source = FakeHandle(rows=50).open_source()
    with connect(load_cluster(kind), source) as executor:
        assert executor.description.startswith("in this process")
        assert len(list(executor.run(source, Slow(), plan_blocks(source)))) == 5
