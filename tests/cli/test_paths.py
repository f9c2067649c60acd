"""Paths where they enter: addresses are refused, or read, and no folder is made of their name.

What reads stores takes addresses of object storage: READ and the type StorePath. All others are refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pytest

import coremargin
from coremargin.active import Campaign
from coremargin.cli import main
from coremargin.cli.common import LocalPath, StorePath
from coremargin.data.writer import StoreWriter
from coremargin.errors import RunError, UsageError
from coremargin.models.evaluate import evaluate
from coremargin.models.export import export
from coremargin.models.materialise import materialise
from coremargin.models.predict import predict
from coremargin.registry.registry import Registry

if TYPE_CHECKING:
    from click.testing import Result

Cli = Callable[..., "Result"]
ADDRESS = "s3://bucket/rows.zarr"
UNKNOWN = "hdfs://bucket/rows.zarr"  #: of no service that is known
#: Functions that read the store, the model or the files of an address.
READ = {"train source", "retrain store", "load", "Model.load", "verify model", "verify store", "predict model"}
READ |= {"predict source", "predict sources", "evaluate source", "Store.open", "ingest source", "ingest sources"}
READ |= {"retrain model", "Campaign.create store", "Registry"}
#: Functions that write a store or a model there.
WRITE = {"ingest store", "StoreWriter.create", "StoreWriter.append", "compact", "compact out", "expire", "remove_rows"}
WRITE |= {"set_weights", "write_labels", "save", "train out", "train store out", "retrain out"}
WRITE |= {"export", "materialise", "Registry.create"}
FOUND = "is not supported yet"
CLUSTER = "expected a cluster file, an address with"
X, Y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), [0, 0, 1, 1]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store, a model and a table."""
    folder = tmp_path_factory.mktemp("paths")
    coremargin.ingest(X, folder / "rows.zarr", labels=Y)
    coremargin.train(folder / "rows.zarr", out=folder / "model")
    coremargin.train(folder / "rows.zarr", out=folder / "mapped", map="polynomial", degree=2)
    (folder / "rows.csv").write_text("a,label\n-1,0\n1,1\n")
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The current folder, which stays empty but for what is named ``kept``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # no credentials: nothing is asked of a service
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "none")
    yield tmp_path
    assert [entry.name for entry in tmp_path.iterdir() if not entry.name.startswith("kept")] == []


