"""Repeat one mutation, say what it is and what became of it, and leave it where it can be looked at:

PYTHONPATH=pipeline:tests/verify python tests/verify/forge_repeat.py KIND NUMBER
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from forge_run import Attack, Guard
from forge_specimens import STORES, Specimens
from forge_stores import StoreAttack


def repeat(kind: str, number: int) -> None:
    """A model is left mutated; of a store, which is put back, the files that were others are left beside it."""
    folder = Path(tempfile.mkdtemp())
    attack = (StoreAttack if kind in STORES else Attack)(kind, Specimens(folder), folder)
    guard = Guard()
    with guard.watching():
        outcome, told = attack.one(number, guard, thorough=True)
    click.echo(f"{told}\n{outcome}\n{attack.leave(number)}")


if __name__ == "__main__":
    repeat(sys.argv[1], int(sys.argv[2]))
