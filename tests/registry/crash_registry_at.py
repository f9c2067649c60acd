"""Change a registry again and again, killed at the first, second, ... step on disk; check what is left, and go on.

Usage: crash_registry_at.py FOLDER STRIDE. Prints how many steps there are.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from coremargin.registry.add_version import add
from coremargin.registry.aliases import collect, promote, rollback
from coremargin.registry.registry import Registry
from crash_at import kill_at
from registry_kit import check_whole, grown


def work(path: Path, models: list[Path]) -> None:
    """All that can be done to a registry; done again it comes to the same."""
    registry = Registry.create(path)
    for number, model in enumerate(models, start=1):
        if not any(one >= number for one in registry.state().numbers):
            add(registry, model)
    lines = [line.action for line in registry.state().lines]
    if "rolled back" not in lines:
        promote(registry, 2)
        promote(registry, 3)
        rollback(registry, comment="tried")
    collect(registry, keep=1)


def main() -> None:
    """Kill, check, finish the work, check again, for every step."""
    folder = Path(sys.argv[1])
    _, models = grown(folder, 4)
    path = folder / "registry"
    for step in range(1, 5000, int(sys.argv[2])):
        shutil.rmtree(path, ignore_errors=True)
        child = os.fork()
        if child == 0:
            kill_at(step)
            work(path, models)
            os._exit(0)
        finished = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        if (path / "registry.json").exists():
            check_whole(Registry(path))
        work(path, models)
        check_whole(Registry(path))
        state = Registry(path).state()
        assert state.numbers == (2, 3, 4), state.numbers
        assert {name: alias.version for name, alias in state.aliases.items()} == {"candidate": 4, "champion": 2}
        assert [line.version for line in state.lines if line.action == "removed"] == [1]
        assert not list((path / "versions").glob(".*"))
        if finished:
            sys.stdout.write(f"{step - 1}\n")
            return


if __name__ == "__main__":
    main()
