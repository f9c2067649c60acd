"""What starts a nightly job: the texts for schedulers, read by what reads them, whatever the job's path has in it."""

from __future__ import annotations

import ast
import os
import random
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
from coremargin.registry.schedule import On, Schedule, parse_time, schedule_text

if TYPE_CHECKING:
    from click.testing import Result

#: Plain, and with all that means something to a scheduler or a shell.
PATHS = ("/data/jobs/nightly.toml", '/data/it\'s 100% of {{ $HOME }}/night "ly" #1\\.toml')
#: What means something to one of them, to be put together.
SIGNS = (
    "'", '"', "\\", "%", "$", "$$", "$(HOME)", "${HOME}", "`id`",
    "{{", "}}", "{%", "%}", "{#", "#}", "{", " ", "#", ";",
    "&", "|", "<", ">", "*", "?", "[a]", "~", "!", "=", "-", "--", "@", ":", "é", "\U0001f642", "\\x27", "\\n", "%h",
    "{% endraw %}", "{% raw %}", "''", "\\\\", "\\%", "%%", "a",
)  # fmt: skip


def nasty_names(seed: int, many: int) -> list[str]:
    """Names of files: each sign alone, at both ends and doubled, and signs by chance."""
    chance = random.Random(seed)  # noqa: S311 - names, not secrets
    by_chance = ["".join(chance.choices(SIGNS, k=chance.randint(2, 9))) for _ in range(many)]
    return [*(f"{sign}{sign}a{sign}" for sign in SIGNS), *by_chance, "x.log", "{% endraw %}{{ '\\x27' }};touch PWNED"]


@pytest.fixture(params=PATHS, ids=["plain", "odd"])
def schedule(request: pytest.FixtureRequest) -> Schedule:
    """A job at half past two."""
    return Schedule(Path(request.param), ["/opt/core margin/bin/coremargin"], 2, 30)


@pytest.fixture
def nasty(tmp_path: Path) -> list[Schedule]:
    """Jobs with nasty names, and a command that prints its words."""
    command = tmp_path / "bin" / "core margin"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    command.chmod(0o755)
    (tmp_path / "jobs").mkdir()
    return [Schedule(tmp_path / "jobs" / name, [str(command)], 2, 30) for name in nasty_names(3, 100)]


def words_in_shell(script: str, schedule: Schedule) -> list[str]:
    """What the command was given by /bin/sh, by what it wrote into its log."""
    folder = schedule.job.parent
    done = subprocess.run(["/bin/sh", "-c", script], cwd=folder, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), (script, done.stderr)
    assert [entry.name for entry in folder.iterdir()] == [Path(schedule.log).name]  # no other command ran
    words = Path(schedule.log).read_text().split("\0")[:-1]
    Path(schedule.log).unlink()
    return words


def in_cron(command: str, *, doubled: bool) -> str:
    """What cron gives to the shell; doubled: two backslashes are one, as in Vixie's cron and not in cronie's."""
    found = list[str]()
    signs = iter(command)
    for sign in signs:
        if sign == "%":
            break
        if sign != "\\":
            found.append(sign)
            continue
        after = next(signs, "")
        found.append(after if after == "%" or (doubled and after == "\\") else sign + after)
    return "".join(found)


def command_of(on: On, schedule: Schedule) -> str:
    """The command in the only line of a crontab that is no comment, which runs at half past two."""
    lines = [line for line in schedule_text(on, schedule).splitlines() if not line.startswith("#")]
    assert len(lines) == 1
    fields = lines[0].split(" ", 5)
    assert fields[:5] == ["30", "2", "*", "*", "*"]
    return fields[5]


def test_cron_runs_the_job_and_nothing_else(nasty: list[Schedule]) -> None:
    """Whatever is in the name, with both readings of two backslashes."""
    for one in nasty:
        for doubled in (False, True):
            command = in_cron(command_of("cron", one), doubled=doubled)
            assert words_in_shell(command, one) == ["run", str(one.job)]


def test_cron_takes_so_many_bytes() -> None:
    """A command that cron would cut is refused."""
    assert len(command_of("cron", Schedule(Path("/" + "x" * 400), ["c"], 2, 30))) < 990
    with pytest.raises(UsageError, match="at most 990 bytes"):
        schedule_text("cron", Schedule(Path("/" + "é" * 250), ["c"], 2, 30))


def test_scrontab_runs_the_job_and_nothing_else(nasty: list[Schedule]) -> None:
    """Slurm takes the command as it is; its options, which are split at spaces, hold nothing of the path."""
    for one in nasty:
        assert words_in_shell(command_of("scrontab", one), one) == ["run", str(one.job)]
        options = [line for line in schedule_text("scrontab", one).splitlines() if line.startswith("#SCRON")]
        assert all(re.fullmatch(r"#SCRON --[a-z-]+=[\w:/-]+", line, re.ASCII) for line in options)


