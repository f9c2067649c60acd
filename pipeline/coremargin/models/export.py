"""Models for others, as files: what sklearn_objects.py and onnx_graph.py make of a model, written whole or not at all.

Only a file that was exported from here is replaced. A graph begins with who made it; skops has no word for that, so the
zip that it writes gets a comment, which no reader minds.
"""

from __future__ import annotations

import io
import os
import stat
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from coremargin.data.files import output_errors, write_whole
from coremargin.data.folder import refuse
from coremargin.errors import UsageError
from coremargin.formats.function import refuse_function
from coremargin.formats.local_path import local_path
from coremargin.models.files import check_outside
from coremargin.models.onnx_graph import MAKER, Precision
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
    """Write a model or fleet, or that in a folder, to the file ``out``, which appears whole or not at all; its bytes.

    C, gamma: of a fleet, whose members decide. Raises UsageError (the package for the format is not installed, several
    values of C, a place in a store or a model, or where something is), OutputError (not writable).
    """
    check_outside(local_path(out))
    path = Path(os.path.realpath(local_path(out)))  # follow a link to the file that is replaced
    if os.path.lexists(path):
        refuse(path, "an exported model", [] if _is_ours(path) else ["another file"], overwrite=overwrite)
    opened = opened_model(model, C, gamma)
    refuse_function(opened.parameters, "an exported file")
    if format == "onnx":
        data = opened.to_onnx(precision).SerializeToString()
    elif format == "sklearn-skops":
        data = _skops(opened.to_sklearn())
    else:
        raise UsageError(f"format: expected onnx or sklearn-skops, got {format!r}")
    return write_whole(path, [data])


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


def _is_ours(path: Path) -> bool:
    """Whether a file was exported from here, in either format."""
    if not stat.S_ISREG(path.lstat().st_mode):
        return False
    with output_errors(path), open(path, "rb") as file:
        head = file.read(64)
        file.seek(max(0, path.stat().st_size - 64))
        tail = file.read()
    maker = bytes([len(MAKER)]) + MAKER.encode()
    return (b"\x12" + maker) in head[:16] or (head[:2] == b"PK" and tail.endswith(maker[:1] + b"\0" + maker[1:]))
