"""The kinds of claims: a line for each."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from coremargin.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.claim import AnyClaim
    from coremargin.verify.kind import Kind

#: Problem, as records name it -> module that exports ``KIND``.
KINDS = {
    "hard_margin": "coremargin.verify.hard_margin",
    "soft_margin": "coremargin.verify.soft_margin",
    "logistic": "coremargin.verify.logistic",
    "relative_margin": "coremargin.verify.relative_margin",
    "outliers": "coremargin.verify.outliers",
    "crammer_singer": "coremargin.verify.crammer_singer",
    "ranking": "coremargin.verify.ranking",
    "structured": "coremargin.verify.structured",
    "user_structure": "coremargin.verify.user_structure",
    "kernel": "coremargin.verify.kernel",
    "ball": "coremargin.verify.ball",
    "ellipsoid": "coremargin.verify.ellipsoid",
    "soft_ellipsoid": "coremargin.verify.soft_ellipsoid",
    "soft_ball": "coremargin.verify.soft_ball",
    "kernel_ball": "coremargin.verify.kernel_ball",
    "active": "coremargin.verify.active.kind",
    "active_classes": "coremargin.verify.active.kind",
}


def kind_named(problem: str) -> Kind[Any]:
    """The kind of claims about a problem. Raises DataError for an unknown one."""
    if problem not in KINDS:
        raise DataError(
            f"a model of problem {problem!r}: expected one that the list in verify/registry.py names "
            f"({', '.join(sorted(KINDS))}), found no line for it; add one, with the module that checks such claims"
        )
    kind: Kind[Any] = import_module(KINDS[problem]).KIND
    return kind


def claim_of(files: ModelFiles, kernel: Callable[..., Any] | None = None, structure: Any = None) -> AnyClaim:
    """The claim of the model in these files; kernel, structure: the user's that it is about, if it is about one.

    Raises UsageError if the model needs one and none was passed, or the other way round.
    """
    kind = kind_named(files.record.problem)
    claim: AnyClaim = kind.with_structure(kind.with_kernel(kind.claim(files), kernel), structure)
    return claim
