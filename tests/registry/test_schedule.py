"""What starts a nightly job: the texts for schedulers, read by what reads them, whatever the job's path has in it."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self, get_args

import jinja2
import pytest
import yaml

from coremargin.errors import UsageError
from coremargin.registry.schedule import On, Schedule, schedule_text, time_of

if TYPE_CHECKING:
    from click.testing import Result

#: Plain, and with all that means something to a scheduler or a shell.
PATHS = ("/data/jobs/nightly.toml", '/data/it\'s 100% of {{ $HOME }}/night "ly" #1\\.toml')


@pytest.fixture(params=PATHS, ids=["plain", "odd"])
def schedule(request: pytest.FixtureRequest) -> Schedule:
    """A job at half past two."""
    return Schedule(Path(request.param), ["/opt/core margin/bin/coremargin"], 2, 30)


def in_shell(command: str) -> list[str]:
    """The words that a shell makes of a command, before what it is sent to."""
    return shlex.split(command.partition(" >> ")[0])


@pytest.mark.parametrize("on", ["cron", "scrontab"])
def test_lines_of_a_crontab(schedule: Schedule, on: On) -> None:
    """Five fields that say when; cron takes a % only behind a backslash, and the shell then has the words."""
    lines = [line for line in schedule_text(on, schedule).splitlines() if not line.startswith("#")]
    assert len(lines) == 1
    fields = lines[0].split(" ", 5)
    assert fields[:5] == ["30", "2", "*", "*", "*"]
    assert not re.search(r"(?<!\\)%", fields[5])
    assert in_shell(fields[5].replace("\\%", "%")) == schedule.words
    croniter = pytest.importorskip("croniter")
    assert croniter.croniter.is_valid(" ".join(fields[:5]))


def test_crontab_takes_its_lines(schedule: Schedule, tmp_path: Path) -> None:
    """`crontab -T`, which Debian calls `crontab -n`, finds nothing wrong, and does with a line that is none."""
    crontab = shutil.which("crontab")
    if crontab is None:
        pytest.skip("no crontab on this machine")
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text(schedule_text("cron", schedule))
    bad.write_text("every night coremargin\n")

    def taken(tab: Path) -> bool:
        run = [
            subprocess.run([crontab, how, tab], capture_output=True, check=False, timeout=60) for how in ("-T", "-n")
        ]
        return any(not done.returncode for done in run)

    assert (taken(good), taken(bad)) == (True, False)


def test_systemd_reads_its_units(schedule: Schedule, tmp_path: Path) -> None:
    """`systemd-analyze verify` finds nothing wrong with the service and the timer, and the command is what it was."""
    text = schedule_text("systemd", schedule)
    parts = re.split(r"^# ~/\.config/systemd/user/(\S+)$", text, flags=re.MULTILINE)[1:]
    units = dict(zip(parts[::2], parts[1::2], strict=True))
    assert list(units) == [f"{schedule.name}.service", f"{schedule.name}.timer"]
    command = next(line for line in parts[1].splitlines() if line.startswith("ExecStart="))
    read = command.removeprefix("ExecStart=").replace("%%", "%").replace("$$", "$")
    assert shlex.split(read) == schedule.words
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd on this machine")
    there = text.replace('"/opt/core margin/bin/coremargin"', "/bin/true")  # it looks for the program
    for name, unit in zip(units, re.split(r"^# ~.*$", there, flags=re.MULTILINE)[1:], strict=True):
        (tmp_path / name).write_text(unit)
    done = subprocess.run(
        [analyze, "verify", "--man=no", *(str(tmp_path / name) for name in units)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, [line for line in done.stderr.splitlines() if "coremargin" in line]) == (0, [])


def test_kubernetes_reads_its_manifest(schedule: Schedule) -> None:
    """A CronJob that runs one job at a time, with the folder of the job where it is; valid by the API's schema."""
    found = yaml.safe_load(schedule_text("kubernetes", schedule))
    spec = found["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert (found["kind"], found["spec"]["concurrencyPolicy"]) == ("CronJob", "Forbid")
    assert spec["containers"][0]["command"] == ["coremargin", "run", str(schedule.job)]
    assert spec["containers"][0]["volumeMounts"][0]["mountPath"] == str(schedule.job.parent)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?", found["metadata"]["name"])
    validate = pytest.importorskip("kubernetes_validate")
    validate.validate(found, "1.29", strict=True)


class _Dag:
    """What a stand-in for Airflow was given."""

    given: dict[str, Any]

    def __init__(self, **given: Any) -> None:
        type(self).given = given

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class _Bash(_Dag):
    """The same of its operator."""


@pytest.mark.parametrize("newer", [True, False])
def test_airflow_reads_its_dag(schedule: Schedule, newer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is Python, for Airflow 2 and 3; the command is the same once templates are filled in and a shell read it."""
    place = "airflow.providers.standard.operators.bash" if newer else "airflow.operators.bash"
    names = [place.rsplit(".", depth)[0] for depth in range(place.count(".") + 1)]
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["airflow"].DAG = _Dag  # type: ignore[attr-defined]
    sys.modules[place].BashOperator = _Bash  # type: ignore[attr-defined]
    text = schedule_text("airflow", schedule)
    exec(compile(ast.parse(text), "dag.py", "exec"), {})  # noqa: S102 - what we print, to see what it does
    assert _Dag.given["schedule"] == "30 2 * * *"
    assert _Bash.given["skip_on_exit_code"] == 75
    rendered = jinja2.Environment().from_string(_Bash.given["bash_command"]).render()  # noqa: S701 - a shell's text
    assert shlex.split(rendered) == schedule.words


@pytest.mark.slow
def test_airflow_itself_loads_its_dag(schedule: Schedule, tmp_path: Path) -> None:
    """Where Airflow 3 is installed, its parser finds one DAG and no error."""
    bag = pytest.importorskip("airflow.dag_processing.dagbag")
    (tmp_path / "dag.py").write_text(schedule_text("airflow", schedule))
    found = bag.DagBag(str(tmp_path))
    assert (list(found.dags), found.import_errors) == ([schedule.name], {})


@pytest.mark.parametrize("on", get_args(On))
def test_the_command_prints_it(run_cli: Callable[..., Result], tmp_path: Path, on: str) -> None:
    """For a nightly job alone, at a time of the day."""
    job = tmp_path / "nightly.toml"
    job.write_text('job = "nightly"\nstore = "rows.zarr"\nregistry = "models"\n')
    text = run_cli("schedule", job, "--on", on, "--at", "23:05").output
    assert str(job) in text
    assert "23:05" in text or "5 23 * * *" in text
    job.write_text('job = "train"\nstore = "rows.zarr"\nout = "m"\n')
    assert "expected a nightly job" in run_cli("schedule", job, "--on", on, exit_code=2).stderr


def test_times_and_paths_that_cannot_be() -> None:
    """A time that is none, a path with a line break: refused."""
    for text in ("24:00", "2", "02:60", "noon", "２:30"):
        with pytest.raises(UsageError, match="expected a time of the day"):
            time_of(text)
    with pytest.raises(UsageError, match="line break"):
        schedule_text("cron", Schedule(Path("/data/a\nb.toml"), ["coremargin"], 1, 2))
