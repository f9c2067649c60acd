"""Options in messages: arguments of what is called from Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import coremargin
from coremargin.argument_names import as_arguments
from coremargin.cli import main
from coremargin.errors import ColumnsUnclear, LabelError


@pytest.mark.parametrize(
    ("option", "argument"),
    [
        (
            "leave it out with --drop id, or say --missing median",
            "leave it out with drop='id', or say missing='median'",
        ),
        ("--drop 3 or --drop -4 or --drop 'Unnamed: 0'", "drop=3 or drop=-4 or drop='Unnamed: 0'"),
        ("say --categorical job,city.", "say categorical='job,city'."),
        ('say --decimal ",", or correct the file', 'say decimal=",", or correct the file'),
        ("give --labels FILE, or say --unlabelled", "give labels=FILE, or say unlabelled=True"),
        ("--label names another; say --drop if it is a copy", "label names another; say drop if it is a copy"),
        ("go on with --resume or --restart", "go on with begin='resume' or begin='restart'"),
        ("`coremargin retrain --resume`; --unknown-x", "`coremargin retrain --resume`; --unknown-x"),
        ("for instance: coremargin ingest a.csv --drop 0", "for instance: coremargin ingest a.csv --drop 0"),
    ],
)
def test_options_become_arguments(option: str, argument: str) -> None:
    """Commands stay as they are."""
    assert as_arguments(option) == argument


def test_one_error_names_what_its_reader_can_say(tmp_path: Path) -> None:
    """The same file, from Python and from the command line."""
    path, store = tmp_path / "rows.csv", tmp_path / "rows.zarr"
    path.write_text("a,b,label\nu,1,p\nv,2,n\nu,3,\n")
    with pytest.raises(ColumnsUnclear, match="; say categorical='a'$"):
        coremargin.ingest(path, store)
    with pytest.raises(LabelError, match="apart, with unlabelled=True$"):
        coremargin.ingest(path, store, categorical="a")
    found = CliRunner().invoke(main, ["ingest", str(path), str(store)])
    assert (found.exit_code, "; say --categorical a" in found.stderr) == (3, True)
    found = CliRunner().invoke(main, ["ingest", str(path), str(store), "--categorical", "a"])
    assert (found.exit_code, "apart, with --unlabelled" in found.stderr) == (3, True)
