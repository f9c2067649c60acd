"""Which class answers for the model in a folder: each kind's line in formats/kinds.py names one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from coremargin.formats import kinds
from coremargin.formats.model_files import read_model_files
from coremargin.formats.model_record import FILE
from coremargin.formats.open_folder import read_folder

if TYPE_CHECKING:
    from coremargin.models.single import Single
    from coremargin.models.trained import Trained


def class_of(kind: str) -> type[Trained]:
    """What the models of a kind are."""
    found: type[Trained] = kinds.module(kinds.KINDS[kind].model).MODEL_CLASS
    return found


def known_by_file(holds: Callable[[str], bool]) -> str | None:
    """The kind whose models have a record of another name than all others', where a folder holds a file of that name.

    None: ``model.json`` says the kind.
    """
    own = {class_of(kind).FILE: kind for kind in kinds.KINDS}
    return next((kind for file, kind in own.items() if file != FILE and holds(file)), None)


def read_model(path: str | os.PathLike[str]) -> Trained:
    """The model in a folder, of whatever kind. Raises DataError."""
    place = Path(os.path.abspath(path))

    def read(folder: int) -> Trained:
        kind = known_by_file(os.listdir(folder).__contains__)
        if kind is not None:
            return class_of(kind).read(folder, place)
        files = read_model_files(folder, place)
        return cast("type[Single]", class_of(files.record.problem)).of(files)

    return read_folder(place, read)
