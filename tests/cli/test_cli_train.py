"""The commands train, run and plan as people and machines meet them."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import coremargin
from coremargin.data.writer import StoreWriter
from coremargin.engine.checkpoint import Checkpoint
from coremargin.problems.kind import SCANS_AFTER_SAMPLE

if TYPE_CHECKING:
    from click.testing import Result

    from coremargin.data.store import Store

Cli = Callable[..., "Result"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(coremargin.__path__[0]).parent)}
COMMAND = [sys.executable, "-m", "coremargin"]
#: What the last line of ``train --json`` has at least.
KEYS = {
    "status", "epsilon", "lower", "upper", "ratio", "scans", "bytes_read", "store_bytes", "working_set_rows", "coreset_rows",
    "rows", "features", "seconds", "peak_rss_bytes",
}  # fmt: skip


@pytest.fixture
def store(make_separable: Callable[..., Any], make_store: Callable[..., Store]) -> Store:
    """600 separable rows of 4 features."""
    return make_store(*make_separable(600, 4))


def job_file(store: Store, **keys: Any) -> Path:
    """A job file beside the store."""
    path = store.path.with_name("job.toml")
    lines = {"job": "train", "store": store.path.name, "out": "m"} | keys
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items()))
    return path


def test_scaling_is_said_wherever_a_model_is_shown(tmp_path: Path, store: Store, run_cli: Cli) -> None:
    """Train, verify and show say that the numbers are about scaled rows; predict and evaluate take rows as they are."""
    model = tmp_path / "m"
    trained = run_cli("train", store.path, "--out", model, "--scaling", "maxabs")
    assert "scaled  each column divided by its largest absolute value; part of the model" in trained.stdout
    assert "proof is about rows scaled by the model's shift and factor" in run_cli("verify", model, store.path).stdout
    assert "what is claimed is about rows so scaled" in run_cli("show", model).stdout
    assert "scaled: each column divided by its largest absolute value" in (model / "report.html").read_text()
    assert json.loads(run_cli("evaluate", model, store.path, "--json").stdout)["accuracy"] == 1.0
    run_cli("train", store.path, "--out", tmp_path / "n", "--scaling", "log", exit_code=2)


def test_train_says_what_is_proven_and_what_to_do_next(tmp_path: Path, store: Store, run_cli: Cli) -> None:
    """Without a terminal there is a line per round on stderr and the verdict on stdout, within 100 columns."""
    result = run_cli("train", store.path, "--out", tmp_path / "m")
    lines = result.stdout.splitlines()
    assert re.fullmatch(r"certified: the margin 0\.\d+ is proven on all 600 rows;", lines[0])
    assert re.search(r"at least 99\.\d+ % of the best possible", lines[1])
    assert f"check   coremargin verify {tmp_path / 'm'} {store.path}" in lines
    assert ", 1.00 times the store: one read" in result.stdout
    progress = result.stderr.splitlines()
    assert progress[0].endswith("600 rows x 4 features, 11.7 KiB")
    assert progress[1].startswith("running in this process")
    found = r"one read: bounds 0\.\d+ to 0\.\d+ \(ratio 0\.\d{6}\); working set \d+ rows \(\+600\); read 11.7 KiB in "
    assert progress[2].startswith("working set: rows")
    assert re.match(found, progress[3])
    assert "\x1b" not in result.stderr + result.stdout
    run_cli("verify", tmp_path / "m", store.path)


def test_json(tmp_path: Path, store: Store) -> None:
    """With --json stdout is one object with all that was promised, stderr is silent, and exit codes are the same."""
    done = subprocess.run(
        [*COMMAND, "train", str(store.path), "--out", str(tmp_path / "m"), "--json"],
        env=ENVIRONMENT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    record = json.loads(done.stdout.splitlines()[-1])
    assert set(record) >= KEYS
    assert (record["status"], record["rows"], record["features"], record["scans"]) == ("certified", 600, 4, 1)
    assert record["store_bytes"] == store.nbytes
    assert record["bytes_read"] == store.nbytes
    assert 0.999 * record["upper"] <= record["lower"] <= record["upper"]
    assert record["peak_rss_bytes"] > 10 << 20


@pytest.mark.slow
def test_json_on_an_embedded_cluster_is_silent_on_stderr(tmp_path: Path, store: Store) -> None:
    """Nothing of Dask's own chatter reaches stderr; the memory of the workers is counted."""
    words = ["train", str(store.path), "--out", str(tmp_path / "m"), "--json", "--cluster", "embedded"]
    done = subprocess.run([*COMMAND, *words], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["peak_rss_bytes"] > 100 << 20
    run = json.loads((tmp_path / "m" / "run.json").read_text())
    assert run["executor"].startswith("embedded Dask, ")


def test_a_finished_model_is_told_of_and_not_vouched_for(tmp_path: Path, store: Store, run_cli: Cli) -> None:
    """Resumed when all is done, the command says that these are the model's words, and what checks them."""
    words = ("train", store.path, "--out", tmp_path / "m", "--cluster", "threads")
    first = run_cli(*words).stdout
    assert first.startswith("certified: ")
    again = run_cli(*words, "--resume").stdout
    assert again.startswith("nothing to do: ")
    assert "`coremargin verify`" in again.partition("certified: ")[0]
    assert again.endswith(first)


@pytest.mark.specimens(9)
@pytest.mark.parametrize(
    "text",
    [
        "{}", "[]", "null", '"x"', "[1", '{"a":' * 900 + "1" + "}" * 900, "scans: null", "seconds: -1", "store: 3",
        'bytes_read: "x"', "store_bytes: 0", "reason: null", "working_set_rows: 1.5",
    ],
)  # fmt: skip
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_run_record_that_is_none_ends_in_a_message(
    tmp_path: Path, store: Store, run_cli: Cli, text: str, more: tuple[str, ...]
) -> None:
    """A finished model whose run.json was altered is not resumed: the last line names the file."""
    words = ("train", store.path, "--out", tmp_path / "m", "--cluster", "threads")
    run_cli(*words)
    place = tmp_path / "m" / "run.json"
    key, colon, value = text.partition(": ")
    place.write_text(json.dumps(json.loads(place.read_text()) | {key: json.loads(value)}) if colon else text)
    found = run_cli(*words, "--resume", *more, exit_code=3)
    assert f"{place}: " in found.stderr.splitlines()[-1]
    assert "Traceback" not in found.stderr
    run_cli("show", tmp_path / "m", *more)


def test_rounds_that_are_none_end_in_a_message(tmp_path: Path, store: Store, run_cli: Cli) -> None:
    """A line of rounds.jsonl that is no record is an error with its place, as is a damaged run.json, of a fleet too."""
    words = ("train", store.path, "--out", tmp_path / "m", "--cluster", "threads", "--loss", "hinge", "--C", "1,2")
    run_cli(*words)
    assert run_cli(*words, "--resume").stdout.startswith("nothing to do: ")
    lines = tmp_path / "m" / "rounds.jsonl"
    whole = lines.read_text()
    lines.write_text(whole + "[]\n")
    assert f"{lines}, line " in run_cli(*words, "--resume", exit_code=3).stderr
    lines.write_text(whole)
    place = tmp_path / "m" / "run.json"
    place.write_text(json.dumps({k: v for k, v in json.loads(place.read_text()).items() if k != "members"}))
    assert "key 'members' is missing" in run_cli(*words, "--resume", exit_code=3).stderr


@pytest.mark.parametrize("depth", [150, 600, 980])
def test_a_store_that_says_too_much_about_itself(store: Store, run_cli: Cli, depth: int) -> None:
    """What is nested hundreds of levels deep is damage, named by its file, for people and for machines."""
    place = store.path / "zarr.json"
    record = json.loads(place.read_text())
    record["attributes"]["about"] = {"x": "@"}
    place.write_text(json.dumps(record).replace('"@"', "[" * depth + "]" * depth))
    for more in ((), ("--json",)):
        found = run_cli("info", store.path, *more, exit_code=3)
        assert "nested too deep" in found.stderr


def test_quiet(tmp_path: Path, store: Store, run_cli: Cli) -> None:
    """With --quiet there is the result and nothing else."""
    result = run_cli("train", store.path, "--out", tmp_path / "m", "-q")
    assert result.stderr == ""
    assert result.stdout.startswith("certified: ")


@pytest.mark.slow
def test_a_terminal_gets_a_live_line(
    tmp_path: Path, make_separable: Callable[..., Any], make_store: Callable[..., Store]
) -> None:
    """On a terminal the state of the scan is written over in place, and what stays is what a pipe would get."""
    store = make_store(*make_separable(10_000, 10))
    driver, terminal = pty.openpty()
    words = ["train", str(store.path), "--out", str(tmp_path / "m"), "--strategy", "paper"]
    with subprocess.Popen(
        [*COMMAND, *words], stdin=terminal, stdout=terminal, stderr=terminal,
        env=ENVIRONMENT | {"TERM": "xterm-256color", "COLUMNS": "80"},
    ) as process:  # fmt: skip
        os.close(terminal)
        shown = b""
        while True:
            try:
                part = os.read(driver, 65536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not part:
                break
            shown += part
    os.close(driver)
    assert process.returncode == 0
    text = shown.decode()
    assert re.search("[\u2800-\u28ff]", text), "no spinner"
    assert "\x1b[2K" in text
    assert re.search(r"scan \d+: bounds", text)
    assert "\x1b[?25h" in text.rsplit("certified", 1)[0]  # the cursor is back
    assert "Traceback" not in text


def test_run_equals_train(tmp_path: Path, store: Store, run_cli: Cli) -> None:
    """A job file gives the model of the same options, to the bit, wherever the command is given."""
    run_cli(
        "train", store.path, "--out", tmp_path / "a", "--epsilon", "0.01", "--no-intercept", "--memory", "1 MiB", "-q"
    )
    path = job_file(store, epsilon=0.01, intercept=False, memory="1 MiB")
    result = run_cli("run", path, "--json")
    assert json.loads(result.stdout)["out"] == str(store.path.with_name("m"))
    for name in ("model.json", "arrays.npz"):
        assert (tmp_path / "a" / name).read_bytes() == store.path.with_name("m").joinpath(name).read_bytes()


def test_not_certified(
    tmp_path: Path, make_store: Callable[..., Store], run_cli: Cli, rng: np.random.Generator
) -> None:
    """What is not separable, and what was stopped, end with exit code 4, their proof so far and a hint."""
    X = rng.standard_normal((300, 3)).astype(np.float32)
    noisy = make_store(X, rng.integers(0, 2, 300), name="noisy.zarr")
    result = run_cli("train", noisy.path, "--out", tmp_path / "m", exit_code=4)
    assert re.search(r"not separable: the hulls of \d rows meet \(rows [\d, ]+\)", result.stdout)
    assert "try " in result.stdout
    record = json.loads(run_cli("train", noisy.path, "--out", tmp_path / "n", "--json", exit_code=4).stdout)
    assert (record["status"], record["lower"], record["ratio"]) == ("not_separable", None, None)
    words = ["--out", tmp_path / "s", "--strategy", "paper", "--max-scans", "1"]
    stopped = run_cli("train", noisy.path, *words, exit_code=4)
    assert "stopped before the proof was complete: a limit was reached" in stopped.stdout


@pytest.mark.parametrize("epsilon", ["0", "1", "nan", "2", "-1"])
def test_epsilon_out_of_range(tmp_path: Path, store: Store, run_cli: Cli, epsilon: str) -> None:
    """An epsilon that no certificate can have is wrong usage, with the range."""
    result = run_cli("train", store.path, "--out", tmp_path / "m", f"--epsilon={epsilon}", exit_code=2)
    assert "epsilon: expected a number between 0 and 1, both excluded; found" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sample", "0"], "sample: expected a share above 0 and up to 1"),
        (["--memory", "lots"], "memory"),
        (["--max-scans", "0"], "max_scans"),
        (["--time-limit", "soon"], "time_limit"),
        (["--time-limit", "-1"], "time_limit"),
        (["--memory", "1e999999999"], "memory: not a size"),
        (["--strategy", "clever"], "'clever' is not one of"),
        (["--strategy", "fast", "--loss", "hinge"], "strategy: a soft margin has none, found 'fast'"),
        (["--fold-seed", "0"], "fold_seed: a hard margin has none, found 0; it belongs to a fleet of models"),
        (["--fold-seed", "0", "--classes", "ovr"], "fold_seed: it assigns rows to folds; give folds too"),
        (["--resume", "--restart"], "--resume and --restart cannot be combined"),
        (["--cluster", "none.toml"], "none.toml: cannot be read"),
        (["--cluster", "tcp://10.0.0.1:8786"], "without TLS"),
    ],
)
def test_wrong_options(tmp_path: Path, store: Store, run_cli: Cli, options: list[str], message: str) -> None:
    """Options that cannot be are refused with exit code 2 and their name; nothing is written."""
    result = run_cli("train", store.path, "--out", tmp_path / "new" / "m", *options, exit_code=2)
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "new" / "m").exists()


