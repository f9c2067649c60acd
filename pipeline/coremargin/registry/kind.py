"""What lies in the folder of a version: a model's files, and what belongs to the version."""

from __future__ import annotations

from coremargin.data.owned import Kind
from coremargin.formats.versions import RECORD, VERSION_FORMAT
from coremargin.models.files import MODEL

#: What is beside the model: its record, and what makes the folder one that MLflow loads.
BESIDE = (
    rf"{RECORD.replace('.', '[.]')}|MLmodel|requirements[.]txt|planes[.]npz|model[.]onnx|code/coremargin_version[.]py"
)

VERSION = Kind(
    what="a version",
    records={**MODEL.records, RECORD: VERSION_FORMAT},
    files=rf"{MODEL.files}|{BESIDE}",
    folders=rf"{MODEL.folders}|code",
)
