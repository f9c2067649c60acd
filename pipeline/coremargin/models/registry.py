"""Which model answers which problem: a line for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.formats.model_files import read_model_files
from coremargin.models.model import Model
from coremargin.models.multiclass import MulticlassModel

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.models.single import Single

#: Problem, as records name it -> what its models are.
MODELS: dict[str, type[Single]] = {
    "hard_margin": Model,
    "soft_margin": Model,
    "outliers": Model,
    "crammer_singer": MulticlassModel,
}


def read_single(folder: int, path: Path) -> Single:
    """The model, of whatever problem, in an open folder; path: for messages. Raises DataError."""
    files = read_model_files(folder, path)
    return MODELS[files.record.problem].of(files)
