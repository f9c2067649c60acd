"""What may be imported where, beyond the layers of ``[tool.importlinter]`` in pyproject.toml."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Import, Package

#: What mathematics needs: no files, clocks, processes, networks or hidden randomness.
MATHS_MAY_IMPORT = {
    "__future__", "abc", "bisect", "collections", "contextlib", "contextvars", "coremargin", "dataclasses", "enum",
    "fractions", "functools", "heapq", "itertools", "math", "numpy", "operator", "scipy", "typing",
}  # fmt: skip

#: What one module needs besides, to compile the others' functions: their sources are what it caches by.
COMPILERS = {"coremargin.maths.jit", "coremargin.maths.outliers.compiled"}
COMPILER_MAY_IMPORT = {"dis", "hashlib", "inspect", "numba", "sys", "threading", "types"}

#: Modules that turn bytes into objects by running what the bytes say.
UNSAFE = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
#: Questions travel to workers as pickles, in memory, between our own processes.
UNSAFE_ALLOWED_IN = {"coremargin.engine.probe_transport"}


def room(name: str) -> str:
    """The room of a dotted module name: coremargin.data.store lies in data, coremargin itself in ''."""
    return [*name.split("."), ""][1]


def place(package: Package, name: str, found: Import) -> str:
    """Where an import stands, for messages."""
    return f"{package.modules[name].path.name}:{found.line} ({name}) imports {found.target}"


def test_modules_do_not_import_in_circles(package: Package) -> None:
    """No chain of imports leads back to where it began: not even by those for types, or inside of functions."""
    edges = {
        name: {found.target for found in package.own_imports(module)} - {name}
        for name, module in package.modules.items()
    }
    while leaves := {name for name, targets in edges.items() if not targets & set(edges)}:
        edges = {name: targets for name, targets in edges.items() if name not in leaves}
    assert edges == {}


def test_maths_imports_numbers_only(package: Package) -> None:
    """The mathematics imports numpy, scipy and plain tools: no store, no cluster, no file, no clock."""
    offenders = [
        place(package, name, found)
        for name, module in package.modules.items()
        for found in package.imports(module)
        if room(name) == "maths"
        and found.target.split(".")[0] not in MATHS_MAY_IMPORT | (COMPILER_MAY_IMPORT if name in COMPILERS else set())
    ]
    assert offenders == []


def test_nothing_is_unpickled_from_disk(package: Package) -> None:
    """Pickles are known to the one module that sends probes to workers, and NumPy files are read without them."""
    offenders = [
        place(package, name, found)
        for name, module in package.modules.items()
        for found in package.imports(module)
        if found.target.split(".")[0] in UNSAFE and name not in UNSAFE_ALLOWED_IN
    ]
    for name, module in package.modules.items():
        for call in ast.walk(module.tree):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in {"np.load", "numpy.load"}:
                given = {word.arg: ast.unparse(word.value) for word in call.keywords}
                if given.get("allow_pickle") != "False":
                    offenders.append(f"{name}:{call.lineno} calls np.load without allow_pickle=False")
    assert offenders == []


def test_every_third_party_import_is_declared(package: Package, repository: Path) -> None:
    """Whatever the package imports is named in pyproject.toml, so that nothing works by another package's grace."""
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    shipped = [text for extra, texts in project["optional-dependencies"].items() if extra != "dev" for text in texts]
    declared = {re.split(r"[^\w-]", text)[0].lower() for text in [*project["dependencies"], *shipped]}
    providers = importlib.metadata.packages_distributions()
    offenders = []
    for name, module in package.modules.items():
        for found in package.imports(module):
            top = found.target.split(".")[0]
            if top in sys.stdlib_module_names or top == "coremargin":
                continue
            names = {provider.lower() for provider in providers.get(top, [top.replace("_", "-")])}
            if not names & declared:
                offenders.append(place(package, name, found))
    assert offenders == []


def test_every_dependency_is_imported(package: Package, repository: Path) -> None:
    """What is installed with the package is used by it."""
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {re.split(r"[^\w-]", text)[0].lower() for text in project["dependencies"]}
    tops = {found.target.split(".")[0] for module in package.modules.values() for found in package.imports(module)}
    providers = importlib.metadata.packages_distributions()
    assert declared - {provider.lower() for top in tops for provider in providers.get(top, [])} == set()


@pytest.mark.parametrize("name", ["coremargin", "coremargin.cli"])
def test_importing_is_light(name: str) -> None:
    """Importing the package or its command line loads neither Dask nor scikit-learn nor pyarrow: `--help` is quick."""
    code = f"import sys, {name}; print(*{{m.split('.')[0] for m in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert {"dask", "distributed", "sklearn", "pyarrow", "bokeh"} & set(done.stdout.split()) == set()


def test_the_command_line_loads_no_kind() -> None:
    """`coremargin --help` knows the commands that kinds bring, and loads none of these kinds, no model and no maths."""
    code = (
        "import sys; from coremargin.cli import main; assert 'outliers' in main.commands;"
        "print(*(name for name in sys.modules if name == 'numpy' or name.startswith('coremargin.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = done.stdout.split()
    assert "coremargin.problems.outliers.commands" in loaded
    heavy = re.compile(r"numpy|coremargin\.((maths|models|verify)\.|problems\.\w+\.(?!commands$)).+")
    assert [name for name in loaded if heavy.fullmatch(name)] == []
