"""What dask-jobqueue is told for PBS, LSF and HTCondor: the text that is submitted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import dask
import pytest
from click.testing import CliRunner

from coremargin import spec as specs
from coremargin.cli import main
from coremargin.engine.clusters.connect import render
from coremargin.engine.clusters.specs import HtCondor, JobQueue, Lsf, Pbs, Slurm, Tls, check
from stand_ins import jobs_here


@pytest.mark.parametrize(("seconds", "asked"), [(1, "00:01"), (60, "00:01"), (61, "00:02"), (7200, "02:00")])
def test_lsf_is_asked_for_no_less_time_than_the_spec_says(seconds: int, asked: str) -> None:
    """LSF counts minutes: a walltime between two of them is rounded up, never to none."""
    text = render(jobs_here(Lsf, walltime=specs.Seconds(seconds)))
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
    text = render(jobs_here(kind, **options))
    assert set(expected) <= set(text.splitlines())
    assert 0 < text.index("cd /x") < text.index("dask_worker")
    assert not Path("/logs").exists()


@pytest.mark.filterwarnings("ignore:.* has been renamed to:FutureWarning")
@pytest.mark.parametrize("kind", [Pbs, Lsf, HtCondor])
def test_a_file_of_dask_jobqueue_overrules_nothing(kind: type[JobQueue]) -> None:
    """What a cluster file says, or means by default, is not replaced by what a ``jobqueue.yaml`` says; what it leaves
    out is taken from there.
    """
    spec = jobs_here(kind, threads=4, workers=2)
    said = render(spec)
    its = {
        "cores": 1,
        "memory": "1 GB",
        "processes": 1,
        "mem": 1,
        "ncpus": 1,
        "resource-spec": "select=1:ncpus=1",
        "walltime": "00:01",
        "lsf-units": "gb",
        "job-directives-skip": ["-l", "-n", "-R"],
        "header-skip": ["-l", "-n", "-R"],
        "env-extra": ["exit"],
        "extra": ["--preload", "x"],
        "job-extra": {} if kind is HtCondor else ["-x"],
        "name": "other",
        "death-timeout": 1,
        "worker-extra-args": ["--preload", "x"],
        "job-script-prologue": ["exit"],
    }
    tag = spec.__struct_config__.tag
    with dask.config.set({f"jobqueue.{tag}.{name}": value for name, value in its.items()}):
        assert render(spec) == said
    with dask.config.set({f"jobqueue.{tag}.local-directory": "/scratch"}):
        assert "--local-directory /scratch" in render(spec)


@pytest.mark.parametrize("kind", [Pbs, Lsf, HtCondor])
def test_tls_is_in_the_script(kind: type[JobQueue]) -> None:
    """The workers' files and protocol stand in what ``render`` says, and need not be here for it."""
    text = render(jobs_here(kind, tls=Tls(ca=Path("/c/ca.pem"), cert=Path("/c/cert.pem"), key=Path("/c/key.pem"))))
    wanted = "--protocol tls:// --tls-ca-file /c/ca.pem --tls-cert /c/cert.pem --tls-key /c/key.pem"
    assert wanted in text


def test_odd_lines_of_setup_do_not_keep_a_worker_from_its_start() -> None:
    """Comments and an & at the end, in the lines that HTCondor gets as one, end with their own line."""
    setup = ("NOTE='a  # b'  # needed", "true &", "", "# on its own", 'test "$NOTE" = "a  # b" || exit 3')
    text = render(HtCondor(insecure=True, python="echo", setup=setup))
    quoted = re.search('^Arguments = "-c (.*)"$', text, re.MULTILINE)
    assert quoted is not None
    line = quoted[1].replace('""', '"')[1:-1].replace("''", "'")
    done = subprocess.run(["sh", "-c", line], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("-m distributed.cli.dask_worker SCHEDULER")


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


@pytest.mark.specimens(1)
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


def test_another_error_of_the_import_is_told_as_it_is(tmp_path: Path) -> None:
    """In the main thread a ValueError of dask-jobqueue, or of what it reads, is not taken for one about threads."""
    (tmp_path / "dask_jobqueue.py").write_text("raise ValueError('no such unit')")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", "import coremargin.engine.clusters.jobqueue"], env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr.endswith("ValueError: no such unit\n")
