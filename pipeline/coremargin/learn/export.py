"""Models for others, as files: what formats.py makes of a model, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from coremargin.data.files import write_whole
from coremargin.errors import OutputError, UsageError
from coremargin.learn.formats import Precision, as_onnx, as_sklearn, linear_of
from coremargin.learn.predict import opened_model

if TYPE_CHECKING:
    from coremargin.learn.fleet import AnyModel

Format = Literal["onnx", "sklearn-skops"]


def export(
    model: AnyModel | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    format: Format = "onnx",  # noqa: A002  the option's name
    precision: Precision = "float64",
    C: float | None = None,
    overwrite: bool = False,
) -> int:
    """Write a model or fleet, or that in a folder, to the file ``out``, which appears whole or not at all; its bytes.

    C: of a fleet, whose members decide. Raises UsageError (the package for the format is not installed, several values
    of C), OutputError (something is there, not writable).
    """
    path = Path(os.path.abspath(out))
    if os.path.lexists(path) and not (overwrite and path.is_file()):
        raise OutputError(f"{path}: something is there already; choose another place, or replace a file by --overwrite")
    linear = linear_of(opened_model(model, C))
    if format == "onnx":
        data = as_onnx(linear, precision).SerializeToString()
    elif format == "sklearn-skops":
        data = _skops(as_sklearn(linear))
    else:
        raise UsageError(f"format: expected onnx or sklearn-skops, got {format!r}")
    return write_whole(path, [data])


def _skops(machine: Any) -> bytes:
    """The machine as skops writes it: a zip of JSON and arrays, which runs no code when it is read."""
    try:
        from skops.io import dumps
    except ImportError:
        raise UsageError("export for skops: expected the package skops: pip install 'coremargin[skops]'") from None
    return bytes(dumps(machine))
