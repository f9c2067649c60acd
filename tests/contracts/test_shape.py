"""What things may not contain, and where they lie."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Module, Package

FOLDERS = {".ci", "cluster", "jobs", "pipeline", "tests"}

#: Written apart so that this file does not contain what it looks for.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")


def is_stub(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function's body only passes or says that it is not implemented."""
    if any("overload" in ast.unparse(decorator) for decorator in function.decorator_list):
        return False
    statements = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return [ast.unparse(statement).split("(")[0] for statement in statements] in (
        ["pass"],
        ["..."],
        ["raise NotImplementedError"],
    )


def tracked(repository: Path) -> list[str]:
    """Paths of all files in version control, relative to the repository."""
    git = shutil.which("git")
    if git is None or not (repository / ".git").exists():
        pytest.skip("not a clone: what is tracked is not known")
    command = [git, "ls-files", "-z"]
    listing = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False, timeout=60)
    if listing.returncode:  # a clone of another user's
        pytest.skip(f"git ls-files: {listing.stderr.strip()}")
    return [name for name in listing.stdout.split("\0") if name]


def tracked_texts(repository: Path) -> dict[str, str]:
    """Tracked files that are text, by path."""
    texts = {}
    for name in tracked(repository):
        path = repository / name
        if path.is_file() and b"\0" not in (content := path.read_bytes()):
            texts[name] = content.decode("utf-8", errors="replace")
    return texts


def test_every_test_states_a_fact(test_modules: list[Module], repository: Path) -> None:
    """Every test function has a docstring."""
    silent = [
        f"{module.path.relative_to(repository)}:{function.lineno} {function.name}"
        for module in test_modules
        for function in module.functions()
        if function.name.startswith("test_") and module.path.name.startswith("test_")
        if not (ast.get_docstring(function) or "").strip()
    ]
    assert silent == []


def test_nothing_is_unfinished(package: Package, scripts: list[Module], test_modules: list[Module]) -> None:
    """No code says that it will be written later."""
    offenders = [
        f"{module.path.name}:{number}: {line.strip()}"
        for module in [*package.modules.values(), *scripts, *test_modules]
        for number, line in enumerate(module.text.splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    offenders += [
        f"{module.path.name}:{function.lineno}: {function.name} does nothing"
        for module in [*package.modules.values(), *scripts]
        for function in module.functions(protocols=False)
        if is_stub(function)
    ]
    assert offenders == []


def test_no_path_of_this_machine_is_written_down(repository: Path) -> None:
    """No tracked file names the folder above the clone, the home of whoever runs this, or anybody's home."""
    here = [re.escape(f"{folder}/") for folder in (repository.parent, Path.home()) if len(folder.parts) > 1]
    pattern = re.compile("|".join([*here, r"/(?:home|Users)/[a-z]\w*/"]))
    offenders = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in tracked_texts(repository).items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
    assert offenders == []


def test_top_level_folders_are_the_agreed_ones(repository: Path) -> None:
    """No folder beside the five of the plan is tracked."""
    assert {name.split("/")[0] for name in tracked(repository) if "/" in name} - FOLDERS == set()


def test_only_the_pipeline_holds_packages(repository: Path) -> None:
    """Neither jobs/ nor cluster/ nor tests/ can be imported as a package."""
    rooms = ("jobs", "cluster", "tests")
    assert [
        str(path.relative_to(repository)) for room in rooms for path in (repository / room).rglob("__init__.py")
    ] == []


def test_no_large_file_is_tracked(repository: Path) -> None:
    """No tracked file is larger than 1 MB: data, models and reports are made, not kept."""
    sizes = {name: (repository / name).stat().st_size for name in tracked(repository) if (repository / name).is_file()}
    assert {name: size for name, size in sizes.items() if size > 1_000_000} == {}