def in_systemd(line: str) -> list[str]:
    """The words of an ExecStart, by the rules of systemd.syntax(7) and systemd.service(5)."""
    words, rest = list[str](), line
    while rest:
        word = re.match(r'"((?:[^"\\]|\\["\\])*)"(?: |$)|([^\s"\'\\;]+)(?: |$)', rest)
        assert word, rest
        found = word[2] if word[1] is None else re.sub(r'\\(["\\])', r"\1", word[1])
        assert not re.sub("%%", "", found).count("%"), "a specifier"
        found = found.replace("%%", "%")
        if words:  # the program is no place for variables
            assert "$" not in found.replace("$$", "")
            found = found.replace("$$", "$")
        words.append(found)
        rest = rest[word.end() :]
    return words


def test_systemd_has_the_words(nasty: list[Schedule]) -> None:
    """Quotes, escapes, specifiers and variables mean nothing; no line goes on in the next one."""
    for one in nasty:
        lines = schedule_text("systemd", one).splitlines()
        command = next(line for line in lines if line.startswith("ExecStart=")).removeprefix("ExecStart=")
        assert in_systemd(command) == one.command_line
        assert not any(line.endswith("\\") for line in lines)
        assert all(line.isascii() or line.startswith("ExecStart=") for line in lines)


@pytest.mark.parametrize("program", ["/opt/$HOME/c", "/opt/it's/c", '/opt/"/c', "/opt/a\\b/c"])
def test_systemd_takes_no_such_program(program: str) -> None:
    """A program with a variable, quotes or backslashes in its path is refused."""
    with pytest.raises(UsageError, match="systemd needs a program"):
        schedule_text("systemd", Schedule(Path("/a.toml"), [program], 2, 30))


def in_kubernetes(text: str) -> str:
    """An element of a container's command, with $(NAME) filled in, and $$ for $."""
    return re.sub(r"\$\$|\$\([^)]*\)", lambda found: "$" if found[0] == "$$" else "FILLED IN", text)


