"""Models for others, as files: what sklearn_objects.py and onnx_graph.py make of a model, written whole or not at all.

Only a file that was exported from here is replaced. A graph begins with who made it; skops has no word for that, so the
zip that it writes gets a comment, which no reader minds.
"""

from __future__ import annotations

import io
import os
import zipfile
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from coremargin.errors import UsageError
from coremargin.formats.function import refuse_function
from coremargin.models.files import check_outside
from coremargin.models.onnx_graph import MAKER, Precision
from coremargin.models.output_file import whole_file
from coremargin.models.predict import opened_model

if TYPE_CHECKING:
    from coremargin.models.fleet import AnyModel

Format = Literal["onnx", "sklearn-skops"]


def export(
    model: AnyModel | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    format: Format = "onnx",  # noqa: A002  the option's name
    precision: Precision = "float64",
    C: float | None = None,
    gamma: str | float | None = None,
    overwrite: bool = False,
) -> int:
    """Write a model or fleet, or that in a folder, to the file or address ``out``, whole or not at all; its size.

    C, gamma: of a fleet, whose members decide. Raises UsageError (the package for the format is not installed, several
    values of C, a place in a store or a model, or where something is), OutputError (not writable).
    """
    check_outside(out)
    opened = opened_model(model, C, gamma)
    refuse_function(opened.parameters, "an exported file")
    if format == "onnx":
        data = opened.to_onnx(precision).SerializeToString()
    elif format == "sklearn-skops":
        data = _skops(opened.to_sklearn())
    else:
        raise UsageError(f"format: expected onnx or sklearn-skops, got {format!r}")
    with whole_file(out, "an exported model", _is_ours, overwrite=overwrite) as file:
        file.write(data)
    return len(data)


def _skops(machine: Any) -> bytes:
    """The machine as skops writes it: a zip of JSON and arrays, which runs no code when it is read."""
    try:
        from skops.io import dumps
    except ImportError:
        raise UsageError("export for skops: expected the package skops: pip install 'coremargin[skops]'") from None
    data = io.BytesIO(dumps(machine))
    with zipfile.ZipFile(data, "a") as archive:
        archive.comment = MAKER.encode()
    return data.getvalue()


def _is_ours(file: BinaryIO) -> bool:
    """Whether a file was exported from here, in either format."""
    head = file.read(64)
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - 64))
    tail = file.read()
    maker = bytes([len(MAKER)]) + MAKER.encode()
    return (b"\x12" + maker) in head[:16] or (head[:2] == b"PK" and tail.endswith(maker[:1] + b"\0" + maker[1:]))
