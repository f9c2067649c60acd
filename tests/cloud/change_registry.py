"""``python change_registry.py ADDRESS ENDPOINT NAME CHANGES FILE MODEL...``: a writer that changes a registry often.

Each change has a comment of its own, which is a line of the file once the change is done.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from coremargin.errors import Busy, DataError
from coremargin.formats.location import location
from coremargin.registry.add_version import add
from coremargin.registry.aliases import collect, promote
from coremargin.registry.registry import Registry


def main(text: str, endpoint: str, name: str, changes: int, file: str, models: list[str]) -> None:
    """Change it until all changes are done."""
    registry, chance = Registry(location(text, {"endpoint": endpoint})), random.Random(name)  # noqa: S311
    with open(file, "a") as out:
        for k in range(changes):
            note = f"{name}-{k}"
            try:
                if chance.random() < 0.3:
                    add(registry, Path(chance.choice(models)))
                if chance.random() < 0.1:
                    collect(registry, keep=3)
                newest = registry.state().newest or 1
                if promote(registry, newest, alias=f"alias-{name.split('-', maxsplit=1)[0]}", comment=note) is None:
                    registry.append("predicted", newest, note, source="rows", out="labels.csv")
            except (Busy, DataError) as error:  # the version was removed meanwhile, or too many were faster
                if not isinstance(error, Busy) and "was removed" not in str(error):
                    raise
                continue
            out.write(f"{note}\n")
            out.flush()
            os.fsync(out.fileno())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5], sys.argv[6:])
