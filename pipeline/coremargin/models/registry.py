"""Which class answers for the model in a folder: each kind's line in formats/kinds.py names one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from coremargin.data.local_storage import LocalStorage
from coremargin.data.object_storage import ObjectStorage
from coremargin.data.storages import open_storage
from coremargin.formats import kinds
from coremargin.formats.location import location
from coremargin.formats.model_files import read_model_files
from coremargin.formats.model_record import FILE
from coremargin.formats.versions import resolve_model

if TYPE_CHECKING:
    from coremargin.formats.storage import ReadableStorage
    from coremargin.maths.kernel.functions import KernelFunction
    from coremargin.models.base import BaseModel
    from coremargin.models.single import SingleModel


def class_of(kind: str) -> type[BaseModel]:
    """What the models of a kind are."""
    found: type[BaseModel] = kinds.module(kinds.KINDS[kind].model).MODEL_CLASS
    return found


def known_by_file(holds: Callable[[str], bool]) -> str | None:
    """The kind whose models have a record of another name than all others', where a folder holds a file of that name.

    None: by ``model.json``.
    """
    own = {class_of(kind).FILE: kind for kind in kinds.KINDS}
    return next((kind for file, kind in own.items() if file != FILE and holds(file)), None)


def load(
    path: str | os.PathLike[str],
    kernel: KernelFunction | None = None,
    *,
    structure: Any = None,
    storage_options: Mapping[str, str] | None = None,
) -> BaseModel:
    """Open the model in a folder, of whatever kind it is: the counterpart of its ``save``.

    Nothing that it claims is checked: ``coremargin.verify`` does that.

    Parameters
    ----------
    path : path-like
        The folder that ``save``, ``coremargin.train`` or a command wrote; of a campaign the folder ``model`` in it; of
        a registry "registry@champion", or another alias or number of a version. Or an address such as
        ``s3://bucket/rows.model`` or ``s3://bucket/registry@champion``.
    kernel : callable, optional
        The function k(X, Z) that is the model's kernel, where it is one: such a model decides nothing without it, and
        what its record says about it is never run.
    structure : object, optional
        The structure of a model that was trained with one of yours; the same holds for it.
    storage_options : mapping, optional
        Options of an address, as for ``Store.open``.

    Returns
    -------
    Model, KernelModel or FleetModel
        By the contents of the folder; its ``kind`` is what was trained.

    Raises
    ------
    DataError
        Nothing is there, or a newer version, or truncated or altered files.
    UsageError
        ``kernel`` is another function than the model was trained with, or the model has none; options that are
        not known, or of a path.
    RunError
        A service refuses or does not answer.

    See Also
    --------
    coremargin.train : Makes such folders.
    coremargin.verify : Checks the certificate of what is in one.

    Examples
    --------
    >>> import coremargin, tempfile
    >>> model = coremargin.train([[0.0], [1.0], [3.0], [4.0]], ["a", "a", "b", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model")
    ...     again = coremargin.load(f"{folder}/model")
    >>> again.kind, again.predict([[1.5], [2.5]]).tolist()
    ('hard_margin', ['a', 'b'])
    """

    def read(model: ReadableStorage) -> BaseModel:
        kind = known_by_file(model.exists)
        if kind is not None:
            return class_of(kind).read(model)
        files = read_model_files(model)
        return cast("type[SingleModel]", class_of(files.record.problem)).from_files(files)

    if storage_options:
        path = location(path, storage_options)
    storage = open_storage(path)
    if isinstance(storage, LocalStorage | ObjectStorage):
        storage = open_storage(resolve_model(storage.name))
    found = storage.read_whole(read)
    found = found if structure is None else found.with_structure(structure)
    return found if kernel is None else found.with_kernel(kernel)
