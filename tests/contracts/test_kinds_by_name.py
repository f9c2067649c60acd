"""Who may know one kind of problem from another: its folder, and whoever is about that kind alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from coremargin.formats.kinds import KINDS

if TYPE_CHECKING:
    from conftest import Module, Package

#: Rooms that serve all kinds alike, and what all kinds share.
SHARED = re.compile(r"coremargin\.(cli|learn|report|problems\.common|problems)\.\w+")

#: Modules there that are about one kind or what few share, or are the list of all parameters that people read.
ABOUT_ONE = {
    "coremargin.cli.active", "coremargin.cli.reduce", "coremargin.cli.campaign_status", "coremargin.cli.compare",
    "coremargin.learn.api", "coremargin.learn.compare", "coremargin.learn.ellipsoid_scaling",
    "coremargin.problems.common.messages",
}  # fmt: skip

#: Where the kinds live: "hard", as in coremargin.problems.hard.
HOMES = {parts.kind.split(".")[-2] for parts in KINDS.values()}

#: Imports from there, and the modules of the kinds.
FROM_HOME = re.compile(rf"coremargin\.problems\.({'|'.join(HOMES)})\b.*")
KIND = re.compile(rf"coremargin\.problems\.({'|'.join(HOMES)})\.kind")

#: What only some jobs, records or rounds have: to ask for it is to ask which kind it is.
WORDS = re.compile(
    rf"\b(?:{'|'.join(sorted({*KINDS, *HOMES}))}|crammer|crammer-singer|ovr|hinge|squared_hinge|loss|nodes|members"
    r"|outliers|duality_gap)\b"
)


def docstrings(tree: ast.AST) -> set[ast.AST]:
    """Sentences that stand alone."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def asked(module: Module) -> Iterator[tuple[int, str]]:
    """Imports from the home of a kind, and texts that are a word of one, with their lines."""
    spoken = docstrings(module.tree)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and re.match(
            rf"coremargin\.problems\.({'|'.join(HOMES)})\b", str(node.module)
        ):
            yield node.lineno, f"from {node.module}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in spoken:
            if WORDS.fullmatch(node.value):
                yield node.lineno, repr(node.value)
        elif isinstance(node, ast.Attribute) and node.attr in ("loss", "outliers", "folds", "C", "soft"):
            yield node.lineno, ast.unparse(node)


def test_nobody_else_asks_which_kind_it_is(package: Package) -> None:
    """Shared modules import from no kind's home, and look for no word that only some kinds have."""
    shared = [name for name in package.modules if SHARED.fullmatch(name) and name not in ABOUT_ONE]
    assert len(shared) > 40
    found = [f"{name}:{line}: {text}" for name in shared for line, text in asked(package.modules[name])]
    assert not found, found


def test_those_who_are_about_one_kind_do_ask(package: Package) -> None:
    """What is left out of the test above would fail it, and so would every home: it can see."""
    homes = [name for name in package.modules if KIND.fullmatch(name)]
    assert len(homes) == len(HOMES)
    blind = [name for name in (*ABOUT_ONE, *homes) if not list(asked(package.modules[name]))]
    assert blind == []