def test_kubernetes_has_the_words(nasty: list[Schedule]) -> None:
    """A loader of YAML finds the path; nothing is filled in."""
    for one in nasty:
        found = yaml.safe_load(schedule_text("kubernetes", one))
        command = found["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["command"]
        assert [in_kubernetes(word) for word in command] == ["coremargin", "run", str(one.job)]


@pytest.mark.parametrize("path", ["/a:b/c.toml", "/c.toml"])
def test_kubernetes_mounts_no_such_folder(path: str) -> None:
    """A folder with a colon, and the root, are refused."""
    with pytest.raises(UsageError, match="Kubernetes cannot mount"):
        schedule_text("kubernetes", Schedule(Path(path), ["c"], 2, 30))


def test_airflow_runs_the_job_and_nothing_else(nasty: list[Schedule]) -> None:
    """Jinja finds nothing to fill in, and bash has the words."""
    for one in nasty:
        calls = [node for node in ast.walk(ast.parse(schedule_text("airflow", one))) if isinstance(node, ast.Call)]
        given = {word.arg: word.value for call in calls for word in call.keywords}
        command = ast.literal_eval(given["bash_command"])
        assert not command.endswith((".sh", ".bash"))
        rendered = jinja2.Environment().from_string(command).render()  # noqa: S701 - a shell's text
        assert rendered == command
        done = subprocess.run(["bash", "-c", rendered], cwd=one.job.parent, capture_output=True, check=True, timeout=60)
        assert done.stdout.decode().split("\0")[:-1] == ["run", str(one.job)]
        assert not list(one.job.parent.iterdir())


@pytest.mark.parametrize("name", ["a\nb", "a\tb", "a\x1bb", "a\x7fb", "a\x85b", "a\u2028b", "a\udcffb", "a\xa0b"])
@pytest.mark.parametrize("on", get_args(On))
def test_what_is_not_printable_is_refused(on: On, name: str) -> None:
    """Line breaks of all kinds, control characters, bytes that are not UTF-8, in the path or in other words."""
    for one in (
        Schedule(Path(f"/data/{name}"), ["c"], 2, 30), Schedule(Path("/d/a"), [f"/{name}"], 2, 30),
        Schedule(Path("/d/a"), ["c"], 2, 30, image=name), Schedule(Path("/d/a"), ["c"], 2, 30, claim=name),
    ):  # fmt: skip
        with pytest.raises(UsageError, match="printable characters only"):
            schedule_text(on, one)


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
    """`systemd-analyze verify` finds nothing wrong with the service and the timer."""
    text = schedule_text("systemd", schedule)
    parts = re.split(r"^# ~/\.config/systemd/user/(\S+)$", text, flags=re.MULTILINE)[1:]
    units = dict(zip(parts[::2], parts[1::2], strict=True))
    assert list(units) == [f"{schedule.name}.service", f"{schedule.name}.timer"]
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
    assert spec["containers"][0]["volumeMounts"][0]["mountPath"] == str(schedule.job.parent)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?", found["metadata"]["name"])
    validate = pytest.importorskip("kubernetes_validate")
    for version in ("1.29", validate.latest_version()):
        validate.validate(found, version, strict=True)


CLUSTER = """kind = "kubernetes"
image = "registry.example.org/coremargin:0.1"
namespace = "research"
threads = 8
memory = "16 GiB"
volume_claim = "stores"
env_from = ["bucket-keys"]
service_account = "runner"
image_pull_secrets = ["registry"]
node_selector = { "kubernetes.io/arch" = "amd64" }
tolerations = [{ key = "dedicated", value = "batch", effect = "NoSchedule" }]
annotations = { note = "nightly" }
insecure = true
"""


def test_a_cluster_file_gives_the_pod_what_it_says(run_cli: Callable[..., Result], tmp_path: Path) -> None:
    """Image, volume, secrets, account, nodes and resources of pods; valid by the newest schema."""
    job, file = tmp_path / "jobs" / "nightly.toml", tmp_path / "kubernetes.toml"
    job.parent.mkdir()
    job.write_text('job = "nightly"\nstore = "rows.zarr"\nregistry = "models"\n')
    file.write_text(f'{CLUSTER}mount = "{tmp_path}"\n')
    text = run_cli("schedule", job, "--on", "kubernetes", "--cluster", file).stdout
    assert text.startswith(f"# kubectl apply -f THIS; the volume stores holds {tmp_path}\n")
    found = yaml.safe_load(text)
    assert found["metadata"]["namespace"] == "research"
    template = found["spec"]["jobTemplate"]["spec"]["template"]
    pod, amounts = template["spec"], {"cpu": "8", "memory": "16384Mi"}
    (container,) = pod["containers"]
    assert template["metadata"]["annotations"] == {"note": "nightly"}
    assert (container["image"], container["command"]) == (
        "registry.example.org/coremargin:0.1",
        ["coremargin", "run", str(job)],
    )
    assert "env" not in container
    assert container["envFrom"] == [{"secretRef": {"name": "bucket-keys"}}]
    assert container["resources"] == {"requests": amounts, "limits": amounts}
    assert container["volumeMounts"] == [{"name": "store", "mountPath": str(tmp_path)}]
    assert pod["volumes"] == [{"name": "store", "persistentVolumeClaim": {"claimName": "stores"}}]
    assert (pod["serviceAccountName"], pod["restartPolicy"]) == ("runner", "Never")
    assert (pod["imagePullSecrets"], pod["nodeSelector"]) == ([{"name": "registry"}], {"kubernetes.io/arch": "amd64"})
    assert pod["tolerations"][0]["key"] == "dedicated"
    assert pod["securityContext"] == {"runAsNonRoot": True}
    validate = pytest.importorskip("kubernetes_validate")
    validate.validate(found, validate.latest_version(), strict=True)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            f'{CLUSTER}mount = "/elsewhere"',
            [],
            "expected a job below /elsewhere, where the cluster file mounts the volume",
        ),
        (CLUSTER.replace('volume_claim = "stores"', ""), [], "the cluster file has no volume_claim"),
        ('kind = "threads"', [], "expected kind = \"kubernetes\", found 'threads'"),
        (CLUSTER, ["--image", "a"], "--cluster cannot be combined with --image"),
        (CLUSTER, ["--on", "cron"], "--cluster is for --on kubernetes, not for cron"),
        (f"{CLUSTER}memroy = 3", [], "did you mean 'memory'"),
    ],
)
def test_cluster_files_that_cannot_hold_the_job(
    run_cli: Callable[..., Result], tmp_path: Path, text: str, options: list[str], message: str
) -> None:
    """Each with what to do, and nothing is printed."""
    job, file = tmp_path / "nightly.toml", tmp_path / "cluster.toml"
    job.write_text('job = "nightly"\nstore = "rows.zarr"\nregistry = "models"\n')
    file.write_text(text)
    done = run_cli("schedule", job, "--on", "kubernetes", "--cluster", file, *options, exit_code=2)
    assert message in done.stderr
    assert done.stdout == ""


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
    assert shlex.split(rendered) == schedule.command_line


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


def test_jobs_have_names_of_their_own() -> None:
    """Files that are called alike, or nearly, install beside each other, by names that Kubernetes takes."""
    paths = ["/a/nightly.toml", "/b/nightly.toml", "/a/Nightly!.toml", f"/a/{'x' * 90}.toml", f"/a/{'x' * 91}.toml"]
    paths += ["/a/é.toml", f"/a/{'x' * 31}-y.toml"]
    names = [Schedule(Path(path), ["coremargin"], 2, 30).name for path in paths]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])", name) for name in names)


def test_times_that_cannot_be() -> None:
    """A time that is none is refused."""
    for text in ("24:00", "2", "02:60", "noon", "２:30"):
        with pytest.raises(UsageError, match="expected a time of day"):
            parse_time(text)


def test_an_output_without_the_characters_is_refused(tmp_path: Path) -> None:
    """A path that the encoding of the output cannot hold is not printed as another one."""
    job = tmp_path / "nächtlich.toml"
    job.write_text('job = "nightly"\nstore = "rows.zarr"\nregistry = "models"\n')
    environment = {"PYTHONIOENCODING": "ascii", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-m", "coremargin", "schedule", job, "--on", "cron"],
        env=environment, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, b"set PYTHONIOENCODING=utf-8" in done.stderr) == (2, True)
