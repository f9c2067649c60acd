"""What a store beside a model was made of: files as they were, and the words about their columns.

Files are known by their paths, sizes and times of change, as ``make`` and ``rsync`` know them: reading them once more
would cost as much as the store did. It is kept with the store itself (``about``), and so appears and goes with it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import asdict

from coremargin.data.sources.files import find_files
from coremargin.data.sources.opening import label_files
from coremargin.data.tables.column_options import COLUMN_ARGUMENTS, NO_COLUMN_OPTIONS, parse_column_options
from coremargin.formats.model_record import Strict

KEY = "made_of"  #: in what a store says about itself


class MadeOf(Strict, frozen=True, kw_only=True):
    """Files, how many bytes they had in all, when the last of them changed, and the words, each as one text.

    state: of paths, sizes and times; "" of rows in memory, which are known by their kind alone.
    """

    source: str
    state: str
    words: dict[str, str]
    bytes: int = 0
    changed_ns: int = 0

    def kept(self) -> dict[str, Any]:
        """What a store says about itself then."""
        return {KEY: asdict(self)}


def kept_in(about: Mapping[str, Any]) -> MadeOf | None:
    """What a store says that it was made of; None: nothing, or nothing that can be read."""
    try:
        return msgspec.convert(about.get(KEY), MadeOf)
    except msgspec.ValidationError:
        return None


def made_of(source: Any, options: Mapping[str, Any]) -> MadeOf:
    """The files of a source, as they are now, and what is said of their columns. options: of ``ingest``.

    Raises UsageError, DataError.
    """
    files, words = find_files(source, None), _words(options)
    if files is None:
        return MadeOf(source=type(source).__name__, state="", words=words)
    paths = [file.path for file in files.files]
    if options.get("labels") is None:
        paths += label_files(files, unlabelled=options.get("unlabelled", False)) or []
    found = [(Path(os.path.abspath(path)), path.stat()) for path in paths]
    state = hashlib.sha256()
    for path, seen in found:
        state.update(b"%s\0%d %d\n" % (os.fsencode(path), seen.st_size, seen.st_mtime_ns))
    return MadeOf(
        source=_called([path for path, _ in found]),
        state=f"sha256:{state.hexdigest()}",
        words=words,
        bytes=sum(seen.st_size for _, seen in found),
        changed_ns=max(seen.st_mtime_ns for _, seen in found),
    )


def differences(then: MadeOf, now: MadeOf) -> list[str]:
    """How what a store was made of differs from what is given now, in words; none where it does not."""
    found = []
    if (then.source, then.state) != (now.source, now.state):
        before, after = _told(then), _told(now)
        found.append(f"it was made of {before}, now {'one of them has changed' if before == after else after}")
    for name in sorted({*then.words, *now.words}):
        before, after = (words.get(name, "not said") for words in (then.words, now.words))
        if before != after:
            found.append(f"--{name.replace('_', '-')} was {before}, now {after}")
    return found


def _called(paths: Sequence[Path]) -> str:
    first = os.fsencode(paths[0]).decode(errors="backslashreplace")  # JSON takes no other names
    return first if len(paths) == 1 else f"{len(paths)} files ({first}, ...)"


def _told(record: MadeOf) -> str:
    if not record.state:
        return f"a {record.source}"
    changed = str(np.datetime64(record.changed_ns // 1000, "us")).replace("T", " ")
    return f"{record.source} of {record.bytes:,} bytes, changed {changed} UTC"


def _words(options: Mapping[str, Any]) -> dict[str, str]:
    """What was said, each as one text, whichever way it was given; nothing of what was not."""
    given: Any = {name: options[name] for name in COLUMN_ARGUMENTS if options.get(name) is not None}
    said = parse_column_options(**given)
    policies = [f"{column}={policy}" if column else policy for column, policy in said.missing]
    found = {
        name: getattr(said, name)
        for name in COLUMN_ARGUMENTS
        if getattr(said, name) != getattr(NO_COLUMN_OPTIONS, name)
    }
    found |= {"missing": policies} if policies else {}
    found |= {name: options[name] for name in ("label", "labels", "weights", "drop") if options.get(name) is not None}
    return {name: text for name, value in found.items() if (text := _text(value))}


def _text(value: Any) -> str:
    if isinstance(value, list | tuple) and all(isinstance(one, str | int) for one in value):
        return ",".join(sorted(map(str, value)))
    return str(value) if isinstance(value, str | int) else "given beside the rows"
