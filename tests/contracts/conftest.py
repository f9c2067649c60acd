"""What the contract tests read: the repository's own files, parsed once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Import:
    """One imported name: ``target`` is a dotted module (of ``from a import b``: a.b where that is a module, else a)."""

    target: str
    name: str  #: what follows ``import`` in ``from a import b``, else empty
    line: int
    typing_only: bool  #: under ``if TYPE_CHECKING``
    deferred: bool  #: inside a function


@dataclass(frozen=True)
class Module:
    """A Python file: its dotted name (empty outside of the package), path and text."""

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        """The source."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text, filename=str(self.path))

    def functions(self, *, protocols: bool = True) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """All functions and methods, nested ones included; without ``protocols``, not those that only say a shape."""
        waiting: list[ast.AST] = [self.tree]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node
            if not protocols and isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases):
                continue
            waiting.extend(ast.iter_child_nodes(node))


class Package:
    """The modules of coremargin by dotted name, and what they import."""

    def __init__(self, root: Path) -> None:
        self.modules: dict[str, Module] = {}
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.modules[name] = Module(name, path)

    def imports(self, module: Module) -> list[Import]:
        """Everything that ``module`` imports, at any depth of its code."""
        return list(self._imports(module.tree, typing_only=False, deferred=False))

    def _imports(self, node: ast.AST, *, typing_only: bool, deferred: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, "", child.lineno, typing_only, deferred)
            elif isinstance(child, ast.ImportFrom) and child.module:
                for alias in child.names:
                    whole = f"{child.module}.{alias.name}"
                    target = whole if whole in self.modules else child.module
                    yield Import(target, alias.name, child.lineno, typing_only, deferred)
            else:
                yield from self._imports(
                    child,
                    typing_only=typing_only
                    or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)),
                    deferred=deferred or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda),
                )

    def own_imports(self, module: Module) -> list[Import]:
        """Those of ``imports`` that lie in coremargin."""
        return [found for found in self.imports(module) if found.target.split(".")[0] == "coremargin"]


@pytest.fixture(scope="session")
def package(repository: Path) -> Package:
    """The package as it lies in the repository."""
    return Package(repository / "pipeline" / "coremargin")


@pytest.fixture(scope="session")
def test_modules(repository: Path) -> list[Module]:
    """All Python files below tests/."""
    return [Module("", path) for path in sorted((repository / "tests").rglob("*.py"))]


@pytest.fixture(scope="session")
def scripts(repository: Path) -> list[Module]:
    """All Python files below jobs/ and cluster/."""
    return [Module("", path) for room in ("jobs", "cluster") for path in sorted((repository / room).rglob("*.py"))]
