"""The compiled kernels of the search: loaded before a job needs them, with a word where that takes long."""

from __future__ import annotations

from pathlib import Path

from coremargin.maths.outliers.compiled import cache_folder, digest
from coremargin.maths.outliers.explore import compile_kernels

_ready: list[bool] = []


def ready() -> bool:
    """Whether this process has them."""
    return bool(_ready)


def waits_for_compiler() -> bool:
    """Whether ``prepare`` would compile them: this process has not got them, and no earlier one left them on disk."""
    folder = cache_folder()
    return not ready() and (folder is None or not any(Path(folder).glob(f"*explore_nodes_{digest()}*.nbi")))


def prepare() -> None:
    """Compile the kernels, or load what was compiled before."""
    if not ready():
        compile_kernels()
        _ready.append(True)
