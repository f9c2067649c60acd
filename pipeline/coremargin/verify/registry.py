"""The kinds of claims that there are: a line for each."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles
    from coremargin.verify.claim import AnyClaim
    from coremargin.verify.kind import Kind

#: Problem, as records name it -> module that exports ``KIND``.
KINDS = {
    "hard_margin": "coremargin.verify.hard.kind",
    "soft_margin": "coremargin.verify.soft.kind",
    "outliers": "coremargin.verify.outliers.kind",
    "crammer_singer": "coremargin.verify.classes.kind",
}


@cache
def kind_named(problem: str) -> Kind[Any]:
    """The kind of the claims about a problem."""
    kind: Kind[Any] = import_module(KINDS[problem]).KIND
    return kind


def claim_of(files: ModelFiles) -> AnyClaim:
    """What the model in these files claims."""
    claim: AnyClaim = kind_named(files.record.problem).claim(files)
    return claim