def test_wrong_job_files(tmp_path: Path, store: Store, run_cli: Cli) -> None:
    """A key that is unknown, of the wrong type, or a file that is missing: exit code 2 with file and nearest key."""
    result = run_cli("run", job_file(store, epsilom=0.1), exit_code=2)
    assert "job.toml: unknown key 'epsilom'" in result.stderr
    assert "did you mean 'epsilon'?" in result.stderr
    assert "epsilon: expected" in run_cli("run", job_file(store, epsilon="small"), exit_code=2).stderr
    assert "none.toml: cannot be read" in run_cli("run", tmp_path / "none.toml", exit_code=2).stderr
    assert "none.toml" in run_cli("plan", tmp_path / "none.toml", exit_code=2).stderr


def test_busy(tmp_path: Path, store: Store, run_cli: Cli) -> None:
    """While another job holds the output, train ends with exit code 5 before it starts a cluster."""
    with Checkpoint(tmp_path / "m", {}):
        result = run_cli("train", store.path, "--out", tmp_path / "m", "--cluster", "embedded", exit_code=5)
    assert result.stderr == (
        f"error: {tmp_path / 'm'}: another job is writing this model; wait for it, or choose another output\n"
    )


def test_plan(store: Store, run_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """plan tells blocks, bytes, memory and time, shows job and cluster as files, and writes nothing."""
    path = job_file(store)
    monkeypatch.setattr("coremargin.problems.job.default_memory", lambda: 96 << 20)
    before = sorted(store.path.parent.rglob("*"))
    text = run_cli("plan", path).stdout
    for words in (
        "600 rows x 4 features",
        "10 tasks of up to 1 chunk",
        "96.0 MiB for rows in the driver",
        'kind = "threads"',
        "epsilon",
    ):
        assert words in text
    record = json.loads(run_cli("plan", path, "--json", "--cluster", "embedded").stdout)
    assert (record["rows"], record["blocks"], record["bytes_per_scan"]) == (600, 10, store.nbytes)
    assert record["bytes_expected"] == store.nbytes == sum(record["stages_bytes"])
    assert 'kind = "embedded"' in record["cluster"]
    assert sorted(store.path.parent.rglob("*")) == before


def test_how_often_rows_are_read_is_said_alike(store: Store, run_cli: Cli, repository: Path) -> None:
    """README, `train --help` and `plan` agree on the reads that a job needs, and so does its run."""
    readme = " ".join((repository / "README.md").read_text(encoding="utf-8").split())
    usage = " ".join(run_cli("train", "--help").stdout.split())
    planned = json.loads(run_cli("plan", job_file(store), "--json").stdout)
    run = json.loads(run_cli("train", store.path, "--out", store.path.with_name("m"), "--json").stdout)
    assert planned["reads_expected"] * planned["store_bytes"] == planned["bytes_expected"] == run["bytes_read"]
    assert "The proof about all rows costs one read." in readme
    assert "Reads the rows once, or as often as `coremargin plan` says" in usage
    assert "one read " in run_cli("plan", job_file(store)).stdout
    two = json.loads(run_cli("plan", job_file(store, loss="hinge", folds=2), "--json", "--cluster", "embedded").stdout)
    assert two["reads_expected"] == SCANS_AFTER_SAMPLE == 2
    assert "start from a sample and need two" in readme
    one_row = run_cli("plan", job_file(store, strategy="paper"), "--cluster", "embedded").stdout
    assert "a scan for each row that is added" in one_row


def test_plan_of_sparse_rows(tmp_path: Path, run_cli: Cli) -> None:
    """A sparse store is planned like a dense one, its scaling and models included."""
    X = csr_array(np.eye(40, 30, dtype=np.float32))
    with StoreWriter.create(tmp_path / "s.zarr", features=30, sparse=True, chunk_rows=8) as writer:
        writer.write(X, [0, 1] * 20)
    path = tmp_path / "job.toml"
    path.write_text('job = "train"\nstore = "s.zarr"\nout = "m"\nloss = "hinge"\nC = [1.0, 2.0]\nscaling = "maxabs"\n')
    text = run_cli("plan", path).stdout
    assert "models  2, trained in the same scans" in text
    assert "all rows fit in memory and are read once" in text
    record = json.loads(run_cli("plan", path, "--json", "--cluster", "embedded").stdout)  # whose workers keep none
    assert record["bytes_expected"] == record["sample_bytes"] + 2 * record["store_bytes"]


def test_plan_of_folds(tmp_path: Path, store: Store, run_cli: Cli) -> None:
    """The scan that counts held-out rows is planned, too."""
    path = tmp_path / "job.toml"
    path.write_text(f'job = "train"\nstore = "{store.path}"\nout = "m"\nfolds = 2\n')
    text = run_cli("plan", path, "--cluster", "embedded").stdout
    assert "scan      counts the held-out rows with the final models" in text
    record = json.loads(run_cli("plan", path, "--json", "--cluster", "embedded").stdout)
    assert record["bytes_expected"] == 2 * sum(record["stages_bytes"]) == 2 * record["store_bytes"]


def test_plan_of_a_retraining(tmp_path: Path, store: Store, run_cli: Cli) -> None:
    """plan says what has changed since a model and how much is read first, or why all of it is."""
    run_cli("train", store.path, "--out", tmp_path / "old", "--block", "4 KiB")
    rows, codes = store.read(0)
    coremargin.ingest(2 * rows, store.path, labels=[store.classes[code] for code in codes], append=True)
    path = tmp_path / "again.toml"
    path.write_text(f'job = "retrain"\nmodel = "old"\nstore = "{store.path}"\nout = "new"\n')
    record = json.loads(run_cli("plan", path, "--json").stdout)
    assert record["retrained"]["rows_appended"] == len(rows)
    text = run_cli("plan", path).stdout
    assert f"{len(rows)} rows appended, 0 changed since {tmp_path / 'old'}" in text
    assert not (tmp_path / "new").exists()
    run_cli("run", path)
    assert record["bytes_first"] == json.loads((tmp_path / "new" / "run.json").read_text())["bytes_read"]
    (tmp_path / "old" / "retraining.npz").unlink()
    assert "from scratch: " in run_cli("plan", path).stdout


@pytest.mark.parametrize("command", ["train", "run", "plan"])
def test_help_fits_80_columns(run_cli: Cli, command: str) -> None:
    """Help says what the command does, shows an example, explains every option, and fits a narrow terminal."""
    text = run_cli(command, "--help", env={"COLUMNS": "80"}).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert f"  coremargin {command} " in text
    options = re.findall(r"^  (-\S.*?)(?:\s{2,}(\S.*))?$", text, flags=re.MULTILINE)
    lines = [*text.splitlines(), ""]
    for option, words in options:
        following = lines[next(k for k, line in enumerate(lines) if line.strip().startswith(option)) + 1]
        assert words or following.startswith("     "), option


#: What a small job does without: clusters and what they bring, the general reader, codecs, formats of others, displays.
NOT_NEEDED = {
    "asyncio", "bokeh", "cloudpickle", "dask", "distributed", "http", "matplotlib", "multiprocessing", "numcodecs",
    "onnx", "pandas", "psutil", "pyarrow", "rich", "sklearn", "ssl", "tornado", "yaml", "zarr", "scipy.cluster",
    "scipy.fft", "scipy.integrate", "scipy.interpolate", "scipy.io", "scipy.ndimage", "scipy.optimize", "scipy.signal",
    "scipy.sparse", "scipy.spatial", "scipy.special", "scipy.stats",
}  # fmt: skip


def loaded_by(*words: Any) -> set[str]:
    """The modules that a command in a process of its own has loaded when it ends."""
    ask = "import sys; from coremargin.cli import main\ntry: main(sys.argv[1:])\n"
    line = [sys.executable, "-c", f"{ask}finally: print(*sys.modules, file=sys.stderr)", *map(str, words)]
    done = subprocess.run(line, check=True, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    return set(done.stderr.split())


@pytest.mark.specimens(1)
@pytest.mark.parametrize("options", [[], ["--loss", "hinge"], ["--loss", "squared_hinge"]])
def test_a_small_job_loads_only_what_it_needs(store: Store, tmp_path: Path, options: list[str]) -> None:
    """Training in this process needs no cluster, no Zarr, no codecs: a small job is mostly its start."""
    loaded = loaded_by("train", store.name, "--out", tmp_path / "m", "--quiet", *options)
    assert {"numpy", "scipy.linalg", "jinja2"} <= loaded
    assert loaded & NOT_NEEDED == set()


def test_looking_at_a_store_needs_no_scipy(store: Store) -> None:
    """`info` of dense rows reads records: NumPy is enough."""
    loaded = loaded_by("info", store.name)
    assert "numpy" in loaded
    assert loaded & (NOT_NEEDED | {"scipy", "jinja2"}) == set()


@pytest.mark.parametrize("more", [[], ["--loss", "hinge", "--C", "1,10"]])
def test_models_of_mapped_rows_say_so(run_cli: Cli, store: Store, more: list[str]) -> None:
    """One model or a fleet, when it is made and when it is shown: what is proven is about mapped rows."""
    out = store.path.with_name("m")
    made = run_cli("train", store.path, "--map", "polynomial", "--degree", "2", "--coef0", "1", *more, "--out", out)
    assert "about mapped rows" in made.stdout
    assert "about mapped rows" in run_cli("show", out).stdout
