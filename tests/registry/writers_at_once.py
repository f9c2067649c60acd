"""Eight writers move names of one registry and add versions, and are killed at random moments.

Usage: writers_at_once.py FOLDER KILLS SEED. Prints how many lines the log has in the end.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from coremargin.errors import Busy, CoremarginError, DataError
from coremargin.registry.add_version import add
from coremargin.registry.aliases import collect, promote, rollback
from coremargin.registry.registry import Registry
from registry_kit import check_whole, grown

WRITERS = 8


def write(path: Path, models: list[Path], seed: int) -> None:
    """Change the registry until killed; what others did may be in the way, and nothing else may be."""
    chance, registry = random.Random(seed), Registry(path)  # noqa: S311 - which move comes next
    while True:
        numbers = registry.state().numbers
        try:
            move = chance.random()
            if move < 0.2:
                add(registry, chance.choice(models))
            elif move < 0.3:
                collect(registry, keep=3)
            elif move < 0.5:
                rollback(registry)
            else:
                promote(registry, chance.choice(numbers), alias=chance.choice(["champion", "shadow"]))
        except Busy:  # a machine with other work may give a writer that holds the lock no time
            continue
        except CoremarginError as error:
            if not any(word in str(error) for word in ("was removed", "no version was", "nothing to roll back")):
                sys.stderr.write(f"{error}\n")
                os._exit(3)


def start(path: Path, models: list[Path], seed: int) -> int:
    """A writer in a process of its own."""
    child = os.fork()
    if child == 0:
        try:
            write(path, models, seed)
        finally:
            os._exit(4)
    return child


def look(registry: Registry) -> None:
    """Every name is a whole version's; one that is gone by now has no name any more."""
    for name, alias in registry.state().aliases.items():
        try:
            registry.record(alias.version)
        except DataError:
            assert registry.state().aliases[name].fence > alias.fence


def main() -> None:
    """Kill writers, start others, and look at the registry all the time."""
    folder, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    _, models = grown(folder, 3)
    registry = Registry.create(folder / "registry")
    for model in models:
        add(registry, model)
    promote(registry, 1)
    chance = random.Random(seed)  # noqa: S311 - when to kill whom
    alive = [start(registry.path, models, seed + number) for number in range(WRITERS)]
    try:
        for killed in range(kills):
            time.sleep(chance.random() * 0.02)
            one = alive.pop(chance.randrange(WRITERS))
            os.kill(one, signal.SIGKILL)
            assert os.waitpid(one, 0)[1] == signal.SIGKILL, "a writer has ended by itself"
            look(registry)
            alive.append(start(registry.path, models, seed + WRITERS + killed))
    finally:
        for one in alive:
            os.kill(one, signal.SIGKILL)
            os.waitpid(one, 0)
    with registry.writing():
        check_whole(registry)
    sys.stdout.write(f"{len(registry.state().lines)}\n")


if __name__ == "__main__":
    main()
