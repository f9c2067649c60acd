"""The guide to the papers: its commands parse, its functions exist, its states are counted, its bounds computed."""

from __future__ import annotations

import importlib
import re
import shlex
from collections import Counter
from pathlib import Path

import click
import pytest

from coremargin.cli import main
from coremargin.maths import published_bounds as bounds

STATES = ("holds", "differs", "does not hold", "not tried", "missing")

#: What each source numbers: words that begin a row of its table.
NUMBERED = {
    "Har-Peled, Roth, Zimak 2006": (
        *("Definition 2.1", "Definition 2.2", "Definition 5.1", "Figure 1", "Figure 2 (a)", "Figure 2 (b)"),
        *("Figure 3 (a)", "Figure 3 (b)", "Figure 4 (a)", "Figure 4 (b)", "Equations (1), (2), Figure 5"),
        *("Lemma 3.1, size", "Lemma 3.1, time", "Corollary 3.2", "Lemma 4.1", "Lemma 4.2", "Lemma 5.2", "Lemma 7.1"),
    ),
    "Har-Peled 2015": ("Case (A)", "Case (B)", "Lemma 1.1", "(1.1) to (1.3)", "Remark (A)", "Remark (B)"),
    "Louche, Ralaivola 2015": (
        *("(1) to (4)", "(5) to (7)", "(8)", "(9)", "Algorithm 1", "Algorithm 2", "Algorithm 3", "Algorithm 4"),
        *("Proposition 1", "Proposition 2", "Definition 1, Theorem 1", "Definition 2", "Theorem 2", "Figure 1"),
        *("Figure 2, left", "Figure 2, right", "Figure 3"),
        *("Figure 4, Reuters", "Figure 4, Newsgroups", "Figure 4, Banana"),
    ),
    "Awasthi": ("Theorem 1", "Lemma 1", "Definition 1", "Footnote 1", "Algorithm 1", "Theorem 2", "(4), (5)"),
    "Jebara": ("Tables of EVM", "Tables of relative margins", "KKT classes", "Vapnik's theorem", "Ellipse"),
}


@pytest.fixture
def guide(repository: Path) -> str:
    """The text of the guide."""
    return (repository / "jobs" / "published" / "papers.md").read_text(encoding="utf-8")


def rows_of(guide: str, heading: str) -> list[list[str]]:
    """The cells of the rows of the table below a heading."""
    part = guide.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def codes_of(guide: str) -> list[str]:
    """What stands between backticks."""
    return re.findall(r"`([^`]+)`", guide)


@pytest.mark.parametrize("source", NUMBERED)
def test_every_item_has_a_state_and_all_are_counted(guide: str, source: str) -> None:
    """Each numbered statement is in the table of its source; the summary counts the states."""
    rows = rows_of(guide, source)
    assert all(len(row) == 5 for row in rows), [row for row in rows if len(row) != 5]
    states = Counter(row[4] for row in rows)
    assert set(states) <= set(STATES)
    named = [row[0] for row in rows]
    assert len(set(named)) == len(named)
    assert set(NUMBERED[source]) <= set(named)
    counts = " | ".join(str(states[state]) for state in STATES)
    assert f"| {source} | {len(rows)} | {counts} |" in guide
    for row in rows:
        assert row[3], f"{row[0]}: no result, and no reason for there being none"
        assert row[2] or row[4] == "missing", f"{row[0]}: nothing runs it"


def test_the_sums_are_those_of_the_tables(guide: str) -> None:
    """The last line of the summary."""
    states = Counter(row[4] for source in NUMBERED for row in rows_of(guide, source))
    counts = " | ".join(str(states[state]) for state in STATES)
    assert f"| all | {states.total()} | {counts} |" in guide


def test_commands_are_commands(guide: str) -> None:
    """Each is parsed as the command line would, with its options and their values."""
    commands = {code for code in codes_of(guide) if code.startswith("coremargin ")}
    assert len(commands) > 40
    for code in sorted(commands):
        words, command, context = shlex.split(code)[1:], main, click.Context(main)
        while isinstance(command, click.Group):
            found = command.get_command(context, words[0])
            assert found is not None, f"{code}: there is no command {words[0]}"
            command, words = found, words[1:]
        try:
            command.make_context(code, list(words))
        except click.ClickException as error:
            pytest.fail(f"{code}: {error.format_message()}")


def test_functions_and_files_exist(guide: str, repository: Path) -> None:
    """Functions can be imported; scripts are there and have the options that are given; so are tests."""
    names = {code for code in codes_of(guide) if re.fullmatch(r"(maths|active|problems|estimators)(\.\w+)+", code)}
    assert len(names) > 20
    for name in sorted(names):
        module, attribute = f"coremargin.{name}".rsplit(".", 1)
        assert hasattr(importlib.import_module(module), attribute), f"{name} is not there"
    scripts = [code for code in codes_of(guide) if code.startswith(("python ", "tests/"))]
    assert len(scripts) > 10
    for code in scripts:
        words = shlex.split(code.removeprefix("python "))
        text = (repository / words[0]).read_text(encoding="utf-8")
        for option in (word for word in words[1:] if word.startswith("--")):
            assert f'"{option}"' in text, f"{code}: {words[0]} has no option {option}"


def test_bounds_are_those_of_the_code(guide: str) -> None:
    """The table of numbers, for R / rho = 10, epsilon .1, e = delta = .01."""
    found = {row[0].strip("`"): float(row[2].replace(",", "")) for row in rows_of(guide, "The bounds as numbers")}
    assert found == {
        "coreset_rows": bounds.coreset_rows(10, 1, 0.1),
        "sharp_coreset_rows": bounds.sharp_coreset_rows(10, 1, 0.1),
        "any_row": pytest.approx(bounds.any_row(10, 1, 0.1)),
        "slab_steps": pytest.approx(bounds.slab_steps(10, 1, 0.1)),
        "perceptron_updates": bounds.perceptron_updates(10, 1),
        "labels_asked": pytest.approx(bounds.labels_asked(10, 0.01, 0.01), abs=1),
        "vc_dimension": bounds.vc_dimension(10, 1, 5),
    }
