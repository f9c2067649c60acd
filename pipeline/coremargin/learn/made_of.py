"""What a store beside a model was made of: files as they were, and the words about their columns.

Files are known by their paths, sizes and times of change, as ``make`` and ``rsync`` know them: reading them once more
would cost as much as the store did. It is kept with the store itself (``about``), and so appears and goes with it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coremargin.data.sources.beside import label_files
from coremargin.data.sources.files import files_of
from coremargin.data.tables.words import COLUMN_WORDS, NOTHING_SAID, words_of

KEY = "made_of"  #: in what a store says about itself


def made_of(source: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The files of a source and what was said of their columns, as JSON. options: of ``ingest``.

    Rows in memory are known by their kind alone, and have no ``state``. Raises UsageError, DataError.
    """
    files, words = files_of(source, None), _words(options)
    if files is None:
        return {"source": type(source).__name__, "state": "", "words": words}
    paths = [path for path, _ in files.kinds]
    if options.get("labels") is None:
        paths += label_files(files, unlabelled=False) or []
    found = [(Path(os.path.abspath(path)), path.stat()) for path in paths]
    state = hashlib.sha256()
    for path, seen in found:
        state.update(b"%s\0%d %d\n" % (os.fsencode(path), seen.st_size, seen.st_mtime_ns))
    return {
        "source": _called([path for path, _ in found]),
        "bytes": sum(seen.st_size for _, seen in found),
        "changed_ns": max(seen.st_mtime_ns for _, seen in found),
        "state": f"sha256:{state.hexdigest()}",
        "words": words,
    }


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """How what a store was made of differs from what is given now, in words; none where it does not."""
    found = []
    if (then.get("source"), then.get("state")) != (now["source"], now["state"]):
        before, after = _told(then), _told(now)
        found.append(f"it was made of {before}, now {'one of them has changed' if before == after else after}")
    words, others = dict(then.get("words", {})), now["words"]
    for name in sorted({*words, *others}):
        if words.get(name) != others.get(name):
            option = "--" + name.replace("_", "-")
            found.append(f"{option} was {words.get(name, 'not said')}, now {others.get(name, 'not said')}")
    return found


def _called(paths: Sequence[Path]) -> str:
    first = os.fsencode(paths[0]).decode(errors="backslashreplace")  # JSON takes no other names
    return first if len(paths) == 1 else f"{len(paths)} files ({first}, ...)"


def _told(record: Mapping[str, Any]) -> str:
    if not record.get("state"):
        return f"a {record.get('source')}"
    changed = datetime.fromtimestamp(record["changed_ns"] / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return f"{record['source']} of {record['bytes']:,} bytes, changed {changed} UTC"


def _words(options: Mapping[str, Any]) -> dict[str, str]:
    """What was said, each as one text, whichever way it was given; nothing of what was not."""
    given: Any = {name: options[name] for name in COLUMN_WORDS if options.get(name) is not None}
    said = words_of(**given)
    policies = [f"{column}={policy}" if column else policy for column, policy in said.missing]
    found = {name: getattr(said, name) for name in COLUMN_WORDS if getattr(said, name) != getattr(NOTHING_SAID, name)}
    found |= {"missing": policies} if policies else {}
    found |= {name: options[name] for name in ("label", "labels", "weights", "drop") if options.get(name) is not None}
    return {name: text for name, value in found.items() if (text := _text(value))}


def _text(value: Any) -> str:
    if isinstance(value, list | tuple) and all(isinstance(one, str | int) for one in value):
        return ",".join(sorted(map(str, value)))
    return str(value) if isinstance(value, str | int) else "given beside the rows"
