"""What the outside sees: public names, commands and their help, version and changelog."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from conftest import Package


def declared_version(repository: Path) -> str:
    """The version in pyproject.toml."""
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def commands(group: click.Group, prefix: str = "coremargin") -> Iterator[tuple[str, click.Command]]:
    """All commands below ``group`` with the words that call them, groups included."""
    yield prefix, group
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def test_every_command_and_option_has_help() -> None:
    """`--help` describes every command, and every option of every command."""
    from coremargin.cli import main

    found = dict(commands(main))
    assert set(found) >= {
        f"coremargin {name}"
        for name in ("ingest", "info", "check", "synth", "train", "run", "plan", "verify", "predict", "evaluate")
    }
    silent = [words for words, command in found.items() if not (command.help or "").strip()]
    silent += [
        f"{words} {option.opts[-1]}"
        for words, command in found.items()
        for option in command.get_params(click.Context(command))
        if isinstance(option, click.Option) and not option.hidden and not (option.help or "").strip()
    ]
    assert silent == []


def test_public_names_exist(package: Package) -> None:
    """Every name in an __all__ can be imported, and is written there once, in order."""
    import importlib

    for name, module in package.modules.items():
        for statement in module.tree.body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
                names = ast.literal_eval(statement.value)
                assert list(names) == sorted(set(names)), f"{name}: __all__ is not sorted"
                loaded = importlib.import_module(name)
                assert [public for public in names if not hasattr(loaded, public)] == [], name


def test_the_package_lists_what_it_offers() -> None:
    """The public names of coremargin are those in __all__, and dir() shows them."""
    import coremargin

    assert {"Model", "__version__", "load", "train"} <= set(coremargin.__all__)
    assert set(coremargin.__all__) <= set(dir(coremargin))


def test_versions_agree(repository: Path) -> None:
    """pyproject.toml, the package and the installed metadata carry one version."""
    import coremargin

    assert coremargin.__version__ == declared_version(repository) == importlib.metadata.version("coremargin")


def test_the_changelog_describes_this_version(repository: Path) -> None:
    """The changelog has an entry for the current version below Unreleased, with a date and some text."""
    text = (repository / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d{2}-\d{2}))?$", text, flags=re.MULTILINE)
    assert headings[0] == ("Unreleased", "")
    versions = dict(headings[1:])
    assert versions.get(declared_version(repository))
    entry = text.split(f"## [{declared_version(repository)}]")[1].split("\n## ")[0]
    assert "### " in entry
    assert "\n- " in entry


def test_every_make_target_is_explained(repository: Path) -> None:
    """`make help` lists every target of the Makefile."""
    text = (repository / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.+)$", text, flags=re.MULTILINE)
    assert phony is not None
    explained = set(re.findall(r"^([a-z-]+):.*## \S", text, flags=re.MULTILINE))
    assert explained == set(phony.group(1).split()) >= {"demo", "test", "test-all", "lint", "bench"}
