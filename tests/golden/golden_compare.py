"""Two golden sets side by side: which job and which key changed."""

from __future__ import annotations

import fnmatch
import json
import re
import sys
from pathlib import Path
from typing import Any

#: Names that later work changed on purpose, old: new, of keys and of words: {"upper": "upper_bound", "arrays.npz/w":
#: "arrays.npz/weights"}. Whole parts of a path are replaced, in both sets; null leaves out what has that part.
NAMES = Path(__file__).with_name("names.json")
SHOWN = 12


def renamed(record: dict[str, Any], names: dict[str, str | None]) -> dict[str, Any]:
    """A record in new names."""
    found = {}
    for key, value in record.items():
        path = f"/{key}/"
        for old, new in names.items():
            if f"/{old}/" in path:
                path = "" if new is None else path.replace(f"/{old}/", f"/{new}/")
        if path:
            found[path.strip("/")] = (names.get(value) or value) if isinstance(value, str) else value
    return found


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """A line for each key that differs: both values, and how far numbers are from each other."""
    lines = []
    for key in sorted(old.keys() | new.keys()):
        if key not in old:
            lines.append(f"+ {key}: {new[key]}")
        elif key not in new:
            lines.append(f"- {key}: {old[key]}")
        elif repr(before := old[key]) != repr(now := new[key]):  # NaN is as good as NaN, and 0 is not -0
            plain = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (before, now))
            far = f" ({abs(now - before) / abs(before):.1e})" if plain and before else ""
            lines.append(f"  {key}: {before} -> {now}{far}")
    return lines


def read(path: Path, only: str, ignore: str | None) -> dict[str, dict[str, Any]]:
    """The jobs of a golden set whose names have a pattern, without the keys in which a regular expression is found."""
    names = json.loads(NAMES.read_text())
    records = {job: record for job, record in json.loads(path.read_text()).items() if fnmatch.fnmatch(job, only)}
    return {
        job: {key: one for key, one in renamed(record, names).items() if not (ignore and re.search(ignore, key))}
        for job, record in records.items()
    }


def compare(paths: list[Path], *, only: str = "*", ignore: str | None = None, everything: bool = False) -> int:
    """Print what differs between two files; 1 if anything does."""
    old, new = (read(path, only, ignore) for path in paths)
    changed = 0
    for job in sorted(old.keys() & new.keys()):
        if lines := differences(old[job], new[job]):
            changed += 1
            shown = lines if everything else lines[:SHOWN]
            more = [f"... and {len(lines) - SHOWN} more (--all shows them)"] if len(lines) > len(shown) else []
            sys.stdout.write("\n    ".join([f"{job}: {len(lines)} of {len(old[job])} keys", *shown, *more]) + "\n")
    for which, alone in (("old", old.keys() - new.keys()), ("new", new.keys() - old.keys())):
        if alone:
            sys.stdout.write(f"{len(alone)} jobs are in the {which} set alone: {', '.join(sorted(alone))}\n")
    both = [len(record) for job, record in old.items() if job in new]
    sys.stdout.write(f"{changed} of {len(both)} jobs differ, which have {sum(both)} values\n")
    return int(changed > 0 or old.keys() != new.keys())
