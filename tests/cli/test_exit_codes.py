"""What exit codes mean is said in the help, in the README and by the errors, and is what commands do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from coremargin import errors
from coremargin.cli.common import BROKEN_PIPE
from coremargin.errors import CoremarginError

if TYPE_CHECKING:
    from click.testing import Result

    from coremargin.data.store import Store

Cli = Callable[..., "Result"]


def kinds(base: type[CoremarginError]) -> Iterator[type[CoremarginError]]:
    """An error and all that are of its kind."""
    yield base
    for kind in base.__subclasses__():
        yield from kinds(kind)


def codes_in(text: str) -> set[int]:
    """The numbers that stand before a word in a list of codes."""
    return {int(number) for number in re.findall(r"(\d+) [a-z]", text)}


def said(run_cli: Cli, *words: str) -> str:
    """A help text in one line."""
    return " ".join(run_cli(*words, "--help").stdout.split())


def test_help_readme_and_errors_agree(run_cli: Cli, repository: Path) -> None:
    """Each code that an error has is in the list of the help and of the README, and no other is."""
    known = {kind.exit_code for kind in kinds(CoremarginError)}
    assert known == {2, 3, 4, 5, 10, 11, 12, 75, 130}
    listed = said(run_cli).partition("Exit codes:")[2].partition(". ")[0]
    assert codes_in(listed) == known | {0, 1, BROKEN_PIPE}
    readme = " ".join((repository / "README.md").read_text(encoding="utf-8").split())
    assert known | {0} <= codes_in(readme.partition("Exit codes:")[2].partition(".")[0]) <= codes_in(listed)


def test_the_tree_of_errors_says_their_codes() -> None:
    """The drawing in errors.py has every class below the first, with its code."""
    drawn = {name: int(code) for name, code in re.findall(r"(\w+) +exit (\d+)", errors.__doc__ or "")}
    below = [kind for kind in kinds(CoremarginError) if kind is not CoremarginError]
    assert drawn == {kind.__name__: kind.exit_code for kind in below}


@pytest.fixture
def ended(
    tmp_path: Path, run_cli: Cli, make_separable: Callable[..., tuple[np.ndarray, np.ndarray]],
    make_store: Callable[..., Store],
) -> dict[str, set[int]]:  # fmt: skip
    """Exit codes that commands end with over rows that can be separated, rows that cannot, and what is damaged."""
    X, y = make_separable(300, 3)
    good, bad = make_store(X, y), make_store(X, np.roll(y, 1), name="bad.zarr")
    model, train = tmp_path / "m", ("train", good.path, "--out", tmp_path / "m", "--cluster", "threads")
    found: dict[str, set[int]] = {"train": set(), "run": set(), "verify": set(), "check": set()}

    def run(*words: object) -> None:
        command = "active run" if words[:2] == ("active", "run") else str(words[0])
        found.setdefault(command, set()).add(run_cli(*words, exit_code=None).exit_code)

    run(*train)
    run("train", bad.path, "--out", tmp_path / "n", "--cluster", "threads")
    run("train", bad.path, "--out", tmp_path / "o", "--cluster", "threads", "--loss", "hinge", "--epsilon", "1e-15")
    for store in (good, bad):
        job = tmp_path / f"{store.path.stem}.toml"
        job.write_text(f'job = "train"\nstore = "{store.path.name}"\nout = "of_{store.path.stem}"\n')
        run("run", job, "--cluster", "threads")
    run_cli("active", "start", good.path, "--out", tmp_path / "c", "--error", "0.2")
    for more in (("--most", 3), ()):
        run("active", "run", tmp_path / "c", "--oracle", good.path, *more)
    run("verify", model, good.path)
    run("verify", model, good.path, "--epsilon", "1e-14")
    record = json.loads((model / "model.json").read_text())
    record["certificate"]["lower"] *= 2
    (model / "model.json").write_text(json.dumps(record))
    run("verify", model, good.path)
    run("check", good.path)
    (good.path / "X" / "c.0.0").write_bytes(b"")
    run("check", good.path)
    run("verify", tmp_path / "of_rows", good.path)
    (tmp_path / "of_rows" / "arrays.npz").write_bytes(b"")
    run("verify", tmp_path / "of_rows", bad.path)
    return found


def test_commands_end_as_their_help_says(run_cli: Cli, ended: dict[str, set[int]]) -> None:
    """The codes that a command's help names, and no others, come of rows and models that are good, bad, damaged."""
    assert set(ended) == {"train", "run", "active run", "verify", "check"}
    for command, codes in ended.items():
        text = said(run_cli, *command.split()).partition("exit code is")[2].partition(".")[0]
        assert {int(number) for number in re.findall(r"\b\d+\b", text)} | {0} == codes, command


def test_an_output_that_is_there_is_wrong_usage(
    tmp_path: Path, run_cli: Cli, make_separable: Callable[..., tuple[np.ndarray, np.ndarray]],
    make_store: Callable[..., Store],
) -> None:  # fmt: skip
    """Whatever a command writes, that its place is taken ends it with exit code 2, and what was there stays."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("onnx")
    store, model = make_store(*make_separable(60, 3)).path, tmp_path / "m"
    run_cli("train", store, "--out", model, "--cluster", "threads")
    (tmp_path / "rows.csv").write_text("a,label\n1,x\n2,y\n")
    for words in (
        ("train", store, "--out", model, "--cluster", "threads"),
        ("predict", model, store, tmp_path / "p.zarr"), ("predict", model, store, tmp_path / "p.parquet"),
        ("predict", model, store, tmp_path / "p.csv"), ("predict", model, store, tmp_path / "p.jsonl"),
        ("export", model, tmp_path / "m.onnx"), ("active", "start", store, "--out", tmp_path / "c"),
        ("synth", tmp_path / "s.zarr", "--rows", "9"), ("ingest", tmp_path / "rows.csv", tmp_path / "i.zarr"),
    ):  # fmt: skip
        run_cli(*words, exit_code=None)  # a model is there by now
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        told = run_cli(*words, exit_code=2).stderr
        assert re.search("is there already|exists already", told), told
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


NOT_BEGUN = """
import sys
from coremargin.cli import common

async def read():
    pass

def interrupted():
    begun = read()  # as Zarr holds one when a Ctrl-C comes before the loop has it
    raise KeyboardInterrupt

sys.exit(common._exit_code(interrupted))
"""


def test_an_interruption_is_said_in_one_line() -> None:
    """What had not begun when the Ctrl-C came is thrown away without a warning of Python's."""
    ended = subprocess.run([sys.executable, "-c", NOT_BEGUN], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "error: interrupted\n")