def commands(group: click.Group, *before: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands, with their words."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, *before, name)
        else:
            yield (*before, name), command


#: Options and arguments that name files, and have another type: parts of the text are something else.
OTHERS = {"labels", "names", "text", "image", "sources", "cluster", "weights", "like"}
NO_FILES = {("schedule", "image")}


def test_every_option_that_names_a_file_is_one_of_paths() -> None:
    """Whatever is shown as a path, a file or a folder has the type that refuses addresses, or is tried below."""
    for words, command in commands(main):
        for parameter in command.params:
            shown = (parameter.metavar or "").upper()
            names = any(word in shown for word in ("FILE", "FOLDER", "PATH", "STORE", "MODEL", "JOB"))
            plain = isinstance(parameter.type, click.Path) and not isinstance(parameter.type, LocalPath)
            assert not plain, (words, parameter.name)
            if names and not isinstance(parameter.type, LocalPath):
                assert parameter.name in OTHERS | {"kernel"}, (words, parameter.name)


def words_of(command: click.Command, wrong: click.Parameter, address: str) -> list[str]:
    """A command line whose one parameter is an address, and all others that are needed something harmless."""
    line = list[str]()
    for parameter in command.params:
        if not (parameter.required or parameter is wrong):
            continue
        value = parameter.type.choices[0] if isinstance(parameter.type, click.Choice) else "1"
        value = address if parameter is wrong else value
        line += [value] if isinstance(parameter, click.Argument) else [parameter.opts[0], value]
    return line


def test_no_command_takes_an_address(run_cli: Cli, here: Path) -> None:
    """Each path of each command is refused before anything is done."""
    tried = 0
    for words, command in commands(main):
        for parameter in command.params:
            if not (isinstance(parameter.type, LocalPath) or parameter.name == "cluster"):
                continue
            for address in [UNKNOWN] if isinstance(parameter.type, StorePath) else [UNKNOWN, ADDRESS]:
                result = run_cli(*words, *words_of(command, parameter, address), exit_code=2)
                if parameter.name != "cluster" or CLUSTER in result.stderr:
                    assert parameter.name == "cluster" or FOUND in result.stderr, (words, parameter.name)
                    tried += 1
    assert tried > 120


def test_commands_of_stores_take_addresses(run_cli: Cli, here: Path, made: Path) -> None:
    """And report that nothing gives access to them."""
    tried = set()
    for words, command in commands(main):
        if any(isinstance(parameter.type, StorePath) for parameter in command.params):
            given = {"store": ADDRESS, "address": ADDRESS, "model": str(made / "model"), "out": "kept", "rows": "1"}
            given |= {"sources": str(made / "rows.csv"), "file": str(made / "rows.csv"), "older_than": "1 day"}
            arguments = [str(one.name) for one in command.params if isinstance(one, click.Argument)]
            given |= {} if "store" in arguments else {"model": ADDRESS}
            if words == ("reduce",):  # of another model
                continue
            given |= {"path": ADDRESS, "version": "1", "old": "1", "new": "2"}  # of a registry
            options = [one for one in command.get_params(click.Context(command)) if one.required]
            names = {f"--{name.replace('_', '-')}": given[name] for name in ("out", "rows", "older_than")}
            more = [word for one in options if one.opts[0] in names for word in (one.opts[0], names[one.opts[0]])]
            more += ["--rows", "10"] if words == ("synth",) else []
            line = [given[name] for name in arguments]
            assert "no credentials found" in run_cli(*words, *line, *more, exit_code=5).stderr
            tried |= set(words)
    reading = {"train", "retrain", "info", "check", "verify", "predict", "evaluate", "log", "show", "export"}
    assert {"registry", "promote", "rollback", "gc", "diff", "page"} < tried
    assert tried > reading | {"ingest", "synth", "remove", "relabel", "reweigh", "expire", "compact", "vacuum"}
    assert tried > {"materialise", "compare"}


@pytest.mark.parametrize("option", ["--labels", "--names", "--weights"])
def test_rows_and_what_belongs_to_them_may_lie_at_addresses(run_cli: Cli, here: Path, made: Path, option: str) -> None:
    """And are reported where nothing gives access to them."""
    np.save(here / "kept.npy", X)
    more = [] if option == "--labels" else ["--unlabelled"]
    lines = [
        [here / "kept.npy", "rows.zarr", *more, option, ADDRESS],
        [ADDRESS, "rows.zarr"],
        [made / "rows.csv", "s3://b/*.csv", "rows.zarr"],
    ]
    for line in lines:
        assert "no credentials found" in run_cli("ingest", *line, exit_code=5).stderr
    assert FOUND in run_cli("ingest", UNKNOWN, "rows.zarr", exit_code=2).stderr


@pytest.mark.parametrize("option", ["--text", "--image"])
@pytest.mark.parametrize("value", [ADDRESS, "s3://b/t.csv:column", "s3://b/{row}.png"])
def test_what_is_shown_of_rows_lies_here(run_cli: Cli, here: Path, made: Path, option: str, value: str) -> None:
    """Texts and images of a campaign."""
    Campaign.create(here / "kept.campaign", made / "rows.zarr", classes=[0, 1]).close()
    words = ("active", "label-studio", "kept.campaign", "--configuration", option, value)
    assert FOUND in run_cli(*words, exit_code=2).stderr


@pytest.mark.parametrize(
    "job",
    [
        'job = "train"\nstore = "rows.zarr"\nout = "m"\ncluster = "{0}"',
        'job = "active"\nstore = "s"\nout = "c"\nexamples = "{0}"',
        'job = "nightly"\nstore = "s"\nregistry = "r"\nwork = "{0}"',
        'job = "nightly"\nstore = "s"\nregistry = "r"\n[ingest]\ninbox = "i"\ndone = "{0}"',
        'job = "nightly"\nstore = "s"\nregistry = "r"\n[ingest]\ninbox = "i"\nquarantine = "{0}"',
    ],
)  # fmt: skip
def test_no_key_of_a_job_takes_an_address(run_cli: Cli, here: Path, job: str) -> None:
    """The key is named."""
    (here / "kept.toml").write_text(job.replace("{0}", ADDRESS) + "\n")
    found = run_cli("run", "kept.toml", exit_code=2).stderr
    assert (CLUSTER if "cluster" in job else FOUND) in found
    assert "kept.toml" in found


@pytest.mark.parametrize("key", ["logs", "tls"])
def test_no_key_of_a_cluster_takes_an_address(run_cli: Cli, here: Path, made: Path, key: str) -> None:
    """Logs of its jobs, keys of its connections."""
    said = (
        f'logs = "{ADDRESS}"\ninsecure = true' if key == "logs" else f'[tls]\nca = "{ADDRESS}"\ncert = "c"\nkey = "k"'
    )
    (here / "kept.toml").write_text(f'kind = "slurm"\n{said}\n')
    assert FOUND in run_cli("train", made / "rows.zarr", "--out", "m", "--cluster", "kept.toml", exit_code=2).stderr


def calls(made: Path, address: Any) -> dict[str, Callable[[], object]]:
    """Functions with an address where a path may be."""
    store, model = made / "rows.zarr", made / "model"
    return {
        "ingest source": lambda: coremargin.ingest(address, "s.zarr"),
        "ingest sources": lambda: coremargin.ingest([made / "rows.csv", address], "s.zarr"),
        "ingest store": lambda: coremargin.ingest(X, address, labels=Y),
        "train source": lambda: coremargin.train(address),
        "train out": lambda: coremargin.train(X, Y, out=address),
        "train store out": lambda: coremargin.train(store, out=address),
        "train cluster": lambda: coremargin.train(store, cluster=address),
        "retrain model": lambda: coremargin.retrain(address, store),
        "retrain store": lambda: coremargin.retrain(model, address),
        "retrain out": lambda: coremargin.retrain(model, store, out=address),
        "load": lambda: coremargin.load(address),
        "save": lambda: coremargin.load(model).save(address),
        "Model.load": lambda: coremargin.Model.load(address),
        "verify model": lambda: coremargin.verify(address, store),
        "verify store": lambda: coremargin.verify(model, address),
        "predict model": lambda: predict(address, store, "p.csv"),
        "predict source": lambda: predict(model, address, "p.csv"),
        "predict sources": lambda: predict(model, [made / "rows.csv", address], "p.csv"),
        "predict out": lambda: predict(model, store, address),
        "predict cluster": lambda: predict(model, store, "p.csv", cluster=address),
        "evaluate source": lambda: evaluate(model, address),
        "evaluate cluster": lambda: evaluate(model, store, cluster=address),
        "export": lambda: export(model, address),
        "materialise": lambda: materialise(made / "mapped", store, address),
        "Store.open": lambda: coremargin.Store.open(address),
        "StoreWriter.create": lambda: StoreWriter.create(address, features=1),
        "StoreWriter.append": lambda: StoreWriter.append(address),
        "compact": lambda: coremargin.compact(address),
        "compact out": lambda: coremargin.compact(store, address),
        "expire": lambda: coremargin.expire(address, 1.0),
        "remove_rows": lambda: coremargin.remove_rows(address, [0]),
        "set_weights": lambda: coremargin.set_weights(address, {0: 1.0}),
        "write_labels": lambda: coremargin.write_labels(address, {0: 1}),
        "Registry": lambda: Registry(address),
        "Registry.create": lambda: Registry.create(address),
        "Campaign": lambda: Campaign(address),
        "Campaign.create": lambda: Campaign.create(address, store),
        "Campaign.create store": lambda: Campaign.create("c", address),
        "Campaign.create examples": lambda: Campaign.create("c", store, examples=address),
    }  # fmt: skip


@pytest.mark.parametrize("name", list(calls(Path(), "")))
@pytest.mark.parametrize(
    "address",
    [UNKNOWN, ADDRESS, Path(ADDRESS), "https://example.org/rows.csv"],
    ids=["hdfs", "s3", "Path", "https"],
)
def test_no_function_takes_an_address(here: Path, made: Path, name: str, address: Any) -> None:
    """Nothing is made, and nothing of what is there is changed."""
    writes = name in WRITE or (name == "predict out" and ".csv" in str(address))
    if name == "predict out" and address != UNKNOWN and not writes:
        with pytest.raises(UsageError, match="of a Zarr group would not appear at once"):
            calls(made, address)[name]()
    elif not (writes or name in READ) or address == UNKNOWN:
        with pytest.raises(UsageError, match=CLUSTER if name.endswith("cluster") else FOUND):
            calls(made, address)[name]()
    elif "https" not in str(address):
        with pytest.raises(RunError, match="no credentials found"):
            calls(made, address)[name]()
    elif writes:
        with pytest.raises(UsageError, match="a web server is only read"):
            calls(made, address)[name]()
    assert sorted(entry.name for entry in made.iterdir()) == ["mapped", "model", "rows.csv", "rows.zarr"]


def test_file_addresses_and_home_folders(run_cli: Cli, here: Path, monkeypatch: pytest.MonkeyPatch, made: Path) -> None:
    """They are what they say, for commands, job files and functions."""
    home = here / "kept home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    url = f"file://localhost{here}/kept%20home"
    coremargin.ingest(f"file://{made}/rows.csv", "~/a.zarr")
    run_cli("ingest", f"file://{made}/rows.csv", f"{url}/b.zarr")
    coremargin.train("~/a.zarr", out=f"{url}/a.model")
    run_cli("train", f"{url}/b.zarr", "--out", "~/b.model")
    (here / "kept.toml").write_text(f'job = "train"\nstore = "{url}/b.zarr"\nout = "~/c.model"\n')
    run_cli("run", "kept.toml")
    run_cli("verify", f"{url}/c.model", "~/b.zarr")
    assert coremargin.verify("~/a.model", f"{url}/a.zarr")
    predict(f"{url}/a.model", "~/a.zarr", "~/p.csv")
    names = sorted(entry.name for entry in home.iterdir() if not entry.name.startswith("."))
    assert names == ["a.model", "a.zarr", "b.model", "b.zarr", "c.model", "p.csv"]
